"""What a target can do, and what code generation needs of a renderer and a compiler.

Code generation gets a renderer as an argument and asks its capability record; it names no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from morok.dtype import DType
from morok.ir.ops import Ops, WmmaMetadata

if TYPE_CHECKING:
    from morok.ir.uop import UOp

__all__ = ["Capability", "Compiler", "Renderer"]


@dataclass(frozen=True, slots=True)
class Capability:
    """A target's abilities. Hashable and made of canonical values: part of every kernel's key."""

    name: str
    ops: frozenset[Ops]  # ops that the renderer has a template for
    vector_widths: tuple[tuple[DType, tuple[int, ...]], ...] = ()  # lanes of loads and stores
    vector_alu: bool = False  # ALU ops on vectors, not only loads and stores
    predicated_memory: bool = False  # gated loads and stores of vectors without a branch
    local_memory: bool = False
    local_bytes: int = 0  # per work-group
    threads: bool = False  # THREAD axes: the launcher hands out (lo, hi)
    work_items: bool = False  # GLOBAL and LOCAL axes become SPECIALs
    max_groups: tuple[int, ...] = ()  # per dimension of the grid, () = no limit
    max_items: tuple[int, ...] = ()  # per dimension of a work-group
    max_group_items: int = 0  # of a whole work-group, 0 = no limit
    vector_registers: int = 0  # architectural, 0 = unknown
    l1_bytes: int = 0  # data caches, 0 = unknown
    l2_bytes: int = 0
    tensor_cores: tuple[WmmaMetadata, ...] = ()

    def widths(self, dtype: DType) -> tuple[int, ...]:
        """Lanes, ascending, that a load or store of scalar `dtype` may have; always with 1."""
        for known, lanes in self.vector_widths:
            if known is dtype:
                return tuple(sorted({1, *lanes}))
        return (1,)

    def max_width(self, dtype: DType) -> int:
        """The most lanes of scalar `dtype` that one load or store may have."""
        return self.widths(dtype)[-1]

    @property
    def key(self) -> tuple[Any, ...]:
        """The record as canonical values in an order that is the same in every process."""
        return (
            self.name,
            tuple(sorted(op.name for op in self.ops)),
            tuple(sorted((dtype.name, lanes) for dtype, lanes in self.vector_widths)),
            self.vector_alu,
            self.predicated_memory,
            (self.local_memory, self.local_bytes),
            (self.threads, self.work_items, self.max_groups, self.max_items),
            self.max_group_items,
            (self.vector_registers, self.l1_bytes, self.l2_bytes),
            tuple(map(repr, self.tensor_cores)),
        )


@runtime_checkable
class Renderer(Protocol):
    """Turns a LINEAR into source text."""

    @property
    def capability(self) -> Capability: ...

    @property
    def pre_matcher(self) -> Any:
        """The target's own RuleSet, run before decompositions; None if it has none."""

    @property
    def language(self) -> str:
        """What its sources are written in, as compilers are chosen by: "c", "llvm"."""

    def render(self, linear: UOp, name: str) -> str:
        """Source of the kernel. InvalidGraphError names everything that cannot be rendered."""


@runtime_checkable
class Compiler(Protocol):
    """Turns source texts into one binary."""

    @property
    def identity(self) -> str:
        """Compiler, version, flags and CPU features: part of the key of the disk cache."""

    def compile(self, sources: Sequence[str]) -> bytes:
        """One binary with the kernels of all sources. CompileError when the compiler refuses."""
