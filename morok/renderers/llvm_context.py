"""The state of rendering one LINEAR as LLVM IR: names, lines, what is known where."""

from __future__ import annotations

from dataclasses import dataclass, field

from morok.dtype import dtypes
from morok.ir import UOp
from morok.renderers.base import Rendering, is_position, lane_pairs
from morok.renderers.llvm_registers import Cell, Joins, constant_registers, find_joins

__all__ = ["LLVMContext", "Spare"]


_COMPARED = 64
"""Accesses to memory that code generation may compare with one another."""


@dataclass(slots=True)
class Spare:
    """Memory on the stack that reads go to whose condition is false.

    `name` points at the place for element `first`; `offsets` are all the elements that are read.
    """

    name: str
    kind: str  # of the values that are read
    value: str  # what each of them is
    element_size: int
    size: int  # bytes of a value
    first: int
    offsets: dict[int, None] = field(default_factory=dict)

    def definition(self) -> list[str]:
        """The lines that make it."""
        places = [(offset - self.first) * self.element_size for offset in sorted(self.offsets)]
        extent = places[-1] - places[0] + self.size
        lines = [
            f"  {self.name}.all = alloca [{extent} x i8], align 64",
            f"  {self.name} = getelementptr i8, ptr {self.name}.all, i64 {-places[0]}",
        ]
        for i, place in enumerate(places):
            lines.append(f"  {self.name}.{i} = getelementptr i8, ptr {self.name}, i64 {place}")
            lines.append(f"  store {self.kind} {self.value}, ptr {self.name}.{i}, align 1")
        return lines


class LLVMContext(Rendering):
    """The state of rendering one LINEAR as LLVM IR."""

    def __init__(self, linear: UOp, name: str) -> None:
        super().__init__(linear, name)
        self.values: dict[UOp, str] = {}
        self.parts: dict[UOp, tuple[str, int]] = {}  # positions: a value, "" for none, + a constant
        self.known: dict[str, str] = {}  # instruction -> the value that has its result already
        self.undo: list[list[str]] = [[]]  # instructions to forget, by scope
        self.entry: list[str] = []  # memory on the stack
        self.declares: dict[str, str] = {}
        self.globals: dict[str, str] = {}  # constant -> its name
        self.metadata: dict[int, str] = {}  # by number, which means the same in every kernel
        self.block = "entry"
        self.accesses = 0  # to memory, of those that are compared with one another
        self.registers = constant_registers(self.ops)
        self.pairs = lane_pairs(self.ops)
        self.joins: dict[UOp, Joins] = find_joins(self.ops, self.registers)
        self.cells: dict[Cell, str] = {}
        self.spares: dict[tuple[str, ...], list[Spare]] = {}
        for node in self.ops:
            dtype = node.dtype
            if dtype is dtypes.int64 or (dtype is dtypes.int32 and is_position(node, self.held)):
                self.held[node] = dtypes.int64

    def fail(self, message: str, node: UOp) -> str:
        """Notes an error and goes on with a placeholder."""
        self.errors.append((message, node))
        return "poison"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def emit(self, instruction: str, prefix: str = "v") -> str:
        """The name of the result of an instruction, which may be different the next time."""
        name = f"%{self.fresh(prefix)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str) -> str:
        """The result of an instruction that depends on its operands only: computed once."""
        name = self.known.get(instruction)
        if name is None:
            name = self.known[instruction] = self.emit(instruction)
            self.undo[-1].append(instruction)
        return name

    def access(self, *, writes: bool) -> None:
        """Notes an access to memory. Code generation compares every write of a block with every
        other access of it, which for the tail of a large tile takes longer than all the rest: an
        empty statement that may touch memory parts those before from those behind."""
        self.accesses += 1
        if writes and self.accesses >= _COMPARED:
            self.accesses = 0
            self.line('call void asm sideeffect "", "~{memory}"()')

    def start_block(self, label: str, comment: str = "") -> None:
        self.lines.append(f"{label}:{f'  ; {comment}' if comment else ''}")
        self.block = label
        self.accesses = 0

    def open_scope(self) -> None:
        """What is computed from here on is forgotten at `close_scope`: it may not have run."""
        self.undo.append([])

    def close_scope(self) -> None:
        for instruction in self.undo.pop():
            del self.known[instruction]

    def from_memory(self, kind: str, text: str) -> str:
        """A constant as a load where it is used: the processor takes it from memory as part of an
        instruction, or from a register if one is free for the whole loop."""
        name = self.globals.setdefault(f"{kind} {text}", f"@{self.name}.c{len(self.globals)}")
        load = f"load {kind}, ptr {name}, align 64, !invariant.load !0"
        known = f"{self.block}: {load}"
        if known not in self.known:
            self.known[known] = self.emit(load, "c")
            self.undo[-1].append(known)
        return self.known[known]

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """A call of an intrinsic with (type, value) arguments."""
        types = ", ".join(kind for kind, _ in arguments)
        self.declares[name] = f"declare {result} @{name}({types})"
        given = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return f"call {result} @{name}({given})"
