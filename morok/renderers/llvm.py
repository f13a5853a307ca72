"""LLVM IR as text: what runs on a CPU without a C compiler, compiled in this process.

    define void @NAME(ptr %bufs, ptr %vars, ptr %scratch, i64 %lo, i64 %hi)

The arguments are those of the C renderer's functions, and so are the results, bit for bit. Kernels
are compiled without a pass pipeline, so that the text is already what such passes would make of it:
counters and accumulators are phi nodes, loops test at the bottom, nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from morok.dtype import DType, dtypes
from morok.ir import AxisType, Ops, UOp
from morok.renderers.base import base_buffer, ends_threads, splat_value
from morok.renderers.c import FEATURES, c_capability
from morok.renderers.llvm_context import LLVMContext, Spare
from morok.renderers.llvm_metadata import aliases, scopes, turns, weights
from morok.renderers.llvm_registers import Cell, cell_of, may_be_empty
from morok.renderers.llvm_types import constant, ir_type, memory_type, suffix, zero
from morok.renderers.llvm_values import LLVMValues

__all__ = ["LLVMRenderer"]


@dataclass(slots=True)
class _Frame:
    """An open loop or branch."""

    before: str  # the block that leads to it
    cells: dict[Cell, str]  # values at its start
    line: int = 0  # where a loop's phi nodes stand
    heads: dict[Cell, str] = field(default_factory=dict)  # the phi nodes of what it carries
    label: str = ""
    end: str = ""  # a loop's exclusive end
    guarded: bool = False
    counter: str = ""
    first: str = "0"  # the counter's first value
    body: int = 0  # where a loop's body begins in the LINEAR
    times: int = 1  # how often it has been written so far


class LLVMRenderer(LLVMValues):
    """Renders LINEARs as LLVM IR for a processor with the given features (GNU names, as in C)."""

    pre_matcher: Any = None
    language = "llvm"

    def __init__(self, features: Iterable[str] = ()) -> None:
        self.features = frozenset(features) & frozenset(FEATURES)
        capability = c_capability(self.features)
        self.capability = replace(
            capability,
            name=capability.name.replace("C ", "LLVM ", 1),
            ops=capability.ops - {Ops.CUSTOM, Ops.CUSTOM_I},
        )

    @classmethod
    def for_target(cls, has: Callable[[str], bool]) -> LLVMRenderer:
        """For the processor of which `has` says what it has, e.g. `LLVMCompiler().target.has`."""
        return cls(feature for feature in FEATURES if has(feature))

    def render(self, linear: UOp, name: str) -> str:
        """Text of a module with a kernel called `name`. InvalidGraphError names all that has no
        rendering."""
        ctx = LLVMContext(linear, name)
        frames: list[_Frame] = []
        place = 0
        while place < len(ctx.ops):
            op = ctx.ops[place]
            place += 1
            kind = op.op
            if kind in _VISITED:
                _VISITED[kind](self, ctx, op)
            elif kind is Ops.RANGE:
                frames.append(self._range(ctx, op))
                frames[-1].body = place
            elif kind is Ops.END:
                if self._repeat(ctx, op.src[1], frames[-1]):
                    place = frames[-1].body
                    continue
                self._end(ctx, op.src[1], frames.pop())
                if ends_threads(ctx.ops, op):
                    self._leave(ctx)
            elif kind is Ops.IF:
                frames.append(self._if(ctx, op))
            elif kind is Ops.ENDIF:
                self._endif(ctx, op.src[0], frames.pop())
            elif kind not in _NO_TEXT:
                self.value(ctx, op)
        if (error := ctx.pending_error) is not None:
            raise error
        return self._assemble(ctx)

    # ---- definitions -----------------------------------------------------------------------------

    def _param(self, ctx: LLVMContext, node: UOp) -> None:
        slot = node.arg[0]
        place = "%bufs"
        if slot:
            place = ctx.emit(f"getelementptr inbounds ptr, ptr %bufs, i64 {slot}")
        ctx.line(f"%p{slot} = load ptr, ptr {place}, align 8")
        ctx.values[node] = f"%p{slot}"

    def _define_local(self, ctx: LLVMContext, node: UOp) -> None:
        name, offset = f"%s{node.arg[0]}", ctx.offsets[node]
        ctx.line(f"{name} = getelementptr inbounds i8, ptr %scratch, i64 {offset}")
        ctx.values[node] = name

    def _define_reg(self, ctx: LLVMContext, node: UOp) -> None:
        if node in ctx.registers:
            return
        size, number = node.arg
        name = f"%{ctx.fresh(f'reg{number}_')}"
        ctx.entry.append(f"  {name} = alloca [{size} x {memory_type(node.dtype.base)}], align 64")
        ctx.values[node] = name

    def _define_var(self, ctx: LLVMContext, node: UOp) -> None:
        names = sorted({op.arg[0] for op in ctx.ops if op.op is Ops.DEFINE_VAR})
        place, slot = "%vars", names.index(node.arg[0])
        if slot:
            place = ctx.emit(f"getelementptr inbounds i64, ptr %vars, i64 {slot}")
        ctx.values[node] = ctx.emit(f"load i64, ptr {place}, align 8", "var")

    def _after(self, ctx: LLVMContext, node: UOp) -> None:
        if node.src[0] in ctx.values:
            ctx.values[node] = ctx.values[node.src[0]]

    # ---- memory ----------------------------------------------------------------------------------

    def _place(self, ctx: LLVMContext, index: UOp) -> tuple[str, str, int, str]:
        """Of an INDEX or POINTER_INDEX: (pointer, position, further elements, type of element)."""
        pointer = self.operand(ctx, index.src[0])
        if index.op is Ops.POINTER_INDEX:
            element = "i8"
        elif index.op is Ops.INDEX and len(index.src) == 2 + bool(index.arg):
            element = memory_type(index.src[0].dtype.base)
        else:
            return ctx.fail("an INDEX must have one flat position", index), "", 0, "i8"
        position, offset = self.split(ctx, index.src[1])
        return pointer, position, offset, element

    def _offset(
        self, ctx: LLVMContext, pointer: str, element: str, count: str | int, bound: str = ""
    ) -> str:
        """A pointer so many elements further on."""
        if not count:
            return pointer
        return ctx.pure(f"getelementptr {bound}{element}, ptr {pointer}, i64 {count}")

    def _address(self, ctx: LLVMContext, index: UOp, *, inside: bool = True) -> str:
        """The address of an INDEX or POINTER_INDEX; `inside` says that it is one of the buffer."""
        pointer, position, offset, element = self._place(ctx, index)
        bound = "inbounds " if inside else ""
        pointer = self._offset(ctx, pointer, element, position, bound)
        return self._offset(ctx, pointer, element, offset, bound)

    def _load(self, ctx: LLVMContext, node: UOp) -> None:
        index, dtype = node.src[1], node.dtype
        if base_buffer(index.src[0]) in ctx.registers:
            ctx.values[node] = ctx.cells.get(cell_of(index), "poison")
            return
        kind = memory_type(dtype)
        align = max(1, dtype.scalar.bits // 8)
        gate = index.src[-1] if index.op is Ops.INDEX and index.arg else None
        ctx.access(writes=False)
        if gate is None:
            address = self._address(ctx, index)
            value = ctx.emit(f"load {kind}, ptr {address}, align {align}{aliases(ctx, index)}", "x")
        elif gate.dtype.count > 1:
            value = self._masked_load(ctx, node, gate, kind, align)
        else:
            value = self._gated_load(ctx, node, gate, kind, align)
        if dtype.kind == "b":
            value = ctx.pure(f"icmp ne {kind} {value}, {_zero_in_memory(dtype)}")
        ctx.values[node] = value
        if dtype is dtypes.int64:
            ctx.parts[node] = (value, 0)

    def _gated_load(self, ctx: LLVMContext, node: UOp, gate: UOp, kind: str, align: int) -> str:
        """A LOAD under one condition: where it is false, the alternative is read from the stack, so
        that there is no branch. Reads near each other under one condition share the choice."""
        index, alt = node.src[1], node.src[2] if len(node.src) > 2 else node.const_like(0)
        fixed = alt.op in (Ops.CONST, Ops.VCONST)
        kept = self._in_memory(ctx, alt) if fixed else _zero_in_memory(node.dtype)
        truth = self.operand(ctx, gate)
        pointer, position, offset, element = self._place(ctx, index)
        size = index.src[0].dtype.base.itemsize if index.op is Ops.INDEX else 1
        spares = ctx.spares.setdefault((truth, pointer, position, kind, kept), [])
        near = [s for s in spares if abs(offset - s.first) * size <= _NEAR]
        if not near:
            name = f"%{ctx.fresh('spare')}"
            near = [Spare(name, kind, kept, size, max(1, node.dtype.itemsize), offset)]
            spares += near
        spare = near[0]
        spare.offsets.setdefault(offset)
        address = self._offset(
            ctx, self._offset(ctx, pointer, element, position), element, spare.first
        )
        place = ctx.pure(f"select i1 {truth}, ptr {address}, ptr {spare.name}")
        place = self._offset(ctx, place, element, offset - spare.first)
        value = ctx.emit(f"load {kind}, ptr {place}, align {align}{aliases(ctx, index)}", "x")
        if fixed:
            return value
        other = self._in_memory(ctx, alt)
        return ctx.pure(f"select i1 {truth}, {kind} {value}, {kind} {other}")

    def _masked_load(self, ctx: LLVMContext, node: UOp, gate: UOp, kind: str, align: int) -> str:
        """A vector LOAD whose gate differs by lane."""
        alt = self._in_memory(ctx, node.src[2] if len(node.src) > 2 else node.const_like(0))
        address = self._address(ctx, node.src[1], inside=False)
        memory = dtypes.uint8.vec(node.dtype.count) if node.dtype.kind == "b" else node.dtype
        call = ctx.intrinsic(
            f"llvm.masked.load.{suffix(memory)}.p0",
            kind,
            ("ptr", address),
            ("i32", str(align)),
            (ir_type(gate.dtype), self._mask(ctx, gate, node.dtype)),
            (kind, alt),
        )
        return ctx.emit(call + aliases(ctx, node.src[1]), "x")

    def _mask(self, ctx: LLVMContext, gate: UOp, dtype: DType) -> str:
        """The lanes of a gate, for an access of vectors of `dtype`.

        a & b  ->  select(a, b as words, 0) < 0

        A conjunction of single bits would go through half as wide words and back."""
        parts = [*_conjuncts(gate)]
        if len(parts) == 1 or dtype.scalar.bits not in (32, 64):
            return self.operand(ctx, gate)
        word = (dtypes.int32 if dtype.scalar.bits == 32 else dtypes.int64).vec(gate.dtype.count)
        kind, lanes = ir_type(word), constant(word, -1)
        for part in parts:
            if (scalar := splat_value(part)) is not None:
                lanes = ctx.pure(f"and {kind} {lanes}, {self.spread(ctx, scalar, word)}")
        for part in parts:
            if splat_value(part) is None:
                choice = f"{self.typed(ctx, part)}, {kind} {lanes}, {kind} zeroinitializer"
                lanes = ctx.pure(f"select {choice}")
        return ctx.pure(f"icmp slt {kind} {lanes}, zeroinitializer")

    def _in_memory(self, ctx: LLVMContext, node: UOp) -> str:
        """A value as memory holds it: bools as bytes."""
        if node.dtype.kind != "b":
            return self.operand(ctx, node)
        if node.op is Ops.CONST:
            return str(int(node.arg))
        if node.op is Ops.VCONST:
            return f"<{', '.join([f'i8 {int(value)}' for value in node.arg])}>"
        value = self.operand(ctx, node)
        return ctx.pure(f"zext {ir_type(node.dtype)} {value} to {memory_type(node.dtype)}")

    def _store(self, ctx: LLVMContext, node: UOp) -> None:
        index, value = node.src[:2]
        dtype = value.dtype
        align = max(1, dtype.scalar.bits // 8)
        if base_buffer(index.src[0]) in ctx.registers:
            ctx.cells[cell_of(index)] = self.operand(ctx, value)
            return
        stored, kind = self._in_memory(ctx, value), memory_type(dtype)
        gate = index.src[-1] if index.op is Ops.INDEX and index.arg else None
        if gate is not None and gate.dtype.count == 1:
            ctx.fail("a gated STORE must stand in an IF", node)
            return
        if gate is not None:
            memory = dtypes.uint8.vec(dtype.count) if dtype.kind == "b" else dtype
            call = ctx.intrinsic(
                f"llvm.masked.store.{suffix(memory)}.p0",
                "void",
                (kind, stored),
                ("ptr", self._address(ctx, index, inside=False)),
                ("i32", str(align)),
                (ir_type(gate.dtype), self._mask(ctx, gate, dtype)),
            )
            ctx.line(call + aliases(ctx, index))
            ctx.access(writes=True)
            return
        address = self._address(ctx, index)
        streamed = ctx.info.streaming and base_buffer(index.src[0]).op is Ops.PARAM
        if streamed and self._streams(dtype):
            self._stream(ctx, kind, stored, address, dtype.itemsize, align)
        else:
            ctx.line(f"store {kind} {stored}, ptr {address}, align {align}{aliases(ctx, index)}")
            ctx.access(writes=True)

    def _streams(self, dtype: DType) -> bool:
        """Whether the target has stores of these vectors that bypass the cache."""
        needed = {16: "sse2", 32: "avx", 64: "avx512f"}.get(dtype.itemsize)
        return dtype.count > 1 and needed in self.features

    def _stream(
        self, ctx: LLVMContext, kind: str, value: str, address: str, size: int, align: int
    ) -> None:
        """A store that bypasses the cache where the address allows, as almost all do: said so, the
        other way is no part of the loop's code."""
        number = ctx.fresh("")
        place = ctx.pure(f"ptrtoint ptr {address} to i64")
        low = ctx.pure(f"and i64 {place}, {size - 1}")
        whole = ctx.pure(f"icmp eq i64 {low}, 0")
        ctx.line(f"br i1 {whole}, label %stream{number}, label %plain{number}{weights(ctx, 1000)}")
        ctx.start_block(f"stream{number}")
        ctx.line(f"store {kind} {value}, ptr {address}, align {size}, !nontemporal !1")
        ctx.line(f"br label %stored{number}")
        ctx.start_block(f"plain{number}")
        ctx.line(f"store {kind} {value}, ptr {address}, align {align}")
        ctx.line(f"br label %stored{number}")
        ctx.start_block(f"stored{number}")

    # ---- loops and branches ----------------------------------------------------------------------

    def _range(self, ctx: LLVMContext, node: UOp) -> _Frame:
        axis, kind = node.arg
        number = ctx.fresh("")
        frame = _Frame(ctx.block, dict(ctx.cells), label=f"loop{number}")
        frame.end = self.wide(ctx, node.src[0])
        if kind is AxisType.THREAD:
            frame.first = "%lo"
            if node.src[0].op is Ops.CONST:
                frame.end = "%hi"
            else:
                fewer = ctx.pure(f"icmp slt i64 %hi, {frame.end}")
                frame.end = ctx.pure(f"select i1 {fewer}, i64 %hi, i64 {frame.end}")
        frame.guarded = may_be_empty(node)
        if frame.guarded:
            some = ctx.pure(f"icmp slt i64 {frame.first}, {frame.end}")
            ctx.line(f"br i1 {some}, label %loop{number}, label %done{number}")
        else:
            ctx.line(f"br label %loop{number}")
        ctx.open_scope()
        ctx.start_block(f"loop{number}", str(kind))
        frame.counter = f"%{ctx.fresh(f'i{axis.number}_')}"
        ctx.values[node] = frame.counter
        frame.line = len(ctx.lines)
        frame.heads = {c: f"%{ctx.fresh(f'acc{c[0].arg[1]}_')}" for c in ctx.joins[node].carried}
        ctx.cells |= frame.heads
        ctx.lines += [""] * (1 + len(frame.heads))  # phi nodes, known at the end
        return frame

    def _repeat(self, ctx: LLVMContext, loop: UOp, frame: _Frame) -> bool:
        """Whether the body of a loop comes once more, with the counter of the next iteration."""
        if frame.times >= ctx.repeats.get(loop, 1):
            return False
        ctx.parts[loop] = (frame.counter, frame.times)
        frame.times += 1
        return True

    def _end(self, ctx: LLVMContext, loop: UOp, frame: _Frame) -> None:
        following = ctx.emit(f"add nsw i64 {frame.counter}, {frame.times}", "next")
        last = ctx.block
        phis = [(frame.counter, "i64", frame.first, following)]
        for cell, name in frame.heads.items():
            kind = ir_type(cell[0].dtype.base)
            phis.append((name, kind, frame.cells.get(cell, "poison"), ctx.cells[cell]))
        for line, (name, kind, first, next_) in enumerate(phis, frame.line):
            sources = f"[ {first}, %{frame.before} ], [ {next_}, %{last} ]"
            ctx.lines[line] = f"  {name} = phi {kind} {sources}"
        more = ctx.emit(f"icmp ne i64 {following}, {frame.end}", "more")
        done = frame.label.replace("loop", "done")
        often = turns(ctx, loop, frame.times)
        ctx.line(f"br i1 {more}, label %{frame.label}, label %{done}{often}")
        ctx.close_scope()
        ctx.start_block(done)
        if frame.guarded:
            self._join(ctx, ctx.joins[loop].written, frame, last)

    def _leave(self, ctx: LLVMContext) -> None:
        """Ends the calls that have no part in what follows the THREAD loop."""
        self._fence(ctx)
        later = ctx.pure("icmp sgt i64 %lo, 0")
        ctx.line(f"br i1 {later}, label %leave, label %rest")
        ctx.start_block("leave")
        ctx.line("ret void")
        ctx.start_block("rest", "for one thread")

    def _fence(self, ctx: LLVMContext) -> None:
        """Has stores that bypass the cache arrive before the kernel returns."""
        if ctx.info.streaming and "sse2" in self.features:
            ctx.line(ctx.intrinsic("llvm.x86.sse.sfence", "void"))

    def _join(self, ctx: LLVMContext, cells: list[Cell], frame: _Frame, last: str) -> None:
        """Cells behind a part that may have been skipped."""
        for cell in cells:
            old, new = frame.cells.get(cell, "poison"), ctx.cells[cell]
            kind = ir_type(cell[0].dtype.base)
            ctx.cells[cell] = ctx.emit(
                f"phi {kind} [ {old}, %{frame.before} ], [ {new}, %{last} ]", "acc"
            )

    def _if(self, ctx: LLVMContext, node: UOp) -> _Frame:
        condition, number = node.src[0], ctx.fresh("")
        truth = self.operand(ctx, condition)
        if condition.dtype.count > 1:
            bits = f"i{condition.dtype.count}"
            lanes = ctx.pure(f"bitcast {ir_type(condition.dtype)} {truth} to {bits}")
            truth = ctx.pure(f"icmp ne {bits} {lanes}, 0")
        frame = _Frame(ctx.block, dict(ctx.cells), label=f"endif{number}")
        ctx.line(f"br i1 {truth}, label %then{number}, label %endif{number}")
        ctx.open_scope()
        ctx.start_block(f"then{number}")
        return frame

    def _endif(self, ctx: LLVMContext, branch: UOp, frame: _Frame) -> None:
        last = ctx.block
        ctx.line(f"br label %{frame.label}")
        ctx.close_scope()
        ctx.start_block(frame.label)
        self._join(ctx, ctx.joins[branch].written, frame, last)

    # ---- the whole -------------------------------------------------------------------------------

    def _assemble(self, ctx: LLVMContext) -> str:
        self._fence(ctx)
        ctx.line("ret void")
        params = "ptr %bufs, ptr %vars, ptr %scratch, i64 %lo, i64 %hi"
        head = [f"define void @{ctx.name}({params}) #0 {{", "entry:", *ctx.entry]
        for near in ctx.spares.values():
            for spare in near:
                head += spare.definition()
        constants = [
            f"{name} = private unnamed_addr constant {text}, align 64"
            for text, name in ctx.globals.items()
        ]
        tail = ["}", *constants, *ctx.declares.values(), _ATTRIBUTES]
        tail += ["!0 = !{}", "!1 = !{i32 1}"]
        tail += [f"!{number} = {text}" for number, text in ctx.metadata.items()]
        tail += scopes(len(ctx.offsets))
        return "\n".join([*head, *ctx.lines, *tail, ""])


