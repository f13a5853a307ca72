"""Actions on the ranges of a kernel (stage 7).

An `Opt` names an action, an axis by its number, and an amount. Applying one is a function from
graph to graph; what the action does to values is nothing, what it does to sums is reassociation.
An action that does not apply raises `OptError` with the reason and leaves the kernel as it was.

action    effect, before -> after                                        axis
UPCAST    R(a, n*m) -> R(a, n)*m + R(new, m, UPCAST)                     LOOP or REDUCE
UNROLL    R(a, n*m) -> R(a, n)*m + R(new, m, UNROLL)                     LOOP or REDUCE
SPLIT     R(a, n*m) -> R(a, n)*m + R(a+1, m), axes above a move up       LOOP or REDUCE
SWAP      R(a, …), R(b, …) -> R(b, …), R(a, …)                           two of one type
ORDER     R(a, …), R(b, …), R(c, …) -> the same, numbered anew              several of one type
MERGE     R(a, n), R(b, m) -> R(b, n*m) // m, R(b, n*m) % m              two of the output
TAIL      R(a, n*m+k) -> R(a, n*m), and R(a+1, k) + n*m beside it        output or REDUCE
THREAD    R(a, n, LOOP) -> R(a, n, THREAD)                               outermost output
GROUP     R(a, n*m) -> R(a, n)*m + R(new, m, GROUP_REDUCE)               REDUCE
GROUPTOP  R(a, m*n) -> R(a, m, GROUP_REDUCE)*n + R(a+1, n)               REDUCE
NEST      REDUCE(x(r), r) -> REDUCE(REDUCE(x(r*m + new), new), r)        REDUCE
TC        REDUCE(x(r) * y(r), r) -> REDUCE(WMMA(<x(r*m), …>, <y(r*m), …>, 0), r)  REDUCE
INPLACE   INDEX(BUFFERIZE(x, f), j) -> INDEX(AFTER(PARAM, STORE(PARAM[f], x, f)), j)  of a fill
PADTO     R(a, n) -> R(a, n rounded up to a multiple of m), gated R < n  output or REDUCE
LOCAL     INDEX(PARAM(slot), f(a, b)) ->                                 any loops
          INDEX(BUFFERIZE(INDEX(PARAM(slot), f(new, new+1)), new, new+1), a, b)
ACCUMULATE REDUCE(x(r, a, b), r) ->                                      REDUCE
          INDEX(BUFFERIZE(REDUCE(x(new, new+1, new+2), new), new+1, new+2), a, b)
WINDOW    INDEX(PARAM(slot), f(a*s + b)) ->                              any loops
          INDEX(BUFFERIZE(INDEX(PARAM(slot), f(new)), new), a*s + b)

An UPCAST or UNROLL range takes the number above all in use, as it never becomes a loop.
PADTO reads and writes nothing beyond the end; a REDUCE takes the identity there.
ORDER(b, c, a) deals the numbers of the named axes out again: the first one named is the outermost.
TAIL repeats the STORE for the last k iterations, or adds the REDUCE over them to the first one.
LOCAL(a, slot, b, …) copies what one read of a buffer sees along the named axes to memory near the
core; it is filled in the innermost of the read's other loops, its layout is the order of the names.
Zeros around what is read, WHERE(inside, INDEX, 0), are copied too.
ACCUMULATE(r, a, b, …) keeps the sums for all iterations of the named axes in a buffer of that
layout, so that the reduction is the outer loop.
STREAM(a) makes stores along the axis a bypass the caches.
WINDOW(a, slot, n, b, …) copies likewise, but once what overlapping windows see more than once, in
rows of n elements or more.
GROUP and GROUPTOP keep partial sums in a local buffer; NOLOCALS() refuses later local buffers.
INPLACE(f) has the output hold what a local buffer does, until the output itself is written.
TC(r, m) has one instruction of the target multiply and add m terms, where there is such a one.
THREAD comes last: the iterations of its axis are shared out to threads.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from morok.errors import OptError
from morok.ir import KernelInfo, Ops, UOp, register_record
from morok.optimizer.accumulate import accumulate
from morok.optimizer.actions import merge, order, split, swap, tail, unroll, upcast
from morok.optimizer.groups import group, group_top, no_locals
from morok.optimizer.inplace import inplace
from morok.optimizer.legality import MAX_INSTANCES, axis_number, ranges_of
from morok.optimizer.local import MAX_LOCAL_BYTES, local
from morok.optimizer.nesting import nest
from morok.optimizer.padding import padto
from morok.optimizer.streaming import stream
from morok.optimizer.tensor_core import tensor_core
from morok.optimizer.threads import thread
from morok.optimizer.windows import window

__all__ = ["MAX_INSTANCES", "MAX_LOCAL_BYTES", "Opt", "OptOps", "apply_opt", "parse_opts", "replay"]


class OptOps(enum.Enum):
    """The actions."""

    UPCAST = "UPCAST"
    UNROLL = "UNROLL"
    SPLIT = "SPLIT"
    SWAP = "SWAP"
    ORDER = "ORDER"
    MERGE = "MERGE"
    TAIL = "TAIL"
    PADTO = "PADTO"
    LOCAL = "LOCAL"
    NEST = "NEST"
    ACCUMULATE = "ACCUMULATE"
    STREAM = "STREAM"
    WINDOW = "WINDOW"
    INPLACE = "INPLACE"
    TC = "TC"
    THREAD = "THREAD"
    GROUP = "GROUP"
    GROUPTOP = "GROUPTOP"
    NOLOCALS = "NOLOCALS"

    def __str__(self) -> str:
        return self.name


@register_record
@dataclass(frozen=True, slots=True)
class Opt:
    """One action: prints and parses as `UPCAST(1, 8)`. `arg` is the amount, SWAP's or MERGE's
    other axis, ORDER's others, LOCAL's slot followed by its other axes, WINDOW's by a length and
    these, ACCUMULATE's layout, or () where an action takes an axis only.
    """

    op: OptOps
    axis: int = 0
    arg: int | tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything in the brackets."""
        if _ACTIONS[self.op].numbers == 0:
            return ()
        return (self.axis, *self.arg) if isinstance(self.arg, tuple) else (self.axis, self.arg)

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.numbers))})"


