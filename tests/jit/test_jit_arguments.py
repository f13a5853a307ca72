"""Arguments that are subclasses or that Python changes in place, results in other containers."""

from __future__ import annotations

import operator
from array import array
from collections import defaultdict, deque
from functools import partial

import numpy as np
import pytest

import morok as mk
from morok.tensor import Tensor


class Int(int):
    pass


class Text(str):
    pass


class Float(float):
    pass


class Items(list):
    pass


class Table(dict):
    pass


def _with(value, mark):
    value.mark = mark
    return value


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (Int, float),
        (Float, float),
        (lambda n: Text("a" * n), len),
        (lambda n: bytearray([n]), lambda a: a[0]),
        (lambda n: complex(n, 1), lambda c: c.real),
        (lambda n: {n}, lambda s: next(iter(s))),
        (lambda n: frozenset([n]), lambda s: next(iter(s))),
        (lambda n: deque([n]), lambda d: d[0]),
        (lambda n: deque(maxlen=n), lambda d: d.maxlen),
        (lambda n: _with(Int(1), n), lambda i: i.mark),
        (lambda n: _with(Items([1]), n), lambda i: i.mark),
        (lambda n: _with(Table(a=1), n), lambda i: i.mark),
        (lambda n: np.array([n, None], object), lambda a: a[0]),
        (lambda n: deque([Tensor(float(n))]), lambda d: d[0]),
        (lambda n: {Tensor(float(n))}, lambda s: next(iter(s))),
        (lambda n: _with(Items(), Tensor(float(n))), lambda i: i.mark),
    ],
)
def test_values_python_can_change_or_subclass(make, read) -> None:
    @mk.jit
    def times(x, value):
        return x * read(value)

    for n in (1, 1, 1, 100, 1, 100, 101, 101, 101):
        assert times(Tensor([2.0]), make(n)).tolist() == [2.0 * n]


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (bytearray([1]), lambda a: a.__setitem__(0, 7)),
        (array("i", [1]), lambda a: a.__setitem__(0, 7)),
        (deque([1]), lambda d: d.__setitem__(0, 7)),
        ({1}, lambda s: (s.clear(), s.add(7))),
        (deque([Tensor(1.0)]), lambda d: d.__setitem__(0, Tensor(7.0))),
    ],
)
def test_an_argument_changed_in_place(value, change) -> None:
    @mk.jit
    def times(x, value):
        return x * next(iter(value))

    for _ in range(4):
        assert times(Tensor([2.0]), value).tolist() == [2]
    change(value)
    for _ in range(4):
        assert times(Tensor([2.0]), value).tolist() == [14]


def test_partial_functions_and_what_they_hold() -> None:
    @mk.jit
    def apply(x, function):
        return function(x)

    for by in (2, 2, 2, 3, 2, Tensor(4.0), Tensor(5.0), Tensor(6.0)):
        by_number = by.item() if isinstance(by, Tensor) else by
        assert apply(Tensor([2.0]), partial(operator.mul, by)).item() == 2 * by_number


def test_arrays_of_others_count_by_contents() -> None:
    class Foreign:
        """As those of other packages: what it holds is in no attribute."""

        def __init__(self, value: float) -> None:
            contents[id(self)] = np.array([value], np.float32)

        def __array__(self, dtype=None, copy=None):
            return contents[id(self)]

    contents: dict[int, np.ndarray] = {}
    times = mk.jit(lambda x, array: x * Tensor(np.asarray(array)))
    array = Foreign(2)
    for _ in range(4):
        assert times(Tensor([3.0]), array).item() == 6
    contents[id(array)] = np.array([5], np.float32)
    assert times(Tensor([3.0]), array).item() == 15
    assert times(Tensor([3.0]), Foreign(7)).item() == 21


def test_an_object_without_attributes() -> None:
    class Empty:
        __slots__ = ()

    twice = mk.jit(lambda x, empty: x * 2)
    assert [twice(Tensor([1.0]), Empty()).item() for _ in range(4)] == [2] * 4


def test_a_list_that_contains_itself() -> None:
    items = [Tensor([1.0])]
    items.append(items)
    with pytest.raises(RecursionError, match="recursion"):
        mk.jit(lambda items: items[0] + 1)(items)


def test_results_in_other_containers() -> None:
    @mk.jit
    def sort(x):
        groups = defaultdict(list)
        groups["a"].append(x + 1)
        return groups, deque([x + 2], maxlen=1), {x + 3}

    for i in range(8):
        groups, last, one = sort(Tensor([float(i)]))
        assert groups["a"][0].item() == i + 1
        assert groups["b"] == []
        assert (last[0].item(), last.maxlen) == (i + 2, 1)
        assert next(iter(one)).item() == i + 3
    assert sort.replays == 6