# Registers that are saved on the stack stand at multiples of their size only with a frame pointer:
# without, half the vectors among them would lie across two lines of the cache.
_ATTRIBUTES = 'attributes #0 = { nounwind "frame-pointer"="all" }'


def _conjuncts(gate: UOp) -> Iterator[UOp]:
    """What an AND, and the ANDs in it, are made of."""
    if gate.op is Ops.AND:
        for operand in gate.src:
            yield from _conjuncts(operand)
    else:
        yield gate


def _zero_in_memory(dtype: DType) -> str:
    return zero(dtypes.uint8.vec(dtype.count) if dtype.kind == "b" else dtype)


_NEAR = 2048
"""Bytes within which reads under one condition share a place on the stack."""
_NO_TEXT = frozenset({Ops.CONST, Ops.VCONST, Ops.INDEX, Ops.POINTER_INDEX, Ops.GROUP, Ops.SINK})
_VISITED: dict[Ops, Callable[[LLVMRenderer, LLVMContext, UOp], None]] = {
    Ops.PARAM: LLVMRenderer._param,
    Ops.DEFINE_LOCAL: LLVMRenderer._define_local,
    Ops.DEFINE_REG: LLVMRenderer._define_reg,
    Ops.DEFINE_VAR: LLVMRenderer._define_var,
    Ops.AFTER: LLVMRenderer._after,
    Ops.LOAD: LLVMRenderer._load,
    Ops.STORE: LLVMRenderer._store,
}
