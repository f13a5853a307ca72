"""The driver: stages in order, watched, verified; PROGRAM filled field by field."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

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
from morok.ir import AxisType, KernelInfo, Level, Ops, UOp, check_node, find_faults, parse
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
    assert "twice(" in rendered.src[3].arg
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
    with pytest.raises(InvalidGraphError, match="got SINK"):
        do_linearize(sink(), renderer())


def test_a_field_is_filled_once() -> None:
    binary = get_program(sink(), renderer(), FakeCompiler())
    linear, rendered = UOp.program(*binary.src[:3]), UOp.program(*binary.src[:4])
    with pytest.raises(InvalidGraphError, match=r"without linear, got one with .* and linear"):
        do_linearize(linear, renderer())
    with pytest.raises(InvalidGraphError, match="without source"):
        do_render(rendered, renderer())
    with pytest.raises(InvalidGraphError, match="without binary"):
        do_compile(binary, FakeCompiler())


def stages_of(program: UOp) -> list[UOp]:
    """A PROGRAM with nothing filled, with its LINEAR, and so on."""
    return [UOp.program(*program.src[:count]) for count in range(2, 6)]


def test_the_text_of_a_program_names_what_is_filled() -> None:
    programs = stages_of(get_program(sink(), renderer(), FakeCompiler()))
    assert [program.tree(ids=False).splitlines()[0] for program in programs] == [
        "PROGRAM(stages=[])",
        'PROGRAM(stages=["linear"])',
        'PROGRAM(stages=["linear", "source"])',
        'PROGRAM(stages=["linear", "source", "binary"])',
    ]
    for program in programs:
        assert parse(program.tree()) is program
        assert check_node(program) is program
        filled = [name for name in FIELDS if getattr(program, name) is not None]
        assert filled == list(program.stages)


FIELDS = ("linear", "source", "binary")


@pytest.mark.parametrize("order", [o for n in range(1, 4) for o in permutations(range(3), n)])
@pytest.mark.parametrize("named", [FIELDS[:n] for n in range(4)])
def test_every_other_order_is_refused(order: tuple[int, ...], named: tuple[str, ...]) -> None:
    """All ways to fill some fields, under all names: one is right, and the rest is refused when it
    is built, by the verifier and by the parser."""
    binary = get_program(sink(), renderer(), FakeCompiler())
    src = (*binary.src[:2], *(binary.src[2 + place] for place in order))
    program = UOp(Ops.PROGRAM, dtypes.void, src, named)
    if order == tuple(range(len(order))) and len(named) == len(order):
        assert check_node(program) is UOp.program(*src)
        assert parse(program.tree()) is program
        return
    with pytest.raises(
        InvalidGraphError, match=r"PROGRAM\.(stages|linear|source|binary): expected"
    ):
        check_node(program)
    assert any(n is program for n, _ in find_faults(program, Level.TENSOR))
    with pytest.raises(InvalidGraphError, match=r"line 1: PROGRAM"):
        parse(well_formed_lines(program, named))
    if order != tuple(range(len(order))):
        with pytest.raises(InvalidGraphError, match=r"PROGRAM\."):
            UOp.program(*src)


def well_formed_lines(program: UOp, named: tuple[str, ...]) -> str:
    """The text of an ill-formed PROGRAM as if it were none: lines of errors say `arg=`."""
    first, _, rest = program.tree().partition("\n")
    stages = ", ".join(f'"{name}"' for name in named)
    assert first.startswith("[0] PROGRAM(")
    return f"[0] PROGRAM(stages=[{stages}])\n{rest}"


def test_names_that_are_no_stages_are_refused() -> None:
    for stages in (("source",), ("linear", "linear"), ("link",), "linear", None, ["linear"]):
        with pytest.raises((InvalidGraphError, TypeError)):
            check_node(UOp(Ops.PROGRAM, dtypes.void, (sink(), UOp.new_device()), stages))


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
    assert "twice(" in printed
    with config.override(debug=3):
        get_program(sink(), renderer())
    printed = capsys.readouterr().err
    assert "-- stage" not in printed
    assert "twice(" in printed


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
