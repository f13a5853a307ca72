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
from morok.tools.examples import example
from tests.codegen.compiled import build, compiler, launch, renderer
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
def programs() -> dict[Ops, UOp]:
    """The PROGRAMs of all kernels, rendered."""
    device = UOp.new_device()
    out = {}
    for op in KERNELS:
        root = case(op).root
        if root.op is Ops.LINEAR:
            source = UOp.new_source(renderer().render(root, "every_op"))
            info = KernelInfo("every_op")
            out[op] = UOp.program(UOp.new_sink(info=info), device, root, source)
        else:
            out[op] = get_program(root, renderer())
    return out


@cache
def kernels() -> dict[Ops, object]:
    """All kernels, compiled together."""
    return dict(zip(programs(), build(list(programs().values())), strict=True))


@WITH_KERNEL
def test_compiled_and_run(op: Ops) -> None:
    wanted = case(op)
    results = launch(kernels()[op], programs()[op], wanted.arrays, dict(wanted.variables))
    same(results, wanted)


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
    with pytest.raises(InvalidGraphError, match=f"C has no {op.name}"):
        renderer().render(UOp.new_linear(*example(op).toposort()), "k")


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
