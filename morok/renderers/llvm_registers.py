"""Registers as values: which accumulators can be SSA values, and which ones a loop carries.

A DEFINE_REG is a variable of LINEAR. Where every access names an element by a constant, each
element is a `Cell`, which has a value at every point of the program; where the program's paths meet
(the head of a loop, the end of a branch) a phi node joins the values it has on each. Registers
with computed positions stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from morok.ir import AxisType, Ops, UOp
from morok.renderers.base import base_buffer, is_register

__all__ = ["Cell", "Joins", "cell_of", "constant_registers", "find_joins", "may_be_empty"]

Cell = tuple[UOp, int]
"""A DEFINE_REG and the element of it."""


def _access(op: UOp) -> tuple[UOp, UOp] | None:
    """(INDEX, the value read or written) of an access to registers."""
    if op.op is Ops.LOAD and is_register(op.src[0]):
        return op.src[1], op
    if op.op is Ops.STORE and is_register(op.src[0].src[0]):
        return op.src[0], op.src[1]
    return None


def constant_registers(ops: Iterable[UOp]) -> set[UOp]:
    """The DEFINE_REGs whose every access is of one whole element at a constant position."""
    found: set[UOp] = set()
    computed: set[UOp] = set()
    for op in ops:
        access = _access(op)
        if access is None:
            continue
        index, value = access
        reg = base_buffer(index.src[0])
        whole = value.dtype is reg.dtype.base
        found.add(reg)
        if not whole or (reg.arg[0] != 1 and not _constant_position(index)):
            computed.add(reg)
    return found - computed


def _constant_position(index: UOp) -> bool:
    return index.op is Ops.INDEX and len(index.src) == 2 and index.src[1].op is Ops.CONST


def cell_of(index: UOp) -> Cell:
    """What an INDEX of a register whose positions are constant names."""
    reg = base_buffer(index.src[0])
    return reg, 0 if reg.arg[0] == 1 else int(index.src[1].arg)


def may_be_empty(loop: UOp) -> bool:
    """Whether a RANGE may have no iteration at all."""
    if loop.arg[1] is AxisType.THREAD:
        return True
    end = loop.src[0]
    return end.vmin is None or end.vmin < 1


@dataclass(slots=True)
class Joins:
    """What a loop or branch does to cells, in the order they are first written in it.

    `written` are all it writes; `carried` those whose value at its start may be read in it, so that
    one iteration hands it to the next.
    """

    written: list[Cell] = field(default_factory=list)
    carried: list[Cell] = field(default_factory=list)


@dataclass(slots=True)
class _Scope:
    head: UOp
    certain: bool  # what stands in it runs whenever the statement it is runs
    fresh: dict[Cell, bool] = field(default_factory=dict)  # whether a cell's first access writes it
    written: dict[Cell, None] = field(default_factory=dict)


def find_joins(ops: Iterable[UOp], registers: set[UOp]) -> dict[UOp, Joins]:
    """What each RANGE and IF of a LINEAR does to the cells of `registers`."""
    joins: dict[UOp, Joins] = {}
    stack: list[_Scope] = []
    for op in ops:
        if op.op is Ops.RANGE:
            stack.append(_Scope(op, not may_be_empty(op)))
        elif op.op is Ops.IF:
            stack.append(_Scope(op, False))
        elif op.op is Ops.END or op.op is Ops.ENDIF:
            scope = stack.pop()
            written = list(scope.written)
            joins[scope.head] = Joins(written, [c for c in written if not scope.fresh[c]])
        elif registers and (access := _access(op)) is not None:
            cell = cell_of(access[0])
            if cell[0] in registers:
                _note(stack, cell, op.op is Ops.STORE)
    return joins


def _note(stack: list[_Scope], cell: Cell, writes: bool) -> None:
    """Enters an access in the scopes it stands in, the innermost first."""
    certain = writes
    for scope in reversed(stack):
        scope.fresh.setdefault(cell, certain)
        if writes:
            scope.written.setdefault(cell)
        certain = certain and scope.certain
