"""Values that stand on several devices: what can be computed shard by shard is.

    MULTI(MSTACK(a, b), axis)       one value, its shards along `axis` (None: each is all of it)

    f(MULTI(MSTACK(a, b)), x)       MULTI(MSTACK(f(a, x's part), f(b, x's part)))
    movement op of a MULTI          of its shards, where each result's shard needs just its own
    REDUCE_AXIS of another axis     of the shards
    REDUCE_AXIS of the axis         ALLREDUCE of the shards' partial results, on every device
    write to a MULTI                writes to its shards
    ALLREDUCE(MSTACK(a, b), d)      COPY(a, d) + COPY(b, d), or what the reduction's step is
    COPY(MULTI(MSTACK(a, b)), d)    COPY(a, d) and COPY(b, d) put together
    COPY(a, d), a on d              a
    MSELECT(MSTACK(a, b), 1)        b

Movement and arithmetic that no shard can do by itself have the MULTI put together on the first
shard's device. Element reads and other ops take none: COPY it to a device first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold
from math import prod
from typing import Final

from morok.dtype import dtypes
from morok.ir import GroupOp, Level, Ops, Pat, RuleSet, UOp, check_stage, graph_rewrite, verify

__all__ = ["MULTI_OPS", "multi", "on_one_device"]

MULTI_OPS: Final = frozenset({Ops.MULTI, Ops.MSTACK, Ops.MSELECT, Ops.ALLREDUCE})

multi = RuleSet("multi")
"""The rules of the table above."""


def on_one_device(sink: UOp) -> UOp:
    """A graph in which every value stands on one device.

    Before: values may be MULTIs. After: no MULTI, MSTACK, MSELECT or ALLREDUCE; a root that was a
    MULTI is put together; COPYs are between devices. A graph without such ops stays as it is.
    """
    if not any(sink.has(op) for op in (*MULTI_OPS, Ops.COPY)):
        return sink
    done = graph_rewrite(sink, multi, name="multi")
    roots = tuple(_together(root) if root.op is Ops.MULTI else root for root in done.src)
    done = graph_rewrite(done.replace(src=roots), multi, name="multi")
    if any(done.has(op) for op in MULTI_OPS):  # an op that takes none, as the table has it
        return verify(done, Level.TENSOR, stage="multi", absent=MULTI_OPS)
    return check_stage(done, Level.TENSOR, "multi")


def _device(value: UOp) -> UOp:
    """The DEVICE of a value; constants are wherever they are used."""
    found: UOp | None = value.device if value.op is not Ops.DEVICE else value
    return UOp.new_device() if found is None else found


def _shards(value: UOp) -> tuple[UOp, ...]:
    """The shards of a MULTI."""
    stack: UOp = value.src[0]
    return stack.src


def _together(value: UOp) -> UOp:
    """A MULTI as one value, on the device of its first shard."""
    return value.copy_to(_device(_shards(value)[0]))


def _gathered(node: UOp) -> UOp:
    """`node` with every MULTI that it needs put together."""
    return node.replace(src=tuple(_together(s) if s.op is Ops.MULTI else s for s in node.src))


def _sharded(shards: list[UOp], axis: int | None) -> UOp:
    return UOp.mstack(*shards).multi(axis)


def _dims(value: UOp) -> tuple[int, ...]:
    return value.shape or ()


# One of several -----------------------------------------------------------------------------------


@multi.opaque(Pat(Ops.MSELECT, (Pat((Ops.MSTACK, Ops.MULTI), name="of"),), name="select"))
def select_of_stack(of: UOp, select: UOp) -> UOp:
    """MSELECT(MSTACK(a, b), 1) -> b, of a MULTI as of its MSTACK"""
    chosen: UOp = (of.src[0] if of.op is Ops.MULTI else of).src[select.arg]
    return chosen


@multi.opaque(Pat(Ops.COPY, (Pat(name="value"), Pat(Ops.DEVICE, name="device"))))
def copy_to_its_own_device(value: UOp, device: UOp) -> UOp | None:
    """COPY(a, d) -> a, where a is on d or is the same everywhere: computed of constants"""
    if value.op is Ops.MULTI:
        return None
    everywhere = value.device is None and not value.has(Ops.PARAM)
    return value if everywhere or value.device is device else None


# Reductions across devices ------------------------------------------------------------------------


@multi.opaque(Pat(Ops.ALLREDUCE, (Pat(name="value"), Pat(Ops.DEVICE, name="device")), name="node"))
def allreduce_as_steps(value: UOp, device: UOp, node: UOp) -> UOp:
    """ALLREDUCE(MSTACK(a, b), d) -> COPY(a, d) + COPY(b, d); a single value is copied"""
    parts = value.src if value.op is Ops.MSTACK else (value,)
    total: UOp = fold(node.arg.step, [part.copy_to(device) for part in parts])
    return total


@multi.opaque(Pat(Ops.REDUCE_AXIS, (Pat(Ops.MULTI, name="value"),), name="node"))
def reduction_of_shards(value: UOp, node: UOp) -> UOp:
    """REDUCE_AXIS of a MULTI -> of its shards; across the shards' axis, of their results too"""
    reduce_op, axes = node.arg
    parts = [shard.reduce_axis(reduce_op, axes) for shard in _shards(value)]
    if value.arg is None or value.arg not in axes:
        axis = None if value.arg is None else value.arg - sum(a < value.arg for a in axes)
        return _sharded(parts, axis)
    stack = UOp.mstack(*parts)
    return _sharded([stack.allreduce(reduce_op, _device(part)) for part in parts], None)


