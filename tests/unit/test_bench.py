"""The benchmarks start, and write what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import _kernels_data as kernels_data
from bench import harness, kernels
from bench.__main__ import names
from bench._train_data import initial

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_names_are_listed() -> None:
    done = bench()
    assert done.returncode == 0
    assert "rewrite" in done.stdout
    unknown = bench("nonsense")
    assert unknown.returncode == 2
    assert "no benchmark nonsense" in unknown.stdout


def test_what_is_listed_can_be_run() -> None:
    for name in names():
        assert "\ndef main(" in (ROOT / "bench" / f"{name}.py").read_text(), name


def test_rewrite_quick(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = bench("rewrite", "--quick", "--rounds", "1", "--peers", "torch", "--json", str(results))
    assert done.returncode == 0, done.stderr
    assert "torch: has no rewrite engine" in done.stdout
    rows = {
        row["case"]: row["figures"]["morok"] for row in json.loads(results.read_text())["rewrite"]
    }
    assert set(rows) >= {"exprs", "clean", "warm", "chain", "dag", "memory"}
    assert rows["warm"] < 1000  # microseconds for a whole clean graph: one test of one bit


def test_kernels_quick(tmp_path: Path) -> None:
    """Values are compared with NumPy's before anything is measured"""
    results = tmp_path / "results.json"
    options = ("--quick", "--rounds", "1", "--only", "matmul 256,128x", "--json", str(results))
    done = bench("kernels", *options)
    assert done.returncode == 0, done.stderr
    (first, second) = json.loads(results.read_text())["kernels 1"]
    assert [first["case"], second["case"]] == ["matmul 256", "128x256x784"]
    assert first["ratios"]["limit"] > 0
    assert first["figures"]["GFLOP/s"] > 0
    assert bench("kernels", "--only", "nonsense").returncode != 0


def test_wrong_values_are_no_figures() -> None:
    arrays = kernels_data.inputs("matmul 256")
    right = arrays[0] @ arrays[1]
    assert kernels_data.disagreement("matmul 256", arrays, right) is None
    wrong = right.copy()
    wrong[3, 5] += 1
    said = kernels_data.disagreement("matmul 256", arrays, wrong)
    assert said is not None
    assert "away from NumPy's values" in said
    assert kernels_data.disagreement("matmul 256", arrays, right[:-1]) is not None


def test_pairs_of_kernels_make_ratios() -> None:
    """The fastest peer is `best`; a peer that failed has no ratio"""
    answers = {
        "morok": [{"ms": 2.0, "limit": 1.0}, {"ms": 4.0, "limit": 3.0}],
        "torch": [{"ms": 4.0}, {"ms": 8.0}],
        "jax": [{"ms": 3.0}, {"ms": 6.0}],
        "other": [{"failed": "no"}, {"failed": "no"}],
    }
    row = kernels._summary("matmul 256", answers)
    assert row.ratios == {"torch": 2.0, "jax": 1.5, "best": 1.5, "limit": 0.625}
    assert row.figures["morok"] == 3.0
    assert row.figures["GFLOP/s"] == pytest.approx(2 * 256**3 / 3e-3 / 1e9)


def figures(path: Path, name: str) -> dict[str, float]:
    """Our figure of each case."""
    rows = json.loads(path.read_text())[name]
    return {row["case"].strip(): row["figures"]["morok"] for row in rows}


def test_dispatch_quick(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = bench("dispatch", "--quick", "--rounds", "1", "--json", str(results))
    assert done.returncode == 0, done.stderr
    assert set(figures(results, "dispatch")) >= {"mlp sgd", "mlp adam", "tiny kernel"}
    assert "agree to" in done.stdout
    assert "a kernel of the chain" in done.stdout


def test_train_quick_lists_the_costly_kernels(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = bench("train", "--quick", "--rounds", "1", "--json", str(results))
    assert done.returncode == 0, done.stderr
    assert set(figures(results, "train")) >= {"mlp", "cnn"}
    table = json.loads(results.read_text())["train kernels"]["cnn"]
    assert len(table["worst"]) == 5
    times = [line["ms"] for line in table["worst"]]
    assert times == sorted(times, reverse=True)
    assert all(line["flops"] > 0 and line["gflops"] > 0 for line in table["worst"])
    assert "GFLOP/s" in done.stdout


def test_cold_quick(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    options = ("--quick", "--rounds", "1", "--only", "mlp,shapes300", "--json", str(results))
    done = bench("cold", *options)
    assert done.returncode == 0, done.stderr
    cases = {row["case"]: row["figures"] for row in json.loads(results.read_text())["cold"]}
    assert {"mlp first", "mlp second", "shapes300 first", "shapes300 second"} <= set(cases)
    assert set(cases["shapes300 second"]) == {"morok", "morok.c", "morok.jits"}
    assert "all losses agree" in done.stdout
    assert "where it goes, ms" in done.stdout


def test_import_quick(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = bench("import", "--rounds", "1", "--json", str(results))
    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())["import"]
    assert [row["case"] for row in rows] == ["name", "use", "lower"]
    assert all(row["figures"]["cpu"] > 0 for row in rows)


def test_memory_quick(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = bench("memory", "--quick", "--rounds", "1", "--json", str(results))
    assert done.returncode == 0, done.stderr
    measured = figures(results, "memory")
    assert measured["cnn peak"] > measured["imported"] > 0
    assert 100 < measured["node"] < 1000
    assert measured["embedding 12500"] > 0


def test_the_same_weights_follow_from_the_same_names() -> None:
    first, second = (initial("layers.0.weight", (4, 3)) for _ in range(2))
    assert (first == second).all()
    assert not (first == initial("layers.1.weight", (4, 3))).any()
    assert (initial("norm.running_var", (3,)) == 1).all()


def test_what_does_not_agree_is_said() -> None:
    rows = [
        harness.Row("mlp", "ms", {"morok": 1.0, "jax": 2.0}),
        harness.Row("  after 5", "loss", {"morok": 1.0, "jax": 1.01, "torch": 1.0001}),
    ]
    (line,) = harness.disagreements(rows, 1e-3)
    assert "mlp: jax" in line
    assert harness.disagreements(rows, 0.1) == []


@pytest.mark.torch
def test_pytorch_trains_the_same() -> None:
    done = bench("train", "--quick", "--rounds", "1", "--peers", "torch.eager", "--only", "mlp")
    assert done.returncode == 0, done.stderr
    assert "NOT THE SAME WORK" not in done.stdout
    assert "torch" in done.stdout
