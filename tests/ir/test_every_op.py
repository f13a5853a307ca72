"""Every op in every column: built, checked, printed, parsed, pickled; interpreted at each level and
compiled where it belongs in a kernel; and refused by name where it does not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from morok import config
from morok.codegen import get_program, run_pipeline
from morok.errors import InvalidGraphError
from morok.ir import (
    OPS,
    AxisType,
    KernelInfo,
    Level,
    Ops,
    UOp,
    fields_of,
    find_faults,
    interpret_kernel,
    interpret_linear,
    interpret_tensor,
    verify,
)
from morok.renderers import LLVMRenderer
from morok.tools.examples import example
from tests.codegen.compiled import (
    build,
    c_renderer,
    compiler,
    launch,
    llvm_renderer,
    renderer,
)
from tests.ir import op_kernels, op_tensors
from tests.ir.op_kernels import KERNELS, ONLY_C, ONLY_LINEAR, Case

EVERY = pytest.mark.parametrize("op", list(Ops), ids=lambda op: op.name)
WITH_KERNEL = pytest.mark.parametrize("op", list(KERNELS), ids=lambda op: op.name)

NOT_IN_A_KERNEL = {
    **dict.fromkeys(
        (Ops.REDUCE_AXIS, Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP),
        "rangeify makes loops and indices of it",
    ),
    **dict.fromkeys(
        (Ops.ALLREDUCE, Ops.COPY, Ops.MSTACK, Ops.MSELECT, Ops.MULTI),
        "a kernel runs on one device",
    ),
    **dict.fromkeys(
        (Ops.BUFFER, Ops.BUFFER_VIEW, Ops.UNIQUE, Ops.LUNIQUE, Ops.DEVICE),
        "memory comes to a kernel as PARAMs",
    ),
    **dict.fromkeys(
        (Ops.CALL, Ops.FUNCTION, Ops.TUPLE, Ops.GET_TUPLE, Ops.CUSTOM_FUNCTION),
        "calls are the schedule's",
    ),
    **dict.fromkeys(
        (Ops.PROGRAM, Ops.LINEAR, Ops.SOURCE, Ops.PROGRAM_BINARY), "it holds what a kernel becomes"
    ),
    **dict.fromkeys((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), "it speaks to autograd"),
}
"""Ops that the verifier refuses in a kernel, and why they have no business there."""

NOT_IN_C = {Ops.SPECIAL: "a CPU has no work-items: the renderer refuses it"}


def test_every_op_is_compiled_or_says_why_not() -> None:
    columns = (KERNELS.keys(), NOT_IN_A_KERNEL.keys(), NOT_IN_C.keys())
    assert sorted(op for column in columns for op in column) == sorted(Ops)


@EVERY
def test_fields_have_the_names_of_the_row(op: Ops) -> None:
    node = example(op)
    spec = OPS[op]
    assert list(fields_of(node)) == [*(source.name for source in spec.sources), *spec.args]
    assert node.fields == fields_of(node)
    for name, value in fields_of(node).items():
        if name != "src":
            assert getattr(node, name) == value


@EVERY
def test_the_example_passes_the_verifier_of_some_level(op: Ops) -> None:
    node = example(op)
    found = {level: [fault.rule for _, fault in find_faults(node, level)] for level in Level}
    rules = {rule for rules in found.values() for rule in rules}
    assert "local" not in rules
    assert any("level-ops" not in rules for rules in found.values())


KINDS = {
    "Void": "END STORE SINK CALL FUNCTION TUPLE PROGRAM LINEAR SOURCE PROGRAM_BINARY IF ENDIF"
    " UNIQUE LUNIQUE DEVICE GROUP CUSTOM CUSTOM_FUNCTION",
    "Index": "RANGE SPECIAL DEFINE_VAR BIND",
    "<2 x Float32>": "GEP PTRCAT",
    "<4 x Float32>": "VECTORIZE VCONST CONTRACT WMMA",
    "<8 x Float32>": "CAT",
    "Float32*": "POINTER_INDEX AFTER BARRIER PARAM",
    "Float32*local": "DEFINE_LOCAL",
    "Float32*reg": "DEFINE_REG",
    "Float16": "CAST",
    "Int32": "BITCAST NOT IDIV MOD FLOORDIV FLOORMOD AND OR XOR SHL SHR",
    "Bool": "LT LE GT GE EQ NE",
    "UInt64": "THREEFRY",
}
SHAPES = {
    (10,): "REDUCE_AXIS",
    (8,): "ALLREDUCE COPY MSTACK MSELECT DETACH CONTIGUOUS_BACKWARD NOOP",
    (16,): "MULTI",
    (1024,): "BUFFER",
    (256,): "BUFFER_VIEW",
    (128,): "BUFFERIZE AFTER BARRIER PARAM",
    (4, 4): "GET_TUPLE CONTIGUOUS",
    (6, 4): "RESHAPE",
    (4, 2, 3): "PERMUTE",
    (3, 4): "EXPAND FLIP",
    (5, 6): "PAD",
    (2, 3): "SHRINK",
    None: KINDS["Void"] + " POINTER_INDEX DEFINE_LOCAL DEFINE_REG",
}


@EVERY
def test_dtype_and_shape_of_the_result(op: Ops) -> None:
    """What page and guide say of the examples; an op that is not named is a Float32 scalar."""
    node = example(op)
    dtype = next((kind for kind, ops in KINDS.items() if op.name in ops.split()), "Float32")
    shape = next((dims for dims, ops in SHAPES.items() if op.name in ops.split()), ())
    assert str(node.dtype) == dtype
    assert node.shape == shape


BELOW_TENSORS = (
    "DEFINE_REG DEFINE_LOCAL UNROLL CONTRACT WMMA SPECIAL IF ENDIF LOAD POINTER_INDEX PTRCAT CAT"
    " GEP VCONST LINEAR"
)
ABOVE_LINEAR = "REDUCE BUFFERIZE UNROLL CONTRACT PTRCAT CONTIGUOUS PRECAST BIND"


@pytest.mark.parametrize("level", [Level.TENSOR, Level.KERNEL, Level.LOWERED, Level.LINEAR])
@EVERY
def test_each_level_has_its_ops(op: Ops, level: Level) -> None:
    """The verifier names an op of another level, and no other."""
    foreign = {
        Level.TENSOR: {Ops[name] for name in BELOW_TENSORS.split()},
        Level.KERNEL: {*NOT_IN_A_KERNEL, Ops.IF, Ops.ENDIF},
        Level.LOWERED: {*NOT_IN_A_KERNEL, Ops.IF, Ops.ENDIF},
        Level.LINEAR: {*NOT_IN_A_KERNEL, *(Ops[name] for name in ABOVE_LINEAR.split())},
    }
    node = example(op)
    root = UOp.new_linear(*node.toposort()) if level is Level.LINEAR else node
    named = {n.op for n, fault in find_faults(root, level) if fault.rule == "level-ops"}
    assert (op in named) == (op in foreign[level])


# Kernels ------------------------------------------------------------------------------------------


@cache
def case(op: Ops) -> Case:
    return KERNELS[op]()


def same(results: list[np.ndarray], wanted: Case) -> None:
    for slot, want in wanted.wanted.items():
        got = results[slot]
        assert got.dtype == np.asarray(wanted.arrays[slot]).dtype
        if wanted.exact:
            assert np.array_equal(got, want.astype(got.dtype)), (got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=op_kernels.RTOL, atol=1e-6)


@WITH_KERNEL
def test_the_kernel_has_the_op_and_is_well_formed(op: Ops) -> None:
    root = case(op).root
    linear = root if root.op is Ops.LINEAR else run_pipeline(root, renderer())
    verify(root, Level.LINEAR if root is linear else Level.KERNEL)
    verify(linear, Level.LINEAR)
    assert root.has(op) or any(node.op is op for node in linear.src)


@WITH_KERNEL
def test_interpreted_as_a_graph(op: Ops) -> None:
    wanted = case(op)
    if op in ONLY_C or op in ONLY_LINEAR:
        root = UOp.new_sink(wanted.root.src[-1]) if op in ONLY_LINEAR else wanted.root
        with pytest.raises(InvalidGraphError, match=op.name):
            interpret_kernel(root, wanted.arrays, wanted.variables)
    else:
        same(interpret_kernel(wanted.root, wanted.arrays, wanted.variables), wanted)


@WITH_KERNEL
def test_interpreted_as_a_linear(op: Ops) -> None:
    wanted = case(op)
    linear = wanted.root if op in ONLY_LINEAR else run_pipeline(wanted.root, renderer())
    if op in ONLY_C:
        with pytest.raises(InvalidGraphError, match=op.name):
            interpret_linear(linear, wanted.arrays, wanted.variables)
    else:
        same(interpret_linear(linear, wanted.arrays, wanted.variables), wanted)


@cache
def programs(language: str) -> dict[Ops, UOp]:
    """The PROGRAMs of all kernels that the language has, rendered."""
    device = UOp.new_device()
    target = c_renderer() if language == "c" else llvm_renderer()
    out = {}
    for op in KERNELS:
        if op in ONLY_C and language != "c":
            continue
        root = case(op).root
        if root.op is Ops.LINEAR:
            source = UOp.new_source(target.render(root, "every_op"))
            info = KernelInfo("every_op")
            out[op] = UOp.program(UOp.new_sink(info=info), device, root, source)
        else:
            out[op] = get_program(root, target)
    return out


@cache
def kernels(language: str) -> dict[Ops, object]:
    """All kernels, compiled together."""
    found = programs(language)
    return dict(zip(found, build(list(found.values())), strict=True))


@pytest.mark.parametrize("language", ["c", "llvm"])
@WITH_KERNEL
def test_compiled_and_run(op: Ops, language: str) -> None:
    wanted = case(op)
    if op in ONLY_C and language != "c":
        with pytest.raises(InvalidGraphError, match=f"LLVM IR has no {op.name}"):
            get_program(wanted.root, llvm_renderer())
        return
    program = programs(language)[op]
    same(launch(kernels(language)[op], program, wanted.arrays, dict(wanted.variables)), wanted)


@pytest.mark.parametrize("op", NOT_IN_A_KERNEL, ids=lambda op: op.name)
def test_refused_in_a_kernel(op: Ops) -> None:
    """In a kernel, and in its LINEAR, the verifier names it."""
    node = example(op)
    for level, root in (
        (Level.KERNEL, UOp.new_sink(node, info=KernelInfo("k"))),
        (Level.LINEAR, UOp.new_linear(*node.toposort())),
    ):
        with config.override(verify=True), pytest.raises(InvalidGraphError) as caught:
            verify(root, level, stage="a stage")
        error = caught.value
        assert error.rule == "level-ops"
        found = [n.op for n, fault in find_faults(root, level) if fault.rule == "level-ops"]
        assert op in found
        assert f"an op of the {level.value} level" in error.expected


@pytest.mark.parametrize("op", NOT_IN_C, ids=lambda op: op.name)
def test_refused_by_the_renderer(op: Ops) -> None:
    for target, name in ((c_renderer(), "C"), (LLVMRenderer(), "LLVM IR")):
        with pytest.raises(InvalidGraphError, match=f"{name} has no {op.name}"):
            target.render(UOp.new_linear(*example(op).toposort()), "k")


def run(wanted: Case) -> None:
    """Interpreted as a graph and as a LINEAR, compiled and run: as NumPy says."""
    program = get_program(wanted.root, renderer())
    (kernel,) = build([program])
    variables = dict(wanted.variables)
    same(interpret_kernel(wanted.root, wanted.arrays, variables), wanted)
    same(interpret_linear(program.linear, wanted.arrays, variables), wanted)
    same(launch(kernel, program, wanted.arrays, variables), wanted)


def test_a_tile_product_closes_ranges() -> None:
    run(op_kernels.tiles())


@pytest.mark.parametrize("axis", AxisType, ids=str)
def test_a_loop_of_every_type(axis: AxisType) -> None:
    """A CPU runs them all, those of work-items too, but for the stand-in of cached index maths."""
    wanted = op_kernels.along(axis)
    if axis is AxisType.PLACEHOLDER:
        with config.override(verify=True), pytest.raises(InvalidGraphError, match="Placeholder"):
            verify(wanted.root, Level.KERNEL)
    else:
        run(wanted)


def test_a_tile_of_a_warp_is_refused_without_tensor_cores() -> None:
    """WMMA is lowered for one thread; the layout of a warp's registers is the hardware's."""
    tile = example(Ops.WMMA)
    target = UOp(Ops.INDEX, tile.dtype, op_kernels.memory(0).at(0).src, False)
    sink = op_kernels.sink(target.store(tile))
    with pytest.raises(InvalidGraphError, match="tensor cores of CUDA"):
        get_program(sink, renderer())
    with pytest.raises(InvalidGraphError, match="a tile of one thread, got 32 threads of CUDA"):
        interpret_kernel(sink, [np.zeros(op_kernels.N, np.float32)])


# Tensors ------------------------------------------------------------------------------------------


def test_every_op_without_a_kernel_is_interpreted_or_says_why_not() -> None:
    outside = {*NOT_IN_A_KERNEL, *NOT_IN_C}
    assert outside == op_tensors.TENSORS.keys() | op_tensors.NO_VALUE.keys()


@pytest.mark.parametrize("op", op_tensors.TENSORS, ids=lambda op: op.name)
def test_interpreted_as_numpy_computes_it(op: Ops) -> None:
    graph, inputs, wanted = op_tensors.TENSORS[op]()
    assert graph.has(op)
    results = interpret_tensor(graph, inputs)
    if not isinstance(results, list):
        results, wanted = [results], [wanted]
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("op", op_tensors.NO_VALUE, ids=lambda op: op.name)
def test_what_has_no_value_is_refused_by_name(op: Ops) -> None:
    node = example(op)
    memories = [m for m in node.toposort() if m.op in (Ops.BUFFER, Ops.PARAM)]
    with pytest.raises(InvalidGraphError, match=op.name):
        interpret_tensor(node, {m: np.zeros(m.size, np.float32) for m in memories})


def test_the_compiler_fills_a_program_with_the_artifacts() -> None:
    program = get_program(case(Ops.CONST).root, renderer(), compiler())
    assert [s.op for s in program.src] == [
        *(Ops.SINK, Ops.DEVICE, Ops.LINEAR, Ops.SOURCE, Ops.PROGRAM_BINARY)
    ]
    assert program.binary.bytes[:4] == b"\x7fELF"
    assert "every_op" in program.source.code
