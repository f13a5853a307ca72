"""Movement ops as transformations of indices: where an element of the result lies in the source.

A position is a tuple of index expressions, one a dim, and a validity condition (None = always
valid): outside it the element is padding and its value 0, and the index expressions may lie
anywhere.
"""

from __future__ import annotations

from math import prod

import morok.symbolic  # noqa: F401 (simplify does nothing without it)
from morok.caches import memoized
from morok.dtype import DType, dtypes
from morok.errors import InvalidGraphError
from morok.ir import Dim, GroupOp, Ops, Pat, RuleSet, UOp, dims_of, extent, graph_rewrite, room_of

Index = tuple[UOp, ...]

_ZERO = UOp.const(dtypes.index, 0)


@memoized(4096)
def _groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """The finest split of a reshape into independent ones: (old axes, new axes) with equal
    products.

    Axes of size 1 belong to no group: they are 0 on either side. A symbolic dim is a group.
    """
    a = [i for i, d in enumerate(old) if d != 1]
    b = [i for i, d in enumerate(new) if d != 1]
    out: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(a):
        left, right = [a[i]], [b[j]]
        p, q = old[a[i]], new[b[j]]
        i, j = i + 1, j + 1
        while p != q:  # symbolic dims are only ever equal
            if p < q:
                p *= old[a[i]]
                left.append(a[i])
                i += 1
            else:
                q *= new[b[j]]
                right.append(b[j])
                j += 1
        out.append((tuple(left), tuple(right)))
    return tuple(out)


def flatten(index: Index, shape: tuple[Dim, ...]) -> UOp:
    """The row-major position of `index` in memory for an array of `shape`, in which every symbolic
    dim has room for its largest value."""
    total = _ZERO
    stride = 1
    for i, d in zip(reversed(index), reversed(shape), strict=True):
        if d != 1:
            total = total + (i if stride == 1 else i * stride)
        stride *= extent(d)
    return total.simplify()


def unflatten(flat: UOp, shape: tuple[int, ...]) -> Index:
    """The index into an array of `shape` of the row-major position `flat`."""
    out: list[UOp] = []
    stride = prod(shape)
    for axis, d in enumerate(shape):
        if d == 1:
            out.append(_ZERO)
            continue
        stride //= d
        i = flat // stride if stride != 1 else flat
        out.append((i if axis == 0 else i % d).simplify())
    return tuple(out)


def _reshape(index: Index, old: tuple[int, ...], new: tuple[int, ...]) -> Index:
    """From an index into `new` to one into `old`."""
    out = [_ZERO] * len(old)
    if room_of(old) == 0:
        return tuple(out)
    for left, right in _groups(old, new):
        if len(left) == 1 and len(right) == 1:
            out[left[0]] = index[right[0]]
            continue
        flat = flatten(tuple(index[i] for i in right), tuple(new[i] for i in right))
        for axis, i in zip(left, unflatten(flat, tuple(old[i] for i in left)), strict=True):
            out[axis] = i
    return tuple(out)


def conjunction(a: UOp | None, b: UOp | None) -> UOp | None:
    """Both conditions; None is true."""
    if a is None or a is b:
        return b
    return a if b is None else (a & b)


def _within(i: UOp, size: Dim) -> UOp | None:
    """The condition 0 <= i < size; None where bounds prove it."""
    low = None if i.vmin is not None and i.vmin >= 0 else i >= 0
    least = size.vmin if isinstance(size, UOp) else size
    inside = i.vmax is not None and least is not None and i.vmax < least
    high = None if inside else i < size
    return conjunction(low, high)


def _pad(m: UOp, index: Index, valid: UOp | None) -> tuple[Index, UOp | None]:
    out = []
    begins = dims_of(m.src[1])
    shape = m.src[0].shape
    assert shape is not None
    for i, begin, size, padded in zip(index, begins, shape, m.shape or (), strict=True):
        if size == padded:
            out.append(i)
            continue
        j = i if begin == 0 else (i - begin).simplify()
        valid = conjunction(valid, _within(j, size))
        out.append(j)
    if valid is not None:
        valid = valid.simplify()
    return tuple(out), valid


