"""What is written and drawn happens in the order of the program, whenever it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from ways import realised_after_every_operation

import morok as mk
from morok.tensor import Tensor


@pytest.fixture(params=["lazy", "stepwise"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here, with everything lazy and with everything realised at once."""
    with realised_after_every_operation() if request.param == "stepwise" else nullcontext():
        yield


def test_case_13_read_before_and_after_a_write() -> None:
    a = Tensor([1.0, 2.0, 3.0])
    b = a + 1
    a.assign(a * 10)
    c = a + b
    assert b.tolist() == [2, 3, 4]
    assert a.tolist() == [10, 20, 30]
    assert c.tolist() == [12, 23, 34]


@pytest.mark.parametrize("read_first", ["a", "b", "c"])
def test_case_13_in_whatever_order_it_is_asked_for(read_first: str) -> None:
    a = Tensor(np.arange(4, dtype=np.int32))
    b = a * 2
    a += 100
    c = a - b
    found = {"a": a, "b": b, "c": c}
    wanted = {"a": [100, 101, 102, 103], "b": [0, 2, 4, 6], "c": [100, 99, 98, 97]}
    assert found[read_first].tolist() == wanted[read_first]
    for name, tensor in found.items():
        assert tensor.tolist() == wanted[name]


def test_case_13_disjoint_partial_writes_to_one_buffer() -> None:
    a = Tensor(np.zeros(6, np.float32))
    a[:3] = 1.0
    a[3:] = a[:3] + 1
    assert a.tolist() == [1, 1, 1, 2, 2, 2]
    a[1:5] = a[0:4] * 10 + a[2:6]  # overlaps: reads what was there before
    assert a.tolist() == [1, 11, 12, 12, 22, 2]


def test_case_13_a_slice_is_changed_exactly_once() -> None:
    t = Tensor(np.arange(1, 6, dtype=np.float32))
    before = t.numpy().copy()
    t[:3] *= 10
    for _ in range(3):  # asking again does not do it again
        assert t.tolist() == [10, 20, 30, 4, 5]
    t[2:] -= t[:3]
    assert t.tolist() == [10, 20, 20, -16, -25]
    np.testing.assert_array_equal(before, [1, 2, 3, 4, 5])


def test_two_tensors_that_depend_on_each_other() -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([10.0, 20.0])
    for _ in range(5):
        old = a + 0
        a.assign(a + b)
        b.assign(b - old)
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    for _ in range(5):
        x, y = x + y, y - x
    assert a.tolist() == x.tolist()
    assert b.tolist() == y.tolist()


def test_arrays_of_earlier_steps_stay() -> None:
    """Outputs that somebody holds are never overwritten."""
    weights = Tensor(np.zeros(3, np.float32))
    shown = []
    for step in range(5):
        weights.assign(weights + step)
        shown.append(weights.numpy())
    assert [a.tolist() for a in shown] == [[0] * 3, [1] * 3, [3] * 3, [6] * 3, [10] * 3]


def test_a_method_of_two_objects() -> None:
    """Without jit: what is remembered of one call never answers another."""

    class Scaled:
        def __init__(self, scale: float) -> None:
            self.scale = Tensor(scale)

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.scale

    two, three = Scaled(2.0), Scaled(3.0)
    assert [f(Tensor(5.0)).item() for f in (two, three, two, three)] == [10, 15, 10, 15]
    assert [f(Tensor(n)).item() for n in (1.0, 2.0) for f in (two, three)] == [2, 3, 4, 6]


def test_case_17_a_tensor_within_a_list_changes_from_call_to_call() -> None:
    def next_one(xs: list[Tensor]) -> Tensor:
        return xs[0] + 1

    assert [next_one([Tensor(n)]).item() for n in range(5)] == [1, 2, 3, 4, 5]


DRAWS: list[Callable[[], Tensor]] = [
    lambda: Tensor.rand(7, 5),
    lambda: Tensor.randn(33),
    lambda: Tensor.randint(-3, 12, (40,)),
    lambda: Tensor.ones(64).dropout(0.5, training=True),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_case_19_random_numbers_differ_and_come_back(draw: Callable[[], Tensor]) -> None:
    mk.manual_seed(1234)
    first, second = draw().tolist(), draw().tolist()
    assert first != second
    mk.manual_seed(1234)
    assert draw().tolist() == first
    assert draw().tolist() == second
    mk.manual_seed(1235)
    assert draw().tolist() not in (first, second)


@pytest.mark.parametrize("draw", DRAWS)
def test_case_19_a_value_is_fixed_when_it_is_created(draw: Callable[[], Tensor]) -> None:
    """Computed together, in the other order, again, or after others were drawn: the same."""
    mk.manual_seed(7)
    a, b = draw(), draw()
    in_order = a.tolist(), b.tolist()
    mk.manual_seed(7)
    c, d = draw(), draw()
    draw().realize()
    assert d.tolist() == in_order[1]
    assert c.tolist() == in_order[0]
    mk.manual_seed(7)
    e, f = draw(), draw()
    Tensor.realize(f, e)
    assert (e.tolist(), f.tolist()) == in_order
    assert ((e - c).abs().max().item(), (f * 1 - d).abs().max().item()) == (0, 0)


def test_lazy_and_stepwise_draw_the_same_numbers() -> None:
    """Bit for bit."""
    mk.manual_seed(0)
    first = Tensor.rand(4).numpy()
    mk.manual_seed(0)
    with realised_after_every_operation():
        again = Tensor.rand(4).numpy()
    np.testing.assert_array_equal(first, again)
    assert ((first >= 0) & (first < 1)).all()