# Putting together ---------------------------------------------------------------------------------


@multi.opaque(Pat(Ops.COPY, (Pat(Ops.MULTI, name="value"), Pat(Ops.DEVICE, name="device"))))
def copy_of_shards(value: UOp, device: UOp) -> UOp:
    """COPY(MULTI(MSTACK(a, b), axis), d): a and b on d, each in its place; one if replicated"""
    shards, axis = _shards(value), value.arg
    if axis is None:
        return shards[0].copy_to(device)
    whole = UOp.const(value.dtype, 0).reshape((1,) * len(_dims(value))).expand(_dims(value))
    for number, shard in enumerate(shards):
        begin, end = _around(_dims(shard), axis, number, len(shards))
        here = UOp.const(dtypes.bool_, True).reshape((1,) * len(begin)).expand(_dims(shard))
        placed = shard.copy_to(device).pad(begin, end)
        whole = here.pad(begin, end).where(placed, whole)
    return whole


def _around(
    shape: tuple[int, ...], axis: int, number: int, count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The pads that put shard `number` of `count`, of this shape, into its place."""
    size = shape[axis]
    begin = tuple(number * size if i == axis else 0 for i in range(len(shape)))
    end = tuple((count - 1 - number) * size if i == axis else 0 for i in range(len(shape)))
    return begin, end


# Shard by shard -----------------------------------------------------------------------------------

_ELEMENTWISE: Final = GroupOp.Elementwise | GroupOp.Identity


def _part(value: UOp, like: UOp, axis: int | None, number: int) -> UOp:
    """What shard `number` of a MULTI `like` needs of another operand, on its own device."""
    device = _device(_shards(like)[number])
    if value.op is Ops.MULTI:
        shard = _shards(value)[number]
        if value.arg == axis or axis is None:
            return shard
        value = shard
    if axis is not None and _dims(value):
        dims, size = _dims(value), _dims(value)[axis] // len(_shards(like))
        begins, ends = [0] * len(dims), list(dims)
        begins[axis], ends[axis] = number * size, (number + 1) * size
        value = value.shrink(begins, ends)
    return value.copy_to(device)


@multi.opaque(Pat(_ELEMENTWISE, name="node"))
def elementwise_of_shards(node: UOp) -> UOp | None:
    """f(MULTI(MSTACK(a, b)), x) -> MULTI(MSTACK(f(a, part of x), f(b, part of x)))"""
    values = [source for source in node.src if source.op is Ops.MULTI]
    if not values:
        return None
    like = next((value for value in values if value.arg is not None), values[0])
    count = len(_shards(like))
    if any(v.arg not in (like.arg, None) or len(_shards(v)) != count for v in values):
        return _gathered(node)
    return _sharded(
        [
            node.replace(src=tuple(_part(s, like, like.arg, number) for s in node.src))
            for number in range(count)
        ],
        like.arg,
    )


@multi.opaque(
    Pat(
        Ops.AFTER,
        (
            Pat(Ops.MULTI, name="memory"),
            Pat(Ops.STORE, (Pat(name="memory"), Pat(name="value")), name="write"),
        ),
    )
)
def write_of_shards(memory: UOp, value: UOp, write: UOp) -> UOp:
    """AFTER(MULTI m, STORE(m, v)) -> MULTI of AFTER(m's shard, STORE(m's shard, part of v))"""
    if value.op is Ops.MULTI and value.arg not in (memory.arg, None):
        value = _together(value)
    done = []
    for number, shard in enumerate(_shards(memory)):
        part = _part(value, memory, memory.arg, number)
        done.append(shard.after(write.replace(src=(shard, part))))
    return _sharded(done, memory.arg)


# Movement -----------------------------------------------------------------------------------------


@multi.opaque(Pat(GroupOp.Movement, (Pat(Ops.MULTI, name="value"),), rest=True, name="node"))
def movement_of_shards(value: UOp, node: UOp) -> UOp:
    """PERMUTE, RESHAPE, … of a MULTI -> of its shards; else of all of it, put together"""
    if value.arg is None:
        moved = [node.replace(src=(shard, *node.src[1:])) for shard in _shards(value)]
        return _sharded(moved, None)
    done = _MOVES[node.op](value, node)
    return _gathered(node) if done is None else done


def _permuted(value: UOp, node: UOp) -> UOp | None:
    shards = [shard.permute(node.arg) for shard in _shards(value)]
    return _sharded(shards, node.arg.index(value.arg))


def _flipped(value: UOp, node: UOp) -> UOp | None:
    if node.arg[value.arg]:
        return None
    return _sharded([shard.flip(node.arg) for shard in _shards(value)], value.arg)


def _reshaped(value: UOp, node: UOp) -> UOp | None:
    """The shards' axis must stay one that begins where it began, and that they divide evenly."""
    count, new = len(_shards(value)), _dims(node)
    before = prod(_dims(value)[: value.arg])
    for axis, size in enumerate(new):
        if prod(new[:axis]) == before and size % count == 0:
            shape = _divided(new, axis, count)
            return _sharded([shard.reshape(shape) for shard in _shards(value)], axis)
    return None


