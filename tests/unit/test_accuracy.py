"""The table of errors: what an error is, and that the worst one is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import accuracy
from bench.accuracy import FLOATS, FUNCTIONS, Function, errors, measure, special, stored
from morok.dtype import dtypes

F32 = dtypes.float32


def ulp(got: float, want: float) -> float:
    return float(errors(np.array([got], np.float32), np.array([want]), F32)[0])


def test_an_error_is_counted_in_units_of_the_exact_result() -> None:
    unit = 2.0**-23
    assert ulp(1 + unit, 1.0) == 1
    assert ulp(1.0, 1 + unit / 4) == 0.25
    assert ulp(4.0, 4 + 4 * unit) == 1
    assert ulp(0.0, 2.0**-149) == 1  # subnormal results keep the last place
    assert ulp(2.0**-149, 0.0) == 1
    assert ulp(-0.0, 0.0) == 0


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        (np.nan, np.nan, 0.0),
        (np.nan, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (np.inf, np.inf, 0.0),
        (-np.inf, np.inf, np.inf),
        (np.inf, 3.5e38, 0.0),  # rounds to infinity
        (np.inf, 3.4e38, np.inf),  # does not
        (3.4e38, np.inf, np.inf),
    ],
)
def test_what_is_no_number(got: float, want: float, error: float) -> None:
    assert ulp(got, want) == error


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_corners_hold_what_they_should(dtype: object) -> None:
    assert isinstance(dtype, type(F32))
    values = special(dtype, FUNCTIONS["exp"])
    assert values.dtype == stored(dtype)
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    digits, least = accuracy.precision_of(dtype)
    assert (values == 2.0 ** max(least - digits + 1, -1074)).any()
    assert (np.abs(values[np.isfinite(values)]) > 2.0 ** (-least)).any()


def test_the_worst_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is wrong for one subnormal argument only"""
    bad = 2.0**-130

    def exact(x: np.ndarray) -> np.ndarray:
        return np.where(x == bad, x * 3, x + 0)

    function = Function(lambda x: x * 1, exact)
    row = measure("same", function, dtypes.bfloat16, 1, 1)
    assert row.ulp == 2.0**-129 / 2.0**-133
    assert row.at.startswith(f"({bad!r})")
    assert row.tried >= 1 << 16


def test_a_row_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "rows.json"
    assert accuracy.main(["exp2", "erf", "--dtype", "float16", "--json", str(results)]) == 0
    rows = json.loads(results.read_text())
    assert [row["name"] for row in rows] == ["exp2", "erf"]
    assert all(0.4 < row["ulp"] < 0.51 for row in rows)
    assert "exp2         float16" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        accuracy.main(["nonsense"])