_OPT = re.compile(r"([A-Z]+)\(\s*((?:\d+(?:\s*,\s*\d+)*)?)\s*\)")


def parse_opts(text: str) -> tuple[Opt, ...]:
    """The inverse of printing: actions separated by semicolons or newlines.

    OptError names the part that is no action.
    """
    opts = []
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        match = _OPT.fullmatch(part)
        op = None if match is None else OptOps.__members__.get(match[1])
        if op is None or match is None:
            known = ", ".join(OptOps.__members__)
            raise OptError(f"{part!r} is no action: expected NAME(axis, amount), NAME of {known}")
        numbers = tuple(map(int, match[2].split(","))) if match[2] else ()
        _check_count(op, len(numbers), part)
        arg = numbers[1] if _ACTIONS[op].numbers == 2 else numbers[1:]
        opts.append(Opt(op, numbers[0] if numbers else 0, arg))
    return tuple(opts)


def _check_count(op: OptOps, given: int, text: str) -> None:
    wanted = _ACTIONS[op].numbers
    if given != wanted and (wanted is not None or given < 2):
        expected = "an axis and more" if wanted is None else f"{wanted} in the brackets"
        raise OptError(f"{text!r} is no action: {op} takes {expected}, got {given}")


def replay(sink: UOp, opts: Iterable[Opt]) -> UOp:
    """`sink` with the actions applied in order, recorded in its KernelInfo."""
    for opt in opts:
        sink = apply_opt(sink, opt)
    return sink


def apply_opt(sink: UOp, opt: Opt) -> UOp:
    """`sink` with one action applied and recorded. OptError when it does not apply."""
    try:
        _check_count(opt.op, len(opt.numbers), str(opt))
        changed = _ACTIONS[opt.op].apply(sink, *opt.numbers)
    except OptError as error:
        raise OptError(error.message, opt=opt) from None
    return _recorded(changed, opt)


def _recorded(sink: UOp, opt: Opt) -> UOp:
    info = sink.arg if isinstance(sink.arg, KernelInfo) else KernelInfo()
    ranges = sorted(ranges_of(sink), key=axis_number)
    info = replace(
        info,
        axis_types=tuple(rng.arg[1] for rng in ranges),
        applied_opts=(*info.applied_opts, opt),
    )
    return UOp(Ops.SINK, sink.dtype, sink.src, info)


class _Action(NamedTuple):
    apply: Callable[..., UOp]  # of the SINK and the numbers in the brackets
    numbers: int | None = 2  # how many there are; None: any, but more than one


_ACTIONS = {
    OptOps.UPCAST: _Action(upcast),
    OptOps.UNROLL: _Action(unroll),
    OptOps.SPLIT: _Action(split),
    OptOps.SWAP: _Action(swap),
    OptOps.ORDER: _Action(order, None),
    OptOps.MERGE: _Action(merge),
    OptOps.TAIL: _Action(tail),
    OptOps.PADTO: _Action(padto),
    OptOps.LOCAL: _Action(local, None),
    OptOps.NEST: _Action(nest),
    OptOps.INPLACE: _Action(inplace, 1),
    OptOps.TC: _Action(tensor_core),
    OptOps.ACCUMULATE: _Action(accumulate, None),
    OptOps.STREAM: _Action(stream, 1),
    OptOps.WINDOW: _Action(window, None),
    OptOps.THREAD: _Action(thread, 1),
    OptOps.GROUP: _Action(group),
    OptOps.GROUPTOP: _Action(group_top),
    OptOps.NOLOCALS: _Action(no_locals, 0),
}
