"""Jitted functions against the same functions run plainly: arguments, results, what re-traces."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

import morok as mk
from morok.errors import JitError, ShapeError
from morok.tensor import Tensor

Pair = namedtuple("Pair", "first second")


def test_a_tensor_in_a_list_argument() -> None:
    @mk.jit
    def plus_one(tensors):
        return tensors[0] + 1

    seen = [plus_one([Tensor([float(i)])]).item() for i in range(5)]
    assert seen == [1, 2, 3, 4, 5]
    assert plus_one.captures == 1


def test_half_of_a_buffer_fed_back() -> None:
    @mk.jit
    def move(buffer):
        half = buffer.shape[0] // 2
        return Tensor.cat(buffer[half:], buffer[:half] + 1, dim=0)

    n = 1 << 20
    plain = np.arange(n, dtype=np.int32)
    buffer = Tensor(plain)
    for _ in range(6):
        plain = np.concatenate([plain[n // 2 :], plain[: n // 2] + 1])
        buffer = move(buffer)
        assert np.array_equal(buffer.numpy(), plain)


def test_half_of_a_buffer_written_by_the_other() -> None:
    @mk.jit
    def move(buffer):
        buffer[: buffer.shape[0] // 2] = buffer[buffer.shape[0] // 2 :] + 1
        return buffer

    n = 1 << 20
    plain = np.arange(n, dtype=np.int32)
    buffer = Tensor(plain)
    for _ in range(6):
        plain[: n // 2] = plain[n // 2 :] + 1
        assert move(buffer) is buffer
        assert np.array_equal(buffer.numpy(), plain)


def test_a_method_on_two_objects() -> None:
    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        @mk.jit
        def times(self, x):
            return x * self.by

    two, three = Scale(2), Scale(3)
    for _ in range(4):
        assert two.times(Tensor(5)).item() == 10
        assert three.times(Tensor(5)).item() == 15
    three.by = 4
    for _ in range(4):
        assert three.times(Tensor(5)).item() == 20


def test_a_method_on_two_objects_with_tensors_is_one_recording() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = Tensor(by)

        @mk.jit
        def times(self, x):
            return x * self.by

    two, three = Scale(2), Scale(3)
    for i in range(5):
        assert two.times(Tensor(5.0 + i)).item() == 10 + 2 * i
        assert three.times(Tensor(5.0 + i)).item() == 15 + 3 * i
    assert Scale.times.captures == 1


def test_results_of_earlier_calls_stay() -> None:
    @mk.jit
    def square(x):
        return x * x

    kept = [square(Tensor([float(i), 1.0])) for i in range(8)]
    assert [k.tolist() for k in kept] == [[float(i * i), 1.0] for i in range(8)]


def test_dropped_results_are_used_again_and_held_arrays_are_not() -> None:
    @mk.jit
    def square(x):
        return x * x

    arrays = [square(Tensor([float(i), 1.0])).numpy() for i in range(8)]
    assert [a[0] for a in arrays] == [i * i for i in range(8)]
    lazy = [square(Tensor([float(i)])) + 1 for i in range(8)]
    assert [t.item() for t in lazy] == [i * i + 1 for i in range(8)]


@pytest.mark.parametrize("value", [2, 2.0, True, "a", None, (1, 2), -0.0, float("nan")])
def test_a_changed_python_value_traces_again(value) -> None:
    @mk.jit
    def keyed(x, mark):
        return x + (7 if repr(mark) == repr(value) else 0)

    x = Tensor([1.0])
    for _ in range(4):
        assert keyed(x, value).item() == 8
        assert keyed(x, 0.0).item() == 1
        assert keyed(x, mark=1).item() == 1
    assert keyed.captures == 3


def test_shapes_and_dtypes_trace_again() -> None:
    @mk.jit
    def double(x):
        return x + x

    for _ in range(3):
        for shape in ((2,), (3,), (1, 3)):
            for dtype in (np.float32, np.int32):
                x = np.ones(shape, dtype)
                out = double(Tensor(x))
                assert out.shape == shape
                assert np.array_equal(out.numpy(), x + x)
    assert double.captures == 6


def test_numpy_arguments_count_by_contents() -> None:
    @mk.jit
    def add(x, array):
        return x + Tensor(array)

    a, b = np.arange(3.0), np.arange(3.0) * 2
    for _ in range(4):
        assert add(Tensor([1.0, 1, 1]), a).tolist() == [1, 2, 3]
        assert add(Tensor([1.0, 1, 1]), b).tolist() == [1, 3, 5]


@dataclass
class Inner:
    weight: Tensor
    label: str = "x"


@dataclass
class Outer:
    inner: Inner
    extra: dict[str, list[Tensor]] = field(default_factory=dict)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Tensor, b: int) -> None:
        self.a, self.b = a, b


def test_objects_dicts_and_slots_in_arguments() -> None:
    @mk.jit
    def total(outer, slotted, *rest, **named):
        value = outer.inner.weight * slotted.b + slotted.a
        for tensors in outer.extra.values():
            for tensor in tensors:
                value = value + tensor
        for tensor in rest:
            value = value + tensor
        return value + named["last"][0]

    for i in range(5):
        t = [Tensor([float(i + k)]) for k in range(6)]
        outer = Outer(Inner(t[0]), {"a": [t[1], t[2]]})
        got = total(outer, Slotted(t[3], 10), t[4], last=(t[5],))
        assert got.item() == 10 * i + (i + 1) + (i + 2) + (i + 3) + (i + 4) + (i + 5)
    assert total.captures == 1


def test_structured_results() -> None:
    @mk.jit
    def many(x):
        return {
            "list": [x + 1, 3],
            "pair": Pair(x + 2, None),
            "inner": Inner(x + 3, "name"),
            "again": (x + 1, "text"),
        }

    for i in range(5):
        out = many(Tensor([float(i)]))
        assert out["list"][0].item() == i + 1
        assert out["list"][1] == 3
        assert isinstance(out["pair"], Pair)
        assert out["pair"].first.item() == i + 2
        assert out["inner"].weight.item() == i + 3
        assert out["inner"].label == "name"
        assert out["again"][0].item() == i + 1
    assert many.captures == 1


def test_the_same_tensor_twice_in_a_result_is_one_tensor() -> None:
    @mk.jit
    def twice(x):
        y = x + 1
        return y, [y]

    for _ in range(4):
        a, (b,) = twice(Tensor([1.0]))
        assert a is b


def test_results_that_are_arguments() -> None:
    outside = Tensor([5.0, 6.0])

    @mk.jit
    def give(x):
        return x, outside, x.reshape(2, 1), x + 0

    for i in range(5):
        x = Tensor([float(i), 2.0])
        own, closed, view, moved = give(x)
        assert own is x
        assert closed is outside
        assert view.tolist() == [[i], [2.0]]
        assert moved.tolist() == [i, 2.0]
        x += 1
        assert x.tolist() == [i + 1, 3.0]
        assert view.tolist() == [[i], [2.0]]
        view += 10
        assert (x.tolist(), view.tolist()) == ([i + 1, 3.0], [[i + 10], [12.0]])


def test_results_without_elements_and_constants() -> None:
    @mk.jit
    def shapes(x):
        return x[:0], Tensor.ones(3), Tensor(2.5), Tensor([1, 2])

    for _ in range(5):
        empty, ones, number, data = shapes(Tensor([1.0, 2.0]))
        assert empty.shape == (0,)
        assert empty.tolist() == []
        assert ones.tolist() == [1, 1, 1]
        assert number.item() == 2.5
        assert data.tolist() == [1, 2]
        data += 1
        ones += 1


def test_empty_arguments() -> None:
    @mk.jit
    def pass_on(x, y):
        return x.sum() + y

    for i in range(5):
        assert pass_on(Tensor(np.zeros((0, 3), np.float32)), Tensor(float(i))).item() == i


def test_lazy_arguments_are_computed_first() -> None:
    @mk.jit
    def double(x):
        return x * 2

    for i in range(5):
        assert double(Tensor([float(i)]) + 1).item() == 2 * (i + 1)
        assert double(Tensor.full((1,), i)).item() == 2 * i
    x = Tensor([1.0])
    for i in range(5):
        x += 1
        assert double(x).item() == 2 * (i + 2)


def test_a_jitted_function_inside_another() -> None:
    @mk.jit
    def inner(x):
        return x + 1

    @mk.jit
    def outer(x):
        return inner(x) * 2

    for i in range(5):
        assert outer(Tensor(float(i))).item() == 2 * (i + 1)
        assert inner(Tensor(float(i))).item() == i + 1
    assert inner.captures == 1
    assert outer.captures == 1


def test_values_computed_before_are_no_part_of_a_recording() -> None:
    """A result held outside has the same graph as one computed inside: it must not be used."""
    weight = Tensor([2.0, 3.0])

    @mk.jit
    def scale(x):
        return x * weight

    x = Tensor([1.0, 10.0])
    held = x * weight
    held.realize()
    keep = held + 1
    for _ in range(3):
        assert scale(x).tolist() == [2.0, 30.0]
    assert scale(Tensor([5.0, 5.0])).tolist() == [10.0, 15.0]
    assert keep.tolist() == [3.0, 31.0]
    x.requires_grad_()
    graph = (x * weight).realize()
    fresh = mk.jit(scale.__wrapped__)
    for _ in range(3):
        assert fresh(x).tolist() == [2.0, 30.0]
    assert fresh(Tensor([7.0, 7.0], requires_grad=True)).tolist() == [14.0, 21.0]
    graph.sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]


def test_results_are_constants_to_gradients() -> None:
    @mk.jit
    def square(x):
        return (x * x).sum()

    for _ in range(4):
        x = Tensor([1.0, 2.0], requires_grad=True)
        with pytest.raises(ShapeError, match="jitted"):
            square(x).backward()


def test_functions_keep_their_names() -> None:
    @mk.jit
    def named(x):
        """Its text."""
        return x

    assert named.__name__ == "named"
    assert named.__doc__ == "Its text."
    assert named.__wrapped__(3) == 3
    assert "named" in repr(named)


def test_only_so_many_recordings_are_kept() -> None:
    @mk.jit
    def add(x, n):
        return x + n

    x = Tensor([1.0])
    for n in range(60):
        for _ in range(3):
            assert add(x, n).item() == n + 1
    assert add.captures == 32
    add.clear()
    assert add.captures == 0
    assert add(x, 3).item() == 4


def test_config_and_gradient_mode_are_part_of_the_key() -> None:
    @mk.jit
    def make(x):
        return x + Tensor(1), Tensor([1, 2])

    for _ in range(4):
        assert make(Tensor([1.0]))[1].dtype is mk.dtypes.int32
        with mk.config.override(default_int="int64"):
            assert make(Tensor([1.0]))[1].dtype is mk.dtypes.int64

    @mk.jit
    def graded(x):
        y = x * 3
        return Tensor([1.0 if y.requires_grad else 0.0])

    x = Tensor([1.0], requires_grad=True)
    for _ in range(4):
        assert graded(x).item() == 1
        with mk.no_grad():
            assert graded(x).item() == 0


def test_errors_of_the_function_pass_through() -> None:
    @mk.jit
    def bad(x):
        if x.shape[0] > 2:
            raise KeyError("mine")
        return x + 1

    with pytest.raises(KeyError, match="mine"):
        bad(Tensor([1.0, 2, 3]))
    for i in range(4):
        assert bad(Tensor([float(i)])).item() == i + 1
    with pytest.raises(KeyError, match="mine"):
        bad(Tensor([1.0, 2, 3]))
    with pytest.raises(JitError):
        mk.jit(lambda x: x.item())(Tensor(1.0))


def test_callables_of_all_kinds() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor([2.0])
            self.plain = 3

        def __call__(self, x):
            return x * self.weight + self.plain

        @staticmethod
        @mk.jit
        def static(x):
            return x + 1

        @classmethod
        @mk.jit
        def of_class(cls, x):
            return x + 2

    model = Model()
    functions = [
        (mk.jit(model), lambda i: 2 * i + 3),
        (mk.jit(functools.partial(lambda a, x: a + x, Tensor([5.0]))), lambda i: i + 5),
        (mk.jit(model.__call__), lambda i: 2 * i + 3),
        (Model.static, lambda i: i + 1),
        (Model.of_class, lambda i: i + 2),
        (mk.jit()(lambda x: x - 1), lambda i: i - 1),
        (mk.jit(mk.jit(lambda x: x - 2)), lambda i: i - 2),
    ]
    for function, expected in functions:
        for i in range(5):
            assert function(Tensor([float(i)])).item() == expected(i)
    model.weight = Tensor([4.0])
    for i in range(5):
        assert functions[0][0](Tensor([float(i)])).item() == 4 * i + 3


def test_functions_in_arguments() -> None:
    weight = Tensor([2.0])

    @mk.jit
    def apply(function, x):
        return function(x)

    def double(x):
        return x * weight

    def add(x):
        return x + weight

    for i in range(5):
        weight.assign(Tensor([float(i)]))
        assert apply(double, Tensor([3.0])).item() == 3 * i
        assert apply(add, Tensor([3.0])).item() == 3 + i


def test_tensors_of_globals_and_defaults() -> None:
    @mk.jit
    def total(x, y=Tensor([10.0]), *, z=Tensor([100.0])):  # noqa: B008
        return x + y + z + GLOBAL + helper(x)

    for i in range(5):
        GLOBAL.assign(Tensor([float(i)]))
        assert total(Tensor([1.0])).item() == 111 + i + (1 + i)
        assert total(Tensor([1.0]), z=Tensor([0.0])).item() == 11 + i + (1 + i)


GLOBAL = Tensor([0.0])


def helper(x):
    return x + GLOBAL


def test_many_kernels_are_one_plan() -> None:
    @mk.jit
    def chain(x):
        for _ in range(40):
            x = (x + 1).realize()
        return x

    for i in range(4):
        assert chain(Tensor([float(i)])).item() == i + 40
    assert len(chain.latest.details.plan) == 40
    assert chain.latest.details.plan.lease_bytes <= 256
