"""Random tensor programs: the kernels of rangeify, interpreted, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from bench._views import views
from bench.fuzz import check_compiled, check_interpreted, execute, schedule_of
from bench.programs import WITH_ELEMENTS, Program, program
from morok import config
from morok.dtype import dtypes
from morok.ir import GroupOp, Ops, UOp
from morok.ir.interpret import interpret_kernel

# Seeds that went wrong once. 71: a shrunk view at a kernel's own index is not the kernel's value.
# 1225: two buffers of one element swap contents; the copies must not join the kernels that
# overwrite. 143, 447: a value that reads what its kernel's other output overwrites, at another
# place.
FAILED_ONCE = (40, 71, 143, 235, 242, 269, 292, 447, 1225)


@pytest.mark.parametrize("block", range(10))
def test_random_programs(block: int) -> None:
    for seed in range(10_000 + 30 * block, 10_000 + 30 * (block + 1)):
        assert check_interpreted(program(seed)) is None, f"seed {seed}"


@pytest.mark.parametrize("block", range(10))
def test_random_programs_that_index(block: int) -> None:
    for seed in range(WITH_ELEMENTS + 20 * block, WITH_ELEMENTS + 20 * (block + 1)):
        assert check_interpreted(program(seed)) is None, f"seed {seed}"


@pytest.mark.parametrize("block", range(10))
def test_random_views(block: int) -> None:
    for seed in range(1_000_000 + 30 * block, 1_000_000 + 30 * (block + 1)):
        assert check_interpreted(views(seed)) is None, f"seed {seed}"


def test_random_views_have_every_movement_op_in_long_chains() -> None:
    """As deep as is promised: eight in a row, over ones and primes, on reductions too."""
    longest, below, sizes, ops = 0, set(), set(), set()
    for seed in range(200):
        order = UOp(Ops.SINK, dtypes.void, views(seed).roots).toposort()
        depth: dict[UOp, int] = {}
        for u in order:
            sizes |= set(u.shape or ())
            depth[u] = 0
            if u.op in GroupOp.Movement:
                ops.add(u.op)
                depth[u] = depth[u.src[0]] + 1
                below.add(u.src[0].op)
        longest = max(longest, *depth.values())
    assert longest >= 8
    assert ops == set(GroupOp.Movement)
    assert below > {Ops.REDUCE_AXIS, Ops.PARAM, Ops.ADD, Ops.MAX, Ops.WHERE, Ops.LT}
    assert sizes > {1, 2, 3, 5, 7, 11, 13, 17}


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seeds_that_failed_once(seed: int) -> None:
    assert check_interpreted(program(seed)) is None


def test_a_gate_that_differs_by_lane_beside_a_loaded_index() -> None:
    """The gate of the last lanes holds always: their places must be known exactly without it."""
    with config.override(verify=True):
        assert check_compiled({0: program(1750992)}) == {}


def _param(slot: int, *shape: int) -> UOp:
    size = 1
    for d in shape:
        size *= d
    p = UOp(Ops.PARAM, dtypes.int32, (UOp.new_device(),), (slot, size))
    return UOp(Ops.RESHAPE, dtypes.int32, (p, UOp.shape_const(shape)))


def _write(target: UOp, value: UOp) -> UOp:
    return UOp(Ops.AFTER, target.dtype, (target, UOp(Ops.STORE, dtypes.void, (target, value))))


def _flip(x: UOp, *axes: bool) -> UOp:
    return UOp(Ops.FLIP, x.dtype, (x,), axes)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_in_place_writes_read_the_old_contents(n: int, rng) -> None:
    """a <- a.T, a <- flip(a), swap(a, b), and a reader of the old a: as if everything were copied
    first."""
    a, b = rng.integers(-9, 9, (2, n, n)).astype("int32")
    pa, pb = _param(0, n, n), _param(1, n, n)
    cases = [
        ((_write(pa, UOp(Ops.PERMUTE, pa.dtype, (pa,), (1, 0))),), (a.T,)),
        ((_write(pa, _flip(pa, True, False)),), (a[::-1],)),
        ((_write(pa, pb), _write(pb, pa)), (b, a)),
        ((_write(pa, pa + pb), _flip(pa, True, True)), (a + b, a[::-1, ::-1])),
        (
            (_write(pa, pb + 1), _write(pb, _flip(pa, True, False)), pa + pb),
            (b + 1, a[::-1], a + b),
        ),
    ]
    for roots, expected in cases:
        p = Program(roots, expected, (a, b))
        got = execute(p, schedule_of(p), interpret_kernel)
        for want, have in zip(expected, got, strict=True):
            assert (want.reshape(-1) == have).all()


def test_the_same_program_gives_the_same_kernels_whatever_the_buffers() -> None:
    """Kernels name no buffers: only then can they be shared."""
    x, y = _param(0, 4, 5), _param(1, 4, 5)
    first = schedule_of(Program((x * y + x,), (), ()))
    second = schedule_of(Program((_param(7, 4, 5) * _param(3, 4, 5) + _param(7, 4, 5),), (), ()))
    assert [c.src[0] for c in first.calls] == [c.src[0] for c in second.calls]


def test_programs_are_the_same_in_every_run() -> None:
    assert program(5).roots == program(5).roots


def test_a_bare_constant_or_buffer_can_be_a_root() -> None:
    a = np.arange(6, dtype="int32")
    roots = (UOp.const(dtypes.int32, 7), UOp(Ops.PARAM, dtypes.int32, (UOp.new_device(),), (0, 6)))
    p = Program(roots, (np.array(7), a), (a,))
    got = execute(p, schedule_of(p), interpret_kernel)
    assert got[0] == 7
    assert (got[1] == a).all()
