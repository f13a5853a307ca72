"""What rangeify decides with and about: kernels in the making, uses of values, scratch rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from morok.ir import Dim, Ops, UOp
from morok.rangeify.movement import Index


@dataclass(eq=False, slots=True)
class Kernel:
    """One loop nest in the making: its output loops and the values it stores."""

    number: int
    shape: tuple[Dim, ...]
    index: Index
    ranges: tuple[UOp, ...]
    closed: bool = False  # no other value may join
    ordered: bool = False  # its iterations see each other's writes
    outputs: list[UOp] = field(default_factory=list)
    readers: dict[Kernel, None] = field(default_factory=dict)  # kernels that read its outputs
    reads: dict[UOp, None] = field(
        default_factory=dict
    )  # buffers read: PARAM, AFTER or GLOBAL nodes

    @property
    def own(self) -> Use:
        """Where a value of its shape is computed once for each iteration of its output loops."""
        return Use(self, self.index, None)


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a value is wanted: in which kernel, at which index, under which condition."""

    kernel: Kernel
    index: Index
    valid: UOp | None

    def open_ranges(self) -> set[UOp]:
        """The loops that the index and the condition depend on."""
        out: set[UOp] = set()
        for i in self.index:
            out.update(i.open_ranges)
        if self.valid is not None:
            out.update(self.valid.open_ranges)
        return out


@dataclass(slots=True)
class Row:
    """A LOCAL value: its fill loops and the use at which it is computed."""

    ranges: tuple[UOp, ...]
    kept: int  # leading dims that stay at the users' index
    at: Use


@dataclass(slots=True)
class Decisions:
    """What the walk down decides, and all that the walk up is told."""

    order: list[UOp]  # sources before users
    uses: dict[UOp, dict[Use, None]] = field(default_factory=dict)
    home: dict[UOp, Use] = field(default_factory=dict)  # GLOBAL nodes: computed and stored there
    rows: dict[UOp, Row] = field(default_factory=dict)  # LOCAL nodes
    sources: dict[tuple[UOp, Use], tuple[Use, ...]] = field(default_factory=dict)
    reduce_ranges: dict[tuple[UOp, Use], tuple[UOp, ...]] = field(default_factory=dict)
    fills: dict[UOp, UOp] = field(default_factory=dict)  # ordered loop -> what its memory starts as
    # What stands in an index for an element of a tensor, until values are built.
    elements: dict[tuple[UOp, Use], UOp] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)


@dataclass(slots=True)
class Ranged:
    """Kernels with their stores, and the buffers of the values that got one."""

    kernels: list[Kernel]
    stores: dict[Kernel, dict[UOp, UOp]]  # output -> its STORE
    buffers: dict[UOp, UOp]  # GLOBAL node -> BUFFER or PARAM


def dim_of(r: UOp) -> Dim:
    """The dim that a loop walks."""
    end: UOp = r.src[0]
    if end.op is not Ops.CONST:
        return end
    size: int = end.arg
    return size
