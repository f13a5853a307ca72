"""Spans and the Chrome trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from morok import config
from morok.runtime import kernel_line, profile, profiling, record_kernels, save, span


@pytest.fixture(autouse=True)
def _no_spans(monkeypatch):
    profile.clear()
    monkeypatch.setattr(profile, "_saves_at_exit", True)  # not in the test's own process
    yield
    profile.clear()


def events(path):
    return json.loads(path.read_text())["traceEvents"]


def test_nothing_is_recorded_unless_asked(tmp_path):
    with span("compile", "x"):
        pass
    assert not profiling()
    assert save() is None
    assert events(save(tmp_path / "trace.json")) == []


def test_spans_nest_and_carry_facts(tmp_path):
    with config.override(profile=tmp_path / "trace.json"):
        assert profiling()
        with span("schedule", "outer", kernels=3), span("compile", "inner"):
            time.sleep(0.002)
        assert save() == tmp_path / "trace.json"
    inner, outer = events(tmp_path / "trace.json")
    assert (outer["name"], outer["cat"], outer["args"]) == ("outer", "schedule", {"kernels": 3})
    assert inner["dur"] >= 2000
    assert outer["ts"] <= inner["ts"]
    assert outer["ts"] + outer["dur"] >= inner["ts"] + inner["dur"]
    assert {inner["ph"], outer["ph"]} == {"X"}


def test_a_span_ends_when_its_block_fails(tmp_path):
    with config.override(profile=tmp_path / "trace.json"):
        with pytest.raises(ZeroDivisionError), span("compile", "fails"):
            _ = 1 / 0
        save()
    assert [event["name"] for event in events(tmp_path / "trace.json")] == ["fails"]


def test_kernels_follow_each_other(tmp_path):
    with config.override(profile=tmp_path / "trace.json"):
        record_kernels(("a", "b"), 5000, (2000, 1000))
        save()
    assert [(e["name"], e["ts"], e["dur"]) for e in events(tmp_path / "trace.json")] == [
        ("a", 5.0, 2.0),
        ("b", 7.0, 1.0),
    ]


def test_the_trace_is_written_at_exit_and_a_child_writes_its_own(tmp_path):
    program = (
        "import os\n"
        "from morok.runtime import span\n"
        "with span('compile', 'parent'): pass\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with span('compile', 'child'): pass\n"
        "else: os.waitpid(child, 0)\n"
    )
    environ = {**os.environ, "MOROK_PROFILE": str(tmp_path / "trace.json")}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
    files = {path.name: [e["name"] for e in events(path)] for path in tmp_path.iterdir()}
    assert files.pop("trace.json") == ["parent"]
    assert list(files.values()) == [["child"]]


def test_an_unwritable_trace_is_said_and_nothing_more(tmp_path):
    program = "from morok.runtime import span\nwith span('compile', 'x'): pass\n"
    environ = {**os.environ, "MOROK_PROFILE": str(tmp_path / "no" / "trace.json")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert "cannot write the profile" in done.stderr


def test_a_kernel_in_words():
    line = kernel_line("r_64_32", 1500, bytes_moved=3000, flops=150_000)
    assert line.split() == ["r_64_32", "1.5", "us", "2.0", "GB/s", "100.0", "GFLOP/s"]
    assert kernel_line("nothing", 0).split() == ["nothing", "0.0", "us"]
