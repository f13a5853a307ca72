"""`jit`: functions that are run plainly until two calls agree, and replayed from then on."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, ParamSpec, TypeVar, overload
from weakref import WeakSet

from morok import config, engine
from morok._core import EDGE_KINDS, MISS, PLAIN, Capture, Dispatcher, Flat, configure
from morok.caches import CacheInfo, register
from morok.capture.check import checked
from morok.capture.merge import Merged, merge
from morok.capture.structure import flatten
from morok.capture.trace import Label, Trace, Tracer, place_of
from morok.dtype import DType
from morok.engine import base_of, buffers
from morok.errors import JitError
from morok.forking import held_at_fork
from morok.ir import Ops, UOp, laid_out, memory_under, room_of
from morok.tensor import (
    Tensor,
    fail,
    generator,
    is_grad_enabled,
    memory,
    nodes,
    tracing,
    versions,
)

P = ParamSpec("P")
R = TypeVar("R")

_KEYS = 32  # argument structures remembered by a function
_CAPTURES = 4  # recordings for one structure: other tensors in the closure, gradients set or not
_TRIES = 6  # calls that may differ in a row
_lock = held_at_fork(threading.Lock())
"""Held while the recordings of a function are looked up."""


configure(
    Tensor,
    buffers.buffer_of,
    int(Ops.RESHAPE),
    int(Ops.BUFFER),
    int(Ops.SHRINK),
    memory_under,
)


class _Site:
    """What is known of calls with one structure of arguments."""

    __slots__ = ("captures", "reason", "traces", "tries")

    def __init__(self) -> None:
        self.captures: list[tuple[Capture, list[UOp]]] = []  # with BUFFERs that must have memory
        self.traces: list[Trace] = []  # of late calls that no other agrees with yet
        self.tries = 0
        self.reason = ""


class Jit(Dispatcher):
    """A jitted function. Called as the function is; as a method it binds."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._sites: OrderedDict[Any, _Site] = OrderedDict()
        _living.add(self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {place_of(self.__wrapped__)}>"

    @property
    def captures(self) -> int:
        """How many recordings are kept."""
        return sum(len(site.captures) for site in self._sites.values())

    @property
    def replays(self) -> int:
        """How many calls replayed one of them."""
        return sum(capture.replays for site in self._sites.values() for capture, _ in site.captures)

    def clear(self) -> None:
        """Forget every recording."""
        self.latest = None
        self._sites.clear()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that the latest capture did not serve."""
        if engine.recording() is not None or tracing.tracing() is not None:
            return self.__wrapped__(*args, **kwargs)
        settings = config.get()
        flat = flatten(args, kwargs)
        mode = (
            is_grad_enabled(),
            settings.noopt,
            settings.beam,
            settings.default_float,
            settings.default_int,
        )
        key = (mode, *flat.key)
        with _lock:
            site = self._sites.get(key)
            if site is None:
                site = self._sites[key] = _Site()
                while len(self._sites) > _KEYS:
                    self._sites.popitem(last=False)
            self._sites.move_to_end(key)
        plain = False
        for capture, hidden in list(site.captures):
            if not all(map(buffers.has_memory, hidden)):
                continue
            capture.report = _reporter(capture) if engine.watched() else None
            if settings.jit_check:
                result = checked(capture, Tracer(self.__wrapped__, args, kwargs, flat))
            else:
                result = capture.replay(flat.tensors)
            if result is PLAIN:
                plain = True
                break
            if result is not MISS:
                if not hidden and not settings.jit_check and not engine.watched():
                    capture.settings = settings
                    capture.key = flat.key
                    self.latest = capture
                return result
        return self._record(args, kwargs, flat, site, plain)

    def _record(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flat: Flat,
        site: _Site,
        plain: bool,
    ) -> Any:
        if site.tries >= _TRIES and not plain:
            fail(
                JitError,
                f"{place_of(self.__wrapped__)} cannot be replayed after {site.tries} calls: "
                f"{site.reason}",
            )
        tracer = Tracer(self.__wrapped__, args, kwargs, flat)
        result, trace = tracer.run()
        if plain or trace is None or trace.lent:
            return result
        site.tries += 1
        if trace.reason:
            site.reason = trace.reason
            return result
        # The call before, and the one before in the same state. Calls in one state that agree only
        # now and then depend on something that is not seen.
        alike = [t for t in site.traces if t.state == trace.state]
        for before in (*site.traces[-1:], *(t for t in alike[-1:] if t is not site.traces[-1])):
            differs = trace.differs(before)
            if not differs:
                hidden = [c.node for c in trace.constants if c.node is not None]
                site.captures.append((capture_of(trace, before), hidden))
                del site.captures[:-_CAPTURES]
                site.traces, site.tries = [t for t in site.traces if t is not before], 0
                return result
            if before is site.traces[-1]:
                site.reason = differs
        site.traces = [*site.traces[-_CAPTURES:], trace]
        return result


def capture_of(trace: Trace, before: Trace) -> Capture:
    """What two agreeing calls make of the third."""
    merged = merge(trace)
    number = {label: i for i, label in enumerate(trace.entries)}
    needed = {*merged.views.values()}
    needed.update(what[1] for what in (*trace.results, *trace.grads.values()) if what[0] == "entry")
    entries = []
    for label in trace.entries:
        kind = ("argument", "closure", "gradient").index(label[0])
        index = number[label[1]] if kind == 2 else label[1]
        guard = 0
        if label in trace.gradients and trace.gradients[label] is before.gradients[label]:
            guard = 2 if trace.gradients[label] else 1
        slot, (dtype, shape, leaf) = merged.entries[label], trace.forms[label]
        still = kind == 2 and (slot >= 0 or label in needed)
        form = (dtype.id, shape)
        written = label in merged.written
        entries.append((kind, index, slot, written, guard, leaf, still, form))
    kept = [i for i in range(len(trace.made)) if i not in merged.views]
    output = {i: n for n, i in enumerate(kept)}
    grads = []
    for label, what in trace.grads.items():
        if what == "none":
            if trace.gradients[label] or before.gradients[label]:
                grads.append((number[label], -1))
        elif what != "same":
            where = output[what[1]] if what[0] == "made" else -2 - number[what[1]]
            grads.append((number[label], where))
    draws = sorted(merged.numbers, key=lambda place: place[1:])
    only = trace.results[0] if trace.single else ("entry", None)
    capture = Capture(
        merged.plan,
        n_given=merged.given,
        entries=entries,
        closure=trace.reached.tensors,
        edges=[
            (EDGE_KINDS[edge.kind], edge.holder, edge.key, edge.value)
            for edge in trace.reached.edges
        ],
        constants=merged.constants,
        parts=merged.parts,
        outputs=[(merged.made[i], trace.made[i].dtype, trace.made[i].shape) for i in kept],
        grads=grads,
        number_slots=[slot for slot, _, _ in draws],
        grad_mode=is_grad_enabled(),
        signature=tuple((dtype.id, *rest) for dtype, *rest in trace.signature),
        places=tuple(trace.places),
        plain_arguments=trace.plain_arguments,
        make=_fresh,
        prepare=_prepare,
        numbers=_Numbers(trace.numbers, [place[1:] for place in draws]),
        lock=versions.lock,
        rebuild=_Results(trace, merged, output, number),
        single=output[only[1]] if only[0] == "made" and only[1] in output else -1,
    )
    capture.details = merged
    return capture


def _fresh(dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """A new tensor, its memory not filled."""
    if 0 in shape:
        return Tensor._wrap(nodes.full(shape, dtype, 0))
    return Tensor._wrap(laid_out(buffers.new_buffer(dtype, room_of(shape)), shape))


def _prepare(waiting: list[Tensor], observed: list[Tensor]) -> None:
    """Realise tensors, and make the memory of others free to be overwritten."""
    memory.realize(waiting)
    versions.open_for_writing(t for t in observed if not versions.is_lent(t))


class _Numbers:
    """The random counters and keys of a replay, as plain execution would take them."""

    def __init__(self, events: list[tuple[str, int]], wanted: list[tuple[int, str]]) -> None:
        self.events, self.wanted = events, wanted

    def __call__(self) -> list[int]:
        draws = generator.take_all(self.events)
        return [draws[draw][part == "first"] for draw, part in self.wanted]


class _Results:
    """Puts the result of a replay together."""

    def __init__(
        self, trace: Trace, merged: Merged, output: dict[int, int], number: dict[Label, int]
    ) -> None:
        self.rebuild = trace.rebuild
        self.parts: list[tuple[int, int, tuple[int, ...] | None]] = []
        for kind, which in trace.results:
            if kind == "entry":
                self.parts.append((1, number[which], None))
            elif which in merged.views:
                self.parts.append((2, number[merged.views[which]], trace.made[which].shape))
            else:
                self.parts.append((0, output[which], None))

    def __call__(self, outputs: Sequence[Any], entries: Sequence[Any]) -> Any:
        given = []
        for kind, index, shape in self.parts:
            if kind == 0:
                given.append(outputs[index])
            elif shape is None:
                given.append(entries[index])
            else:
                view = memory.memory_of(entries[index])
                assert view is not None, "what a replay used is in memory"
                given.append(Tensor._wrap(laid_out(base_of(view), shape)))
        return self.rebuild(given)


def _reporter(capture: Capture) -> Callable[[int, tuple[int, ...]], None]:
    """Tells whoever watches kernels of a replay."""
    merged: Merged = capture.details

    def report(began: int, durations: tuple[int, ...]) -> None:
        planned = merged.planned
        own = [ns for ns, row in zip(durations, planned.rows, strict=True) if row.name != "copy"]
        engine.report_schedule(planned)
        engine.report_kernels(planned, began, own, sum(durations))

    return report


@overload
def jit(function: Callable[P, R]) -> Callable[P, R]: ...
@overload
def jit(function: None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def jit(function: Callable[..., Any] | None = None) -> Any:
    """The function `function`, replayed as one plan from its third call on.

    The first calls run plainly and are recorded, once for each structure of arguments, shape,
    dtype and Python value in them. When two recordings agree, later calls bind their tensors and
    run the recorded kernels without Python. Tensors in arguments and in the closure, writes to
    them, gradients and random numbers are what plain execution would make of them, bit for bit.
    Results are constants to gradients: call `backward` inside. Python values outside of the
    arguments are those of the recording; `MOROK_JIT_CHECK=1` finds functions that depend on one.

    JitError where no replay could do the same: a value is read inside, another tensor is put in a
    tensor's place instead of written into it, or calls keep differing.
    """
    return jit if function is None else Jit(function)


_living: WeakSet[Jit] = WeakSet()


def _clear_all() -> None:
    for each in list(_living):
        each.clear()


def _info() -> CacheInfo:
    every = [*_living]
    return CacheInfo(sum(each.captures for each in every), _KEYS * _CAPTURES * len(every))


register("recordings", _info, _clear_all)
