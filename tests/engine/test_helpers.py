"""Kernels lowered by copies of the process: what they do is what we do, and they may do nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import morok as mk
from morok import config
from morok.engine import beside
from morok.tensor import Tensor

Work = Callable[[int], object]


def done(work: Work, count: int = 40) -> tuple[dict[int, object], int]:
    """The answers to all numbers, and how many were somebody else's."""
    found: dict[int, object] = {}
    ours = 0
    with config.override(jobs=3, verify=False), beside.helpers(work, count) as shared:
        while (number := shared.take()) is not None:
            time.sleep(0.002)
            found[number] = (number * number,)
            ours += 1
            found.update(shared.answers())
        found.update(shared.late_answers())
        children = [*shared._children]
        for number in shared.left():
            found[number] = (number * number,)
            ours += 1
    for child in children:  # nobody is left behind
        with pytest.raises(ChildProcessError):
            os.waitpid(child, 0)
    return found, count - ours


EXPECTED = {number: (number * number,) for number in range(40)}


def test_work_is_shared() -> None:
    def work(number: int) -> object:
        time.sleep(0.001)
        return (number * number,)

    found, theirs = done(work)
    assert found == EXPECTED
    assert theirs > 0


def test_long_answers_arrive_whole() -> None:
    def work(number: int) -> object:
        return (number * number, "x" * 300_000)

    with config.override(jobs=2, verify=False), beside.helpers(work, 20) as shared:
        found = dict(shared.late_answers())
    assert found == {n: (n * n, "x" * 300_000) for n in range(20)}


def fails(number: int) -> object:
    return None


def raises(number: int) -> object:
    raise ValueError(number)


def dies(number: int) -> object:
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def sleeps(number: int) -> object:
    time.sleep(60)
    return None


def forgets(number: int) -> object:
    return (number * number,) if number % 3 else None


@pytest.mark.parametrize("work", [fails, raises, dies, sleeps, forgets])
def test_no_helper_is_needed(
    work: Work, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(beside, "_PATIENCE", 0.05)
    assert done(work)[0] == EXPECTED


@pytest.mark.parametrize("settings", [{"jobs": 1}, {"verify": True}, {"debug": 1}])
def test_there_are_none_where_somebody_looks(settings: dict[str, object]) -> None:
    with (
        config.override(**{"jobs": 2, "verify": False, **settings}),
        beside.helpers(fails, 40) as shared,
    ):
        assert shared._children == []
        assert [shared.take() for _ in range(41)] == [*range(40), None]


def test_there_are_none_beside_other_threads() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with config.override(jobs=2, verify=False), beside.helpers(fails, 40) as shared:
            assert shared._children == []
    finally:
        over.set()
        thread.join()


def test_a_short_queue_is_no_queue_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users with many pipes get pipes of a page."""
    real = os.pipe

    def short() -> tuple[int, int]:
        ends = real()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
        return ends

    monkeypatch.setattr(beside.os, "pipe", short)
    with config.override(jobs=2, verify=False), beside.helpers(fails, 3000) as shared:
        ours = []
        while (number := shared.take()) is not None:
            ours.append(number)
        found = dict(shared.late_answers())
        assert shared._children == []
        assert sorted([*ours, *found, *shared.left()]) == [*range(3000)]


def said(script: str) -> str:
    """What is written by a process and all that it leaves behind."""
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert process.stderr == ""
    return process.stdout


START = """
import os, signal, time
from morok import config
from morok.engine import beside
def work(number):
    time.sleep(0.01)
    os.write(1, b".")
    return number, "x" * 100_000
config.set(jobs=3, verify=False)
"""


def test_helpers_end_with_their_parent() -> None:
    lonely = """
with beside.helpers(work, 64) as shared:
    assert len(shared._children) == 2
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert len(said(START + lonely)) < 32


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_find_either_a_helper_or_its_parent(name: str) -> None:
    """One that comes while a process is copied must not have the copy go on as its parent."""
    interrupted = f"""
def stop(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.{name}, stop)
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.{name}))
try:
    with beside.helpers(work, 24) as shared:
        found = dict(shared.late_answers())
        found.update(dict.fromkeys(shared.left()))
        assert len(found) == 24
finally:
    os.write(1, b"over")
"""
    assert said(START + interrupted).replace(".", "") == "over"


def test_a_step_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who asks for many computations at once gets copies of his process."""
    forks: list[int] = []
    monkeypatch.setattr(beside.Helpers, "start", lambda self, work, count: forks.append(count))
    x = Tensor(np.arange(60, dtype=np.float32).reshape(6, 10))
    results = [(x[:, :n] * m).sum(1) for n in range(1, 9) for m in (2, 3)]
    with config.override(cache_size=0, verify=False, jobs=2):
        mk.clear_caches()
        Tensor.realize(*results)
        assert forks == []
        mk.clear_caches()
        mk.compile([(x[:, :n] * m).sum(1) for n in range(1, 9) for m in (2, 3)])
        assert forks == [1]


def test_kernels_are_the_same() -> None:
    def graphs() -> list[tuple[Tensor, ...]]:
        x = Tensor(np.arange(60, dtype=np.float32).reshape(6, 10) % 7)
        return [((x[:, :n] * n).sum(1), x[:n] @ x.flatten()[:10]) for n in range(2, 7)]

    sources = []
    for jobs in (1, 2):
        with config.override(cache_size=0, verify=False, jobs=jobs):
            mk.clear_caches()
            plans = mk.compile(graphs())
            texts = [plan.sources() for plan in plans]
            values = [[t.tolist() for t in plan.execute()] for plan in plans]
            sources.append((texts, values))
    assert sources[0] == sources[1]
