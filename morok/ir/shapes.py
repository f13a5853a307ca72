"""Shapes with symbolic dims: a dim is an int, or an index UOp over variables with known bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from morok._core import toposort
from morok.dtype import dtypes
from morok.ir.ops import Ops
from morok.ir.optable import GroupOp
from morok.ir.uop import UOp

__all__ = [
    "Dim",
    "dims_of",
    "extent",
    "is_symbolic",
    "laid_out",
    "memory_under",
    "room_of",
    "shape_operand",
    "shape_text",
    "simple_dim",
    "value_of",
]


Dim = int | UOp
"""An int, or an index UOp over variables with known bounds."""


def is_symbolic(shape: Iterable[Dim]) -> bool:
    """Whether some dim is not an int."""
    return any(isinstance(n, UOp) for n in shape)


def extent(dim: Dim) -> int:
    """The largest value of a dim: memory has room for it, and indices are checked against it."""
    if not isinstance(dim, UOp):
        return int(dim)
    assert dim.vmax is not None, "dims have bounds"
    return dim.vmax


def room_of(shape: Iterable[Dim]) -> int:
    """The elements that memory for a value of this shape has, row by row with every dim at its
    largest."""
    room = 1
    for dim in shape:
        room *= dim if type(dim) is int else extent(dim)
    return room


def shape_operand(dims: Sequence[Dim]) -> UOp:
    """The operand of a movement op: a constant, or a VECTORIZE where some dim is symbolic. Sums are
    simplified, so that equal ones are one node."""
    dims = [simple_dim(n) for n in dims]
    ints = [n for n in dims if not isinstance(n, UOp)]
    if len(ints) == len(dims):
        return UOp.shape_const(ints)
    parts = tuple(n if isinstance(n, UOp) else UOp.const(dtypes.index, n) for n in dims)
    return UOp(Ops.VECTORIZE, dtypes.index.vec(len(parts)), parts)


def simple_dim(dim: Dim) -> Dim:
    """An int where a dim is one, else the simplest sum that is equal to it."""
    if not isinstance(dim, UOp):
        return dim
    simple: UOp = dim.simplify()
    number: Dim = simple.arg if simple.op is Ops.CONST else simple
    return number


def dims_of(operand: UOp) -> tuple[Dim, ...]:
    """The dims, begins or amounts that an operand of a movement op gives."""
    if operand.op is Ops.CONST:
        given: tuple[int, ...] = operand.arg
        return given
    return tuple(part.arg if part.op is Ops.CONST else part for part in operand.src)


def laid_out(memory: UOp, shape: Sequence[Dim]) -> UOp:
    """The value of `shape` that lies in flat memory of `room_of(shape)` elements: row by row with
    every dim at its largest, of which the first so many are meant."""
    largest = tuple(map(extent, shape))
    view = memory
    if memory.shape != largest:
        view = UOp(Ops.RESHAPE, memory.dtype, (memory, UOp.shape_const(largest)))
    if not is_symbolic(shape):
        return view
    begins = UOp.shape_const((0,) * len(largest))
    return UOp(Ops.SHRINK, memory.dtype, (view, begins, shape_operand(shape)))


def memory_under(view: UOp) -> UOp:
    """What `laid_out`, or a RESHAPE, made `view` of: all of it, in logical order."""
    if view.op is Ops.SHRINK and is_symbolic(view.shape or ()):
        begins, below = dims_of(view.src[1]), view.src[0]
        if all(b == 0 for b in begins) and below.shape == tuple(map(extent, view.shape or ())):
            view = below
    while view.op is Ops.RESHAPE:
        view = view.src[0]
    return view


_SIGNS = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.FLOORDIV: "//", Ops.FLOORMOD: "%"}


def shape_text(shape: Iterable[Dim]) -> str:
    """A shape for messages, its variables by name: (n, 4), (2*n, 4)."""
    parts = [_dim_text(n) for n in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _dim_text(dim: Dim) -> str:
    if not isinstance(dim, UOp):
        return str(dim)
    if dim.op is Ops.BIND:
        return str(dim.src[0].arg[0])
    if dim.op is Ops.DEFINE_VAR:
        return str(dim.arg[0])
    if dim.op is Ops.CONST:
        return str(dim.arg)
    inner = [_dim_text(s) if s.op not in _SIGNS else f"({_dim_text(s)})" for s in dim.src]
    sign = _SIGNS.get(dim.op)
    return f" {sign} ".join(inner) if sign else f"{dim.op.name.lower()}({', '.join(inner)})"


def value_of(dim: Dim) -> int:
    """The number a dim stands for, by what its BINDs say."""
    if not isinstance(dim, UOp):
        return int(dim)
    found: dict[UOp, int] = {}
    for u in toposort(dim, stop=lambda u: u.op is Ops.BIND):
        if u.op is Ops.BIND:
            found[u] = u.src[1].arg
        elif u.op is Ops.CONST:
            found[u] = u.arg
        else:
            assert u.op in GroupOp.ALU, "dims are arithmetic of bound variables"
            found[u] = _computed(u, [found[s] for s in u.src])
    return found[dim]


def _computed(u: UOp, given: list[int]) -> int:
    constants = (UOp.const(s.dtype, value) for s, value in zip(u.src, given, strict=True))
    folded = UOp(u.op, u.dtype, tuple(constants))
    assert folded.vmin is not None
    assert folded.vmin == folded.vmax, "arithmetic on constants is exact"
    return folded.vmin
