"""From a kernel's SINK to a PROGRAM: SINK -> LINEAR -> SOURCE -> PROGRAM_BINARY.

Each step fills the next field and does nothing else: `do_linearize`, `do_render`, `do_compile`.
`get_program` takes them all. What the runtime must know of a PROGRAM beside its binary (name,
scratch space, variables, the extent of its THREAD loop) is asked here, of its LINEAR.
"""

from __future__ import annotations

import re
import sys

from morok import config
from morok.codegen.pipeline import run_pipeline
from morok.errors import InvalidGraphError
from morok.ir import AxisType, Compiler, KernelInfo, Ops, Renderer, UOp

__all__ = [
    "do_compile",
    "do_linearize",
    "do_render",
    "get_program",
    "has_prologue",
    "kernel_name",
    "launch_extent",
    "local_layout",
    "scratch_bytes",
    "variable_names",
]

SCRATCH_ALIGNMENT = 64
_CPU = UOp.new_device()


def get_program(
    sink: UOp, renderer: Renderer, compiler: Compiler | None = None, device: UOp = _CPU
) -> UOp:
    """PROGRAM of an optimised kernel, rendered; with a compiler, compiled as well.

    InvalidGraphError for a graph that cannot be lowered or rendered, CompileError when the compiler
    refuses the source.
    """
    program = do_render(do_linearize(UOp.program(sink, device), renderer), renderer)
    return program if compiler is None else do_compile(program, compiler)


def do_linearize(program: UOp, renderer: Renderer) -> UOp:
    """PROGRAM(sink, device) -> PROGRAM(sink, device, linear)"""
    _expect_next(program, 2)
    return UOp.program(*program.src, run_pipeline(program.src[0], renderer))


def do_render(program: UOp, renderer: Renderer) -> UOp:
    """PROGRAM(sink, device, linear) -> PROGRAM(sink, device, linear, source)"""
    _expect_next(program, 3)
    code = renderer.render(program.src[2], kernel_name(program.src[0]))
    if config.get().debug >= 3:
        print(code, file=sys.stderr)
    return UOp.program(*program.src, UOp.new_source(code))


def do_compile(program: UOp, compiler: Compiler) -> UOp:
    """PROGRAM(…, source) -> PROGRAM(…, source, binary)"""
    _expect_next(program, 4)
    return UOp.program(*program.src, UOp.new_binary(compiler.compile([program.src[3].arg])))


_STAGES = ("sink", "device", "linear", "source", "binary")


def _field(program: UOp, position: int) -> UOp:
    if program.op is not Ops.PROGRAM or len(program.src) <= position:
        raise _out_of_order(program, f"a PROGRAM with its {_STAGES[position]}")
    field: UOp = program.src[position]
    return field


def _expect_next(program: UOp, position: int) -> None:
    """Fields are filled in order, each once: the one at `position` must be the next."""
    _field(program, position - 1)
    if len(program.src) > position:
        raise _out_of_order(program, f"a PROGRAM without {_STAGES[position]}")


def _out_of_order(program: UOp, expected: str) -> InvalidGraphError:
    filled = " and ".join(_STAGES[: len(program.src)])
    got = f"one with {filled}" if program.op is Ops.PROGRAM else program.op.name
    return InvalidGraphError(
        f"PROGRAM.stages: expected {expected}, got {got}",
        node=program,
        stage="program",
        rule="stages in order",
        expected=expected,
        got=got,
    )


# ---- what a runtime asks -------------------------------------------------------------------------


# Words of C: a function must not be called so.
# fmt: off
_RESERVED = frozenset({
    "asm", "auto", "break", "case", "char", "const", "continue", "default", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "union", "unsigned", "void", "volatile", "while",
})
# fmt: on


def kernel_name(sink: UOp) -> str:
    """The name of a kernel's function: that of its KernelInfo as an identifier."""
    name = sink.arg.name if isinstance(sink.arg, KernelInfo) else "kernel"
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "kernel"
    return f"k_{name}" if name[0].isdigit() or name in _RESERVED else name


def local_layout(linear: UOp) -> tuple[dict[UOp, int], int]:
    """Byte offset of each DEFINE_LOCAL of a LINEAR in the scratch space, and the size of it all.

    Each starts at a multiple of 64 bytes, in the order of their numbers.
    """
    offsets: dict[UOp, int] = {}
    size = 0
    found = {op for op in linear.src if op.op is Ops.DEFINE_LOCAL}
    for op in sorted(found, key=lambda op: (op.arg, op.dtype.name)):
        offsets[op] = size
        size += -(-op.arg[1] * op.dtype.base.itemsize // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return offsets, size


def scratch_bytes(program: UOp) -> int:
    """Bytes of scratch space, aligned to 64, that each worker needs to run a PROGRAM."""
    return local_layout(_field(program, 2))[1]


def variable_names(program: UOp) -> tuple[str, ...]:
    """The DEFINE_VARs of a PROGRAM in the order in which the kernel takes their values."""
    linear = _field(program, 2)
    return tuple(sorted({op.arg[0] for op in linear.src if op.op is Ops.DEFINE_VAR}))


def launch_extent(program: UOp) -> UOp | None:
    """How far the launcher's (lo, hi) range over: the end of the THREAD loop, a CONST or an
    expression of variables. None for a kernel without one: it runs as a whole, once."""
    for op in _field(program, 2).src:
        if op.op is Ops.RANGE and op.arg[1] is AxisType.THREAD:
            extent: UOp = op.src[0]
            return extent
    return None


def has_prologue(program: UOp) -> bool:
    """Whether loops run before the THREAD loop, hence once in every call."""
    for op in _field(program, 2).src:
        if op.op is Ops.RANGE:
            return op.arg[1] is not AxisType.THREAD
    return False
