"""The benchmarks start, and write what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
