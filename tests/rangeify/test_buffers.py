"""Which values get a buffer, of how many elements, and which share a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from morok import Tensor
from morok.ir import Estimates, Ops, UOp
from morok.rangeify import Schedule
from morok.rangeify.places import Decisions
from morok.rangeify.ranges import Rangeify
from tests.rangeify.scheduling import schedule_of

ROWS, COLUMNS = 8, 1000


def between(schedule: Schedule) -> list[UOp]:
    """The buffers that are neither the caller's nor results."""
    named = dict.fromkeys(b for call in schedule.calls for b in call.src[1:])
    return [b for b in named if b.op is Ops.BUFFER and b not in schedule.outputs]


def costs(schedule: Schedule) -> list[Estimates]:
    return [call.src[0].arg.estimates for call in schedule.calls]


@pytest.fixture
def x(rng: np.random.Generator) -> Tensor:
    return Tensor(rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)).realize()


def test_axes_along_which_a_value_stands_still_are_not_kept(x: Tensor) -> None:
    """The long function of a row's sum, wanted for every column by two kernels: a number a row."""
    of_row = (x.sum(1, keepdim=True).sin() + 2).log().exp().expand(ROWS, COLUMNS)
    schedule = schedule_of((x * of_row).sum(0), (x.T * of_row.T).max(1) + x.sum())
    assert between(schedule)
    assert all(b.arg <= ROWS for b in between(schedule))


def test_a_row_is_no_longer_than_what_varies_in_it(x: Tensor) -> None:
    """exp(x[i, j]) for each of 50 k: computed once for each i and j."""
    weight = Tensor(np.ones(50, np.float32)).realize()
    (cost,) = costs(schedule_of((x.exp().reshape(ROWS, COLUMNS, 1) * weight).sum(1)))
    products = ROWS * COLUMNS * 50
    assert cost.flops <= 2 * products + ROWS * COLUMNS


def test_constants_and_counters_have_no_buffer(x: Tensor) -> None:
    """However many kernels want them: they are arithmetic on the loops."""
    ramp = Tensor.arange(COLUMNS).float() + Tensor.full((ROWS, COLUMNS), 3.0)
    schedule = schedule_of((x * ramp).sum(1), (x.T + ramp.T).max(1), ramp.sum(0) * x.sum(0))
    assert not between(schedule)


def test_outputs_of_the_same_loops_share_a_kernel(x: Tensor) -> None:
    """What they read in common is read once."""
    schedule = schedule_of(x * 2, x + 1, x.exp())
    (cost,) = costs(schedule)
    assert len(schedule.outputs) == len(schedule.calls[0].src[0].src) == 3
    n = ROWS * COLUMNS * 4
    assert (cost.bytes_read, cost.bytes_written) == (n, 3 * n)


def test_a_result_that_another_is_made_of_shares_its_kernel(x: Tensor) -> None:
    """Also through dims of one element: the product is stored where it is also made positive."""
    weight = Tensor(np.ones((4, ROWS, 1), np.float32)).realize()
    product = x.reshape(1, ROWS, COLUMNS).conv2d(weight)
    schedule = schedule_of(product.relu(), product)
    assert len(schedule.calls) == 1


def test_a_sum_in_several_kernels_is_stored_with_what_is_made_of_it(x: Tensor) -> None:
    mean = x.mean(1)
    schedule = schedule_of(mean * 2, x - mean.reshape(ROWS, 1))
    assert len(schedule.calls) == 2
    assert len(schedule.calls[0].src[0].src) == 2
    assert sum(cost.bytes_read for cost in costs(schedule)) <= (2 * x.numel() + 2 * ROWS) * 4


def test_memory_is_overwritten_after_it_was_read(x: Tensor) -> None:
    """The column sums are those of before the write, whichever is asked for first."""
    before = x.numpy().copy()
    sums = x.sum(0)
    x.assign(x + 1)
    Tensor.realize(x, sums)
    np.testing.assert_allclose(sums.numpy(), before.sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(x.numpy(), before + 1)


def test_a_long_sum_is_one_kernel_in_blocks() -> None:
    """2**17 to one is split in two where a factor exists, within the kernel."""
    x = Tensor(np.ones((1 << 17, 3), np.float32)).realize()
    schedule = schedule_of(x.sum(0))
    (sink,) = (call.src[0] for call in schedule.calls)
    sums = [u for u in sink.toposort() if u.op is Ops.REDUCE]
    assert [[r.vmax for r in u.ended_ranges] for u in sums] == [[4095], [31]]
    assert not between(schedule)


def test_overwritten_buffers_are_copied_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs of arrays change places, they are found together: one walk over the graph
    finds them, a second one has them."""
    runs = []
    real = Rangeify.run

    def counted(self: Rangeify) -> Decisions:
        runs.append(self)
        return real(self)

    monkeypatch.setattr(Rangeify, "run", counted)
    arrays = [Tensor(np.full(4, i, np.float32)) for i in range(12)]
    values = [array + 1 for array in arrays]
    for i, array in enumerate(arrays):
        array.assign(values[i ^ 1])
    Tensor.realize(*arrays)
    assert len(runs) <= 2
    assert [array.tolist() for array in arrays] == [[(i ^ 1) + 1.0] * 4 for i in range(12)]