def _expanded(value: UOp, node: UOp) -> UOp | None:
    shape = _divided(_dims(node), value.arg, len(_shards(value)))
    return _sharded([shard.expand(shape) for shard in _shards(value)], value.arg)


def _padded(value: UOp, node: UOp) -> UOp | None:
    begins, ends = node.src[1].arg, node.src[2].arg
    if begins[value.arg] or ends[value.arg]:
        return None
    return _sharded([shard.pad(begins, ends) for shard in _shards(value)], value.arg)


def _shrunk(value: UOp, node: UOp) -> UOp | None:
    axis, begins, ends = value.arg, node.src[1].arg, node.src[2].arg
    if begins[axis] or ends[axis] != _dims(value)[axis]:
        return None
    ends = _divided(ends, axis, len(_shards(value)))
    return _sharded([shard.shrink(begins, ends) for shard in _shards(value)], axis)


def _divided(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    """The shape of one of `count` equal parts along an axis."""
    return (*shape[:axis], shape[axis] // count, *shape[axis + 1 :])


_MOVES: Final[dict[Ops, Callable[[UOp, UOp], UOp | None]]] = {
    Ops.PERMUTE: _permuted,
    Ops.FLIP: _flipped,
    Ops.RESHAPE: _reshaped,
    Ops.EXPAND: _expanded,
    Ops.PAD: _padded,
    Ops.SHRINK: _shrunk,
}
