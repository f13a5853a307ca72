"""The fuzzer itself: it finds what is wrong, says how to see it again, and makes it short."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from bench import _dags, fuzz
from bench._dag_maker import dag
from bench._dags import Step
from bench._interpreted import interpreted
from morok import engine
from morok.rangeify import movement
from morok.tensor import Tensor


def test_every_kind_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--cases", "1", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    for kind in fuzz.KINDS:
        assert f"fuzz: 1 {kind} from seed 3, 0 failed" in said


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fuzz.main(["--kind", "nonsense"])
    assert "no kind 'nonsense': there are views, programs" in capsys.readouterr().err


def test_a_wrong_view_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = movement._pad

    def wrong(m, index, valid):
        moved, valid = right(m, index, valid)
        return tuple(i - 1 if i.vmax > 2 else i for i in moved), valid

    monkeypatch.setattr(movement, "_pad", wrong)
    assert fuzz.main(["--kind", "views", "--cases", "20"]) == 1
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("python -m bench fuzz"))
    assert "--kind views --seed" in line
    again = line.partition("fuzz ")[2].partition(": ")[0].split()
    assert fuzz.main(again) == 1
    monkeypatch.undo()
    assert fuzz.main(again) == 0


def _no_order(ranged: object) -> dict[object, object]:
    """Nothing is overwritten, as the order of kernels is told."""
    return {}


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        ("morok.rangeify.kernel", "_written", _no_order),
        ("morok.tensor.memory", "is_shown", lambda base: False),
        ("morok.engine.normal", "pairwise", lambda spans: ()),
    ],
)
def test_wrong_writes_are_found_and_made_short(
    module: str,
    name: str,
    broken: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Reads after the write that destroys what they read; arrays that change in the user's hands;
    parts that overlap taken for apart."""
    monkeypatch.setattr(importlib.import_module(module), name, broken)
    seed = next(seed for seed in range(500) if _interpreted_wrongly(seed))
    assert fuzz.main(["--kind", "dags", "--seed", str(seed), "--cases", "1"]) == 1
    said = capsys.readouterr().err
    line, _, program = said.partition("\n")
    assert line.startswith(
        f"python -m bench fuzz --kind dags --seed {seed} --cases 1: lazy, interpreted"
    )
    assert 2 <= len(program.splitlines()) < len(dag(seed)), program


def _interpreted_wrongly(seed: int) -> bool:
    program = dag(seed)
    with interpreted():
        return (
            _dags.difference(_dags.by_tensors(program, False), _dags.by_numpy(program)) is not None
        )


def test_shortening_keeps_what_is_needed() -> None:
    program = dag(5)
    wanted = next(s.name for s in program if s.name in _dags._COMPUTES)
    short = _dags.shortest(program, lambda p: any(s.name == wanted for s in p))
    assert short[-1].name == wanted
    assert len(short) <= 3


def test_a_program_of_every_kind_of_step_is_the_same_on_arrays_and_tensors() -> None:
    names: set[str] = set()
    for seed in range(150):
        names |= {step.name for step in dag(seed)}
    assert names == {*_dags._TABLE, "realize", "forget"}


def test_programs_mean_what_numpy_means() -> None:
    """What was computed before a write keeps the old contents; a write changes its target alone."""
    program = (
        Step("array", (), (np.arange(4),)),
        Step("look", (0,), (slice(1, 3),)),
        Step("add", (0, 0)),
        Step("shift", (0,), (slice(1, 4), slice(0, 3))),
        Step("write_number", (1,), (0, 9)),
        Step("iadd", (0, 2)),
    )
    wanted = [[0, 2, 5, 8], [9, 2], [0, 2, 4, 6]]
    assert [v.tolist() for v in _dags.by_numpy(program) if v is not None] == wanted
    for stepwise in (False, True):
        values = _dags.by_tensors(program, stepwise)
        assert [v.tolist() for v in values if v is not None] == wanted


def test_kernels_are_interpreted_and_none_compiled() -> None:
    before = engine.stats.lowered
    with interpreted() as sinks:
        x = Tensor(np.arange(37, dtype=np.float32)).realize()
        got = (x * 3 + 1).sum().item()
    assert got == sum(3 * i + 1 for i in range(37))
    assert len(sinks) == 1
    assert engine.stats.lowered == before
    assert (x * 3 + 1).sum().item() == got
    assert engine.stats.lowered == before + 1