def apply_movement(m: UOp, index: Index, valid: UOp | None) -> tuple[Index, UOp | None]:
    """The position in `m.src[0]` of the element of movement op `m` at `index`."""
    old, new = m.src[0].shape, m.shape
    if old is None or new is None:
        raise InvalidGraphError("a movement op needs a shape", node=m, stage="rangeify")
    match m.op:
        case Ops.RESHAPE:
            return _reshape(index, old, new), valid
        case Ops.PERMUTE:
            out = [_ZERO] * len(old)
            for i, axis in zip(index, m.arg, strict=True):
                out[axis] = i
            return tuple(out), valid
        case Ops.EXPAND:
            return tuple(
                _ZERO if a != b else i for i, a, b in zip(index, old, new, strict=True)
            ), valid
        case Ops.SHRINK:
            begins = dims_of(m.src[1])
            return tuple(
                i if b == 0 else (i + b).simplify() for i, b in zip(index, begins, strict=True)
            ), valid
        case Ops.FLIP:
            return tuple(
                (-i + (d - 1)).simplify() if f else i
                for i, f, d in zip(index, m.arg, old, strict=True)
            ), valid
        case Ops.PAD:
            return _pad(m, index, valid)
    raise InvalidGraphError(f"{m.op.name} is no movement op", node=m, stage="rangeify")


def below_movement(u: UOp) -> UOp:
    """What a chain of movement ops looks at."""
    while u.op in GroupOp.Movement:
        u = u.src[0]
    return u


pm_mops = RuleSet("pm_mops")
pm_syntactic_sugar = RuleSet("pm_syntactic_sugar")


def movement_op_patterns() -> RuleSet:
    """`pm_mops`: an INDEX consumes the movement op below it; the same index twice is one."""
    return pm_mops


@pm_mops.opaque(Pat(Ops.INDEX, (Pat(Ops.INDEX, name="inner"),), rest=True, name="outer"), pure=True)
def nested_same(outer: UOp, inner: UOp) -> UOp | None:
    """INDEX(INDEX(p, i), i) -> INDEX(p, i), where i leaves no dims of p."""
    if outer.src[1:] != inner.src[1:] or inner.shape:
        return None
    return UOp(Ops.INDEX, outer.dtype, inner.src, inner.arg)


@pm_mops.opaque(
    Pat(Ops.INDEX, (Pat(GroupOp.Movement, name="m"),), rest=True, name="idx"), pure=True
)
def index_movement(idx: UOp, m: UOp) -> UOp | None:
    """INDEX(PERMUTE(a), i, j) -> INDEX(a, j, i), gated where the element is padding."""
    if len(idx.indices) != len(m.shape or ()):
        return None
    return _index(idx.dtype, m.src[0], *apply_movement(m, tuple(idx.indices), idx.gate))


@pm_syntactic_sugar.opaque(
    Pat(Ops.INDEX, (Pat(Ops.INDEX, name="inner"),), rest=True, name="outer"), pure=True
)
def nested_rows(outer: UOp, inner: UOp) -> UOp | None:
    """INDEX(INDEX(p, i), j) -> INDEX(p, i, j), where i leaves dims or is an address."""
    if not inner.shape and not inner.dtype.is_ptr:
        return None
    index = (*inner.indices, *outer.indices)
    return _index(outer.dtype, inner.src[0], index, conjunction(inner.gate, outer.gate))


@pm_syntactic_sugar.opaque(Pat(Ops.BUFFER_VIEW, (Pat(name="buffer"),), name="view"), pure=True)
def part_of_buffer(view: UOp, buffer: UOp) -> UOp:
    """BUFFER_VIEW(b, size, offset) -> SHRINK(b, [offset], [offset + size])"""
    size, offset = view.arg
    return buffer.shrink((offset,), (offset + size,))


def _index(dtype: DType, buffer: UOp, index: Index, valid: UOp | None) -> UOp:
    src = (buffer, *index) if valid is None else (buffer, *index, valid)
    return UOp(Ops.INDEX, dtype, src, valid is not None)


_early = pm_mops + pm_syntactic_sugar


def early_movement_ops(sink: UOp) -> UOp:
    """Stage 1. Goal: an element is read where it lies.

    Before: a tensor-level SINK. After: the same values, and no INDEX of a whole element directly on
    a movement op: the chain below it has become index arithmetic, and a gate where it pads.
    Movement ops that no INDEX reads are transformed as loops are given out. A BUFFER_VIEW is one.
    """
    if not (sink.has(Ops.INDEX) or sink.has(Ops.BUFFER_VIEW)):
        return sink
    return graph_rewrite(sink, _early, name="early movement ops")
