"""Actions on the ranges of a kernel (stage 7).

An `Opt` names an action, an axis by its number, and an amount. Applying one is a function from
graph to graph; what the action does to values is nothing, what it does to sums is reassociation.
An action that does not apply raises `OptError` with the reason and leaves the kernel as it was.

action    effect, before -> after                                        axis
UPCAST    R(a, n*m) -> R(a, n)*m + R(new, m, UPCAST)                     LOOP or REDUCE
UNROLL    R(a, n*m) -> R(a, n)*m + R(new, m, UNROLL)                     LOOP or REDUCE
SPLIT     R(a, n*m) -> R(a, n)*m + R(a+1, m), axes above a move up       LOOP or REDUCE
SWAP      R(a, …), R(b, …) -> R(b, …), R(a, …)                           two of one type
MERGE     R(a, n), R(b, m) -> R(b, n*m) // m, R(b, n*m) % m              two of the output
TAIL      R(a, n*m+k) -> R(a, n*m), and R(a+1, k) + n*m beside it        output or REDUCE
LOCAL     INDEX(PARAM(slot), f(a, b)) ->                                 any loops
          INDEX(BUFFERIZE(INDEX(PARAM(slot), f(new, new+1)), new, new+1), a, b)

An UPCAST or UNROLL range takes the number above all in use, as it never becomes a loop.
TAIL repeats the STORE for the last k iterations, or adds the REDUCE over them to the first one.
LOCAL(a, slot, b, …) copies what one read of a buffer sees along the named axes to memory near the
core; it is filled in the innermost of the read's other loops, its layout is the order of the names.
Zeros around what is read, WHERE(inside, INDEX, 0), are copied too.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from morok._core import consumers, toposort
from morok.errors import OptError
from morok.ir import AddrSpace, AxisType, BufferizeOpts, KernelInfo, Ops, UOp, register_record
from morok.optimizer.ranges import (
    has_known_end,
    make_range,
    merge_ranges,
    moved_range,
    next_number,
    range_end,
    reads_of,
    rename_ranges,
    substitute_open,
)

__all__ = ["MAX_INSTANCES", "MAX_LOCAL_BYTES", "Opt", "OptOps", "apply_opt", "parse_opts", "replay"]

MAX_INSTANCES = 512
"""Most copies of one statement that UPCAST and UNROLL together may ask for, lanes included."""


MAX_LOCAL_BYTES = 1 << 22
"""Largest copy that LOCAL makes: it is read in order, so that it may come from the third cache."""


class OptOps(enum.Enum):
    """The actions."""

    UPCAST = "UPCAST"
    UNROLL = "UNROLL"
    SPLIT = "SPLIT"
    SWAP = "SWAP"
    MERGE = "MERGE"
    TAIL = "TAIL"
    LOCAL = "LOCAL"

    def __str__(self) -> str:
        return self.name


@register_record
@dataclass(frozen=True, slots=True)
class Opt:
    """One action: prints and parses as `UPCAST(1, 8)`. `arg` is the amount, SWAP's or MERGE's
    other axis, or LOCAL's slot followed by its other axes."""

    op: OptOps
    axis: int
    arg: int | tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Everything in the brackets."""
        return (self.axis, *self.arg) if isinstance(self.arg, tuple) else (self.axis, self.arg)

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.numbers))})"


_OPT = re.compile(r"([A-Z]+)\(\s*(\d+)((?:\s*,\s*\d+)+)\s*\)")


def parse_opts(text: str) -> tuple[Opt, ...]:
    """The inverse of printing: actions separated by semicolons or newlines.

    OptError names the part that is no action.
    """
    opts = []
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        match = _OPT.fullmatch(part)
        op = None if match is None else OptOps.__members__.get(match[1])
        numbers = () if match is None else tuple(map(int, match[3].split(",")[1:]))
        if op is None or match is None or (len(numbers) > 1 and op is not OptOps.LOCAL):
            known = ", ".join(OptOps.__members__)
            raise OptError(f"{part!r} is no action: expected NAME(axis, amount), NAME of {known}")
        opts.append(Opt(op, int(match[2]), numbers if op is OptOps.LOCAL else numbers[0]))
    return tuple(opts)


def replay(sink: UOp, opts: Iterable[Opt]) -> UOp:
    """`sink` with the actions applied in order, recorded in its KernelInfo."""
    for opt in opts:
        sink = apply_opt(sink, opt)
    return sink


def apply_opt(sink: UOp, opt: Opt) -> UOp:
    """`sink` with one action applied and recorded. OptError when it does not apply."""
    try:
        changed = _apply(sink, opt)
    except OptError as error:
        raise OptError(error.message, opt=opt) from None
    return _recorded(changed, sink, opt)


def _recorded(sink: UOp, before: UOp, opt: Opt) -> UOp:
    info = before.arg if isinstance(before.arg, KernelInfo) else KernelInfo()
    ranges = sorted(_ranges(sink), key=_number)
    info = replace(
        info,
        axis_types=tuple(rng.arg[1] for rng in ranges),
        applied_opts=(*info.applied_opts, opt),
    )
    return UOp(Ops.SINK, sink.dtype, sink.src, info)


# ---- legality ------------------------------------------------------------------------------------

_LOOPS = (AxisType.LOOP, AxisType.REDUCE)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise OptError(reason)


def _number(rng: UOp) -> int:
    return int(rng.arg[0].number)


def _ranges(sink: UOp) -> list[UOp]:
    return [node for node in toposort(sink) if node.op is Ops.RANGE]


def _axis(sink: UOp, number: int) -> UOp:
    """The loop with this axis number."""
    found = [rng for rng in _ranges(sink) if _number(rng) == number]
    _require(bool(found), f"the kernel has no axis {number}")
    _require(len(found) == 1, f"{len(found)} ranges share the axis number {number}")
    rng = found[0]
    _require(rng.arg[1] in _LOOPS, f"axis {number} is {rng.arg[1]}, not a loop")
    _require(has_known_end(rng), f"the end of axis {number} is symbolic")
    return rng


def _binders(sink: UOp, rng: UOp) -> list[UOp]:
    return [node for node in toposort(sink) if rng in node.ended_ranges]


def _check_independent(sink: UOp, rng: UOp) -> None:
    """The iterations of `rng` may run side by side: no buffer is filled inside the loop."""
    for node in toposort(sink):
        if node.op in (Ops.BUFFERIZE, Ops.AFTER) and rng in node.open_ranges:
            what = "a local buffer" if node.op is Ops.BUFFERIZE else "an ordered write"
            raise OptError(f"{what} is filled inside axis {_number(rng)}")


def _check_divides(rng: UOp, amount: int) -> None:
    end = range_end(rng)
    _require(amount >= 2, f"an amount of {amount} changes nothing")
    _require(end % amount == 0, f"{amount} does not divide the {end} iterations")


def _check_instances(sink: UOp, rng: UOp, amount: int) -> None:
    for binder in _binders(sink, rng):
        copies = [
            range_end(other)
            for other in binder.ended_ranges
            if other.op is Ops.RANGE and other.arg[1] in (AxisType.UPCAST, AxisType.UNROLL)
        ]
        total = amount * math.prod(copies)
        _require(total <= MAX_INSTANCES, f"{total} copies of a statement, {MAX_INSTANCES} allowed")


# ---- actions -------------------------------------------------------------------------------------


def _widen(sink: UOp, axis: int, amount: int, axis_type: AxisType) -> UOp:
    rng = _axis(sink, axis)
    _check_divides(rng, amount)
    _check_independent(sink, rng)
    _check_instances(sink, rng, amount)
    inner = make_range(amount, next_number(sink), axis_type)
    outer = range_end(rng) // amount
    parts = (inner,) if outer == 1 else (make_range(outer, axis, rng.arg[1]), inner)
    return rename_ranges(sink, {rng: parts})


def _upcast(sink: UOp, axis: int, amount: int) -> UOp:
    return _widen(sink, axis, amount, AxisType.UPCAST)


def _unroll(sink: UOp, axis: int, amount: int) -> UOp:
    return _widen(sink, axis, amount, AxisType.UNROLL)


def _split(sink: UOp, axis: int, amount: int) -> UOp:
    rng = _axis(sink, axis)
    _check_divides(rng, amount)
    _require(amount < range_end(rng), "a split needs two parts")
    sink, rng = _make_room(sink, rng)
    outer = make_range(range_end(rng) // amount, axis, rng.arg[1])
    inner = make_range(amount, axis + 1, rng.arg[1])
    return rename_ranges(sink, {rng: (outer, inner)})


def _make_room(sink: UOp, rng: UOp) -> tuple[UOp, UOp]:
    """Axis numbers above that of `rng` move up by one; `rng` itself is unchanged."""
    above = [other for other in _ranges(sink) if _number(other) > _number(rng)]
    moved = {other: (moved_range(other, _number(other) + 1),) for other in above}
    return (rename_ranges(sink, moved) if moved else sink), rng


def _swap(sink: UOp, axis: int, other_axis: int) -> UOp:
    first, second = _axis(sink, axis), _axis(sink, other_axis)
    _require(first is not second, "an axis is swapped with another one")
    _require(first.arg[1] is second.arg[1], f"axes {axis} and {other_axis} differ in type")
    _require(
        _binders(sink, first) == _binders(sink, second),
        f"axes {axis} and {other_axis} are not loops of the same statements",
    )
    _check_independent(sink, first)
    _check_independent(sink, second)
    return rename_ranges(
        sink,
        {
            first: (moved_range(first, other_axis),),
            second: (moved_range(second, axis),),
        },
    )


def _merge(sink: UOp, axis: int, other_axis: int) -> UOp:
    outer, inner = _axis(sink, axis), _axis(sink, other_axis)
    binders = _binders(sink, outer)
    _require(
        outer is not inner and binders == _binders(sink, inner),
        f"axes {axis} and {other_axis} are not loops of the same statements",
    )
    _require(
        all(node.op is Ops.STORE for node in binders) and outer.arg[1] is inner.arg[1],
        f"axes {axis} and {other_axis} are not loops of the output",
    )
    _check_independent(sink, outer)
    _check_independent(sink, inner)
    return merge_ranges(sink, outer, inner)


def _tail(sink: UOp, axis: int, amount: int) -> UOp:
    rng = _axis(sink, axis)
    end = range_end(rng)
    _require(2 <= amount < end, f"{amount} is no part of {end} iterations")
    _require(end % amount != 0, f"{amount} divides the {end} iterations: nothing is left over")
    _check_independent(sink, rng)
    binders = _binders(sink, rng)
    output = all(node in sink.src and node.op is Ops.STORE for node in binders)
    _require(
        output or all(node.op is Ops.REDUCE for node in binders),
        f"axis {axis} fills a local buffer",
    )
    sink, rng = _make_room(sink, rng)
    rest = make_range(end % amount, axis + 1, rng.arg[1])
    main = make_range(end - end % amount, axis, rng.arg[1])
    shifted = UOp.const(rng.dtype, end - end % amount)
    if end % amount == 1:
        return _tailed(sink, rng, main, shifted, ())
    return _tailed(sink, rng, main, rest + shifted, (rest,))


def _tailed(sink: UOp, rng: UOp, main: UOp, shifted: UOp, last: tuple[UOp, ...]) -> UOp:
    """Every binder of `rng` becomes one over `main` and one, at `shifted`, over `last`."""
    new: dict[UOp, UOp] = {}
    for node in toposort(sink):
        src: list[UOp] = []
        for source in node.src:
            copy = new[source]
            src += copy.src if source.op is Ops.STORE and copy.op is Ops.GROUP else (copy,)
        copied = UOp(node.op, node.dtype, tuple(src), node.arg)
        if rng in node.ended_ranges:
            copied = _two_parts(copied, rng, main, shifted, last)
        new[node] = copied
    return new[sink]


def _two_parts(node: UOp, rng: UOp, main: UOp, shifted: UOp, last: tuple[UOp, ...]) -> UOp:
    ended = node.ended_ranges
    values = node.src[: len(node.src) - len(ended)]
    parts = []
    for counter, pieces in ((main, (main,)), (shifted, last)):
        ranges: list[UOp] = []
        for other in ended:
            ranges += pieces if other is rng else (other,)
        body = substitute_open(values, {rng: counter})
        if node.op is Ops.REDUCE and not ranges:
            parts += body
        else:
            parts.append(UOp(node.op, node.dtype, (*body, *ranges), node.arg))
    if node.op is Ops.STORE:
        return UOp.group(*parts)
    first, second = parts
    return UOp(node.arg.alu, node.dtype, (first, second))


def _local(sink: UOp, axis: int, slot: int, more: tuple[int, ...]) -> UOp:
    named = [_axis(sink, number) for number in (axis, *more)]
    _require(len(set(named)) == len(named), "an axis is named twice")
    written = [node.src[0].src[0] for node in toposort(sink) if node.op is Ops.STORE]
    _require(
        not any(_is_slot(buffer, slot) for buffer in written),
        f"the kernel writes the buffer in slot {slot}",
    )
    reads = [
        read
        for read in reads_of([sink])
        if _is_slot(read.src[0], slot) and all(rng in read.open_ranges for rng in named)
    ]
    _require(len(reads) == 1, f"{len(reads)} reads of slot {slot} depend on all these axes")
    read = reads[0]
    _require(
        all(rng.arg[1] in _LOOPS for rng in read.open_ranges),
        "the read depends on an axis that is no loop any more",
    )
    size = math.prod(map(range_end, named))
    _require(
        size * read.dtype.itemsize <= MAX_LOCAL_BYTES,
        f"{size} elements of {read.dtype} are more than {MAX_LOCAL_BYTES} bytes",
    )
    copied = _padded_read(sink, read)
    number = next_number(sink)
    fills = [moved_range(rng, number + i, AxisType.LOOP) for i, rng in enumerate(named)]
    copy = substitute_open([copied], dict(zip(named, fills, strict=True)))[0]
    buffer = copy.bufferize(*fills, opts=BufferizeOpts(addrspace=AddrSpace.LOCAL))
    return sink.substitute({copied: buffer.at(*named)})


def _padded_read(sink: UOp, read: UOp) -> UOp:
    """WHERE(inside, read, 0) if that is all the read is for and depends on no other axes: the copy
    holds the zeros too, and whoever reads it asks nothing. Else the read."""
    users = consumers(sink)[read]
    if len(users) != 1 or users[0].op is not Ops.WHERE:
        return read
    padded: UOp = users[0]
    inside, value, outside = padded.src
    if value is not read or outside.op is not Ops.CONST or read in toposort(inside):
        return read
    same = set(padded.open_ranges) == set(read.open_ranges)
    whole = same and outside.arg == 0 and not reads_of([inside])
    return padded if whole else read


def _is_slot(buffer: UOp, slot: int) -> bool:
    return buffer.op is Ops.PARAM and buffer.arg[0] == slot


def _apply(sink: UOp, opt: Opt) -> UOp:
    if isinstance(opt.arg, tuple):
        return _local(sink, opt.axis, opt.arg[0], opt.arg[1:])
    return _ACTIONS[opt.op](sink, opt.axis, opt.arg)


_ACTIONS = {
    OptOps.UPCAST: _upcast,
    OptOps.UNROLL: _unroll,
    OptOps.SPLIT: _split,
    OptOps.SWAP: _swap,
    OptOps.MERGE: _merge,
    OptOps.TAIL: _tail,
}
