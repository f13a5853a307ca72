"""The driver: stages in order, watched, verified; PROGRAM filled field by field."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from morok import config
from morok.codegen import (
    PIPELINE,
    do_compile,
    do_linearize,
    do_render,
    get_program,
    kernel_name,
    run_pipeline,
    watch_stages,
)
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import AxisType, KernelInfo, Level, Ops, UOp
from tests.codegen import kernels
from tests.codegen.compiled import compiler, renderer


class FakeCompiler:
    identity = "fake"

    def compile(self, sources: Sequence[str]) -> bytes:
        return "".join(sources).encode()


def sink(name: str = "twice") -> UOp:
    i = UOp.range(8, 0, AxisType.LOOP, renumbered=True)
    x = UOp.param(1, dtypes.float32.ptr(), 8).at(i)
    store = UOp.param(0, dtypes.float32.ptr(), 8).at(i).store(x * 2.0, i)
    return UOp(Ops.SINK, dtypes.void, (store,), KernelInfo(name))


def test_each_step_fills_one_field() -> None:
    program = UOp.program(sink(), UOp.new_device())
    linear = do_linearize(program, renderer())
    assert [s.op for s in linear.src] == [Ops.SINK, Ops.DEVICE, Ops.LINEAR]
    rendered = do_render(linear, renderer())
    assert rendered.src[:3] == linear.src
    assert "void twice(" in rendered.src[3].arg
    binary = do_compile(rendered, FakeCompiler())
    assert binary.src[:4] == rendered.src
    assert binary.src[4].arg == rendered.src[3].arg.encode()
    assert get_program(sink(), renderer(), FakeCompiler()) is binary


def test_compiled_by_the_real_compiler() -> None:
    program = get_program(sink(), renderer(), compiler())
    assert program.src[4].arg.startswith(b"\x7fELF")


def test_steps_out_of_order_are_refused() -> None:
    program = UOp.program(sink(), UOp.new_device())
    with pytest.raises(InvalidGraphError, match="with its linear"):
        do_render(program, renderer())
    with pytest.raises(InvalidGraphError, match="with its source"):
        do_compile(do_linearize(program, renderer()), FakeCompiler())


def test_stages_stand_in_the_order_of_their_numbers() -> None:
    numbers = [stage.number for stage in PIPELINE]
    assert numbers == sorted(numbers)
    assert numbers[0] == 8
    assert numbers[-1] == 22


def test_stages_can_be_watched() -> None:
    seen: list[tuple[int, UOp]] = []
    with watch_stages(lambda stage, graph: seen.append((stage.number, graph))):
        linear = run_pipeline(sink(), renderer())
    assert [number for number, _ in seen] == [stage.number for stage in PIPELINE]
    assert seen[-1][1] is linear
    run_pipeline(sink(), renderer())
    assert len(seen) == len(PIPELINE)


def test_debug_prints_sources_and_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(debug=4):
        get_program(sink(), renderer())
    printed = capsys.readouterr().err
    assert "-- stage 8, post-opt symbolic" in printed
    assert "void twice(" in printed
    with config.override(debug=3):
        get_program(sink(), renderer())
    printed = capsys.readouterr().err
    assert "-- stage" not in printed
    assert "void twice(" in printed


def test_errors_name_the_stage() -> None:
    x = UOp.param(1, dtypes.float32.ptr(), 8)
    i = UOp.range(8, 0, AxisType.LOOP, renumbered=True)
    open_range = UOp.param(0, dtypes.float32.ptr(), 8).at(i).store(x.at(i))
    with config.override(verify=False), pytest.raises(InvalidGraphError) as error:
        run_pipeline(UOp(Ops.SINK, dtypes.void, (open_range,), KernelInfo("bad")), renderer())
    assert error.value.stage == "linearize"


@pytest.mark.parametrize("name", ["matmul 8x16x12", "softmax 3x16", "padded 13", "conv 1 3 7 3"])
def test_every_stage_is_verified(name: str) -> None:
    with config.override(verify=True):
        linear = run_pipeline(kernels.CASES[name]().sink, renderer())
    assert linear.op is Ops.LINEAR
    assert {stage.level for stage in PIPELINE} == {Level.KERNEL, Level.LOWERED, Level.LINEAR}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("softmax 3x4", "softmax_3x4"),
        ("9to5", "k_9to5"),
        ("…", "kernel"),
        ("", "kernel"),
        ("double", "k_double"),
    ],
)
def test_names_are_identifiers(given: str, wanted: str) -> None:
    assert kernel_name(sink(given)) == wanted


def test_equal_kernels_give_equal_text() -> None:
    assert get_program(sink(), renderer()).src[3] is get_program(sink(), renderer()).src[3]
