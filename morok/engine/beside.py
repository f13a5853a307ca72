"""Lowering on further cores: forked helpers, which have the graphs already and answer with texts.

Python runs one thread at a time, so kernels are lowered by copies of this process. Caller and
helpers take the numbers of kernels from one queue, a pipe. What a helper took and does not answer
in time, because it is stuck or dead or met an error, the caller does himself: no helper is ever
needed, and errors are the caller's own.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from morok import config
from morok.runtime import profiling, worker_count

Answer = tuple[Any, ...]
"""Of what `marshal` takes."""
Work = Callable[[int], Answer | None]
FEWEST = 8
"""Kernels for which copies of the process are worth their making."""
_NUMBER = 4  # bytes of one in the queue
_MOST = 16_000  # that fit into a pipe
_HEAD = 8  # bytes that say how long an answer is
_PATIENCE = 1.0  # seconds
_PIPE = 1 << 20  # bytes that an answer may wait in


class Helpers:
    """Work on numbers below `count`, shared with helpers, if there are any."""

    def __init__(self, count: int) -> None:
        self._missing = dict.fromkeys(range(count))  # neither taken by the caller nor answered
        self._queue: int | None = None
        self._pipes: dict[int, bytearray] = {}  # descriptor: what was read of the next answer
        self._children: list[int] = []
        self._began = monotonic()

    def take(self) -> int | None:
        """The next number for the caller; None when there is nothing left to take."""
        number = next(iter(self._missing), None) if self._queue is None else _taken(self._queue)
        if number is not None:
            self._missing.pop(number, None)
        return number

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """(number, answer) of what helpers did meanwhile."""
        for pipe in select.select([*self._pipes], [], [], 0)[0] if self._pipes else ():
            pending = self._pipes[pipe]
            piece = os.read(pipe, _PIPE)
            if not piece:
                del self._pipes[pipe]
                os.close(pipe)
            pending += piece
            while len(pending) >= _HEAD:
                end = _HEAD + int.from_bytes(pending[:_HEAD], "little")
                if len(pending) < end:
                    break
                number, answer = marshal.loads(bytes(pending[_HEAD:end]))
                del pending[:end]
                if number in self._missing:
                    del self._missing[number]
                    yield number, answer

    def late_answers(self) -> Iterator[tuple[int, Answer]]:
        """The answers to what helpers took, when all is taken. Waits as long again as it took so
        far, but a second at least."""
        deadline = 2 * monotonic() - self._began + _PATIENCE
        while self._missing and self._pipes and monotonic() < deadline:
            select.select([*self._pipes], [], [], max(deadline - monotonic(), 0.0))
            yield from self.answers()

    def left(self) -> list[int]:
        """What nobody did."""
        return [*self._missing]

    def start(self, work: Work, helpers: int) -> None:
        """Fork helpers that do `work`; None is no answer."""
        self._queue, full = os.pipe()
        os.set_blocking(full, False)  # a user with many pipes gets short ones: an OSError, then
        try:
            # The last first: the backward pass costs most, and long ones should not begin late.
            for number in reversed(self._missing):
                os.write(full, number.to_bytes(_NUMBER, "little"))
        finally:
            os.close(full)
        for _ in range(helpers):
            source, target = os.pipe()
            self._pipes[source] = bytearray()
            try:
                with suppress(OSError):
                    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, _PIPE)
                self._fork(self._queue, target, work)
            finally:
                os.close(target)

    def _fork(self, queue: int, target: int, work: Work) -> None:
        """Start a helper. No signal interrupts parent or child before each knows what it is."""
        allowed = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with warnings.catch_warnings():
                # Python may warn where there are other threads (NumPy's, say): helpers need none.
                warnings.simplefilter("ignore")
                child = os.fork()
            if child == 0:
                _help(queue, target, [*self._pipes], work, allowed)
            self._children.append(child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)

    def stop(self) -> None:
        """End them."""
        for child in self._children:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
            with suppress(OSError):  # somebody else's handler may have asked first
                os.waitpid(child, 0)
        for pipe in (*self._pipes, *(() if self._queue is None else (self._queue,))):
            os.close(pipe)
        self._pipes.clear()
        self._children.clear()
        self._queue = None


@contextmanager
def helpers(work: Work, count: int, wanted: bool = True) -> Iterator[Helpers]:
    """The numbers below `count`, shared with helpers while the block runs: with none where they are
    not `wanted`, there are too few numbers, or one core, or somebody wants to see what is done."""
    found = Helpers(count)
    try:
        if wanted and _useful(count):
            with suppress(OSError):  # no memory, too many processes: then without
                found.start(work, min(worker_count() - 1, count // FEWEST))
        yield found
    finally:
        found.stop()


def _taken(queue: int) -> int | None:
    """The next number of a queue; reads of a pipe do not mix."""
    piece = os.read(queue, _NUMBER)
    return int.from_bytes(piece, "little") if piece else None


def _useful(count: int) -> bool:
    settings = config.get()
    return (
        FEWEST <= count <= _MOST
        and worker_count() > 1
        and not (settings.verify or settings.debug or profiling())
        and threading.active_count() == 1
        and sys.gettrace() is None
        and sys.getprofile() is None
    )


def _help(
    queue: int, target: int, answers: list[int], work: Work, allowed: set[signal.Signals | int]
) -> None:
    """What a helper does: it never returns, and leaves nothing of its parent's undone. It ends when
    nobody can read its answers any more. `answers` are the reading ends of all helpers' pipes,
    `allowed` the signals that the parent did not block."""
    code = 1
    try:
        gc.disable()  # which would touch, and so copy, all there is
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)  # the parent's handlers are about the parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
        for pipe in answers:
            os.close(pipe)
        while (taken := _taken(queue)) is not None:
            answer = work(taken)
            if answer is not None:
                text = marshal.dumps((taken, answer))
                data = len(text).to_bytes(_HEAD, "little") + text
                while data:
                    data = data[os.write(target, data) :]
        code = 0
    finally:
        os._exit(code)
