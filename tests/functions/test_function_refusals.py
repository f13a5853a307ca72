"""What a function must not do while it is traced: each is refused by name, and leaves no trace."""

from __future__ import annotations

import pytest

import morok as mk
from morok.errors import FunctionError
from morok.tensor import Tensor


def test_a_value_read_inside_is_refused() -> None:
    @mk.function
    def f(x):
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(FunctionError, match=r"(?s)reads a value.*test_function_refusals\.py:\d+"):
        f(Tensor([1.0]))


def test_realize_inside_is_refused() -> None:
    @mk.function
    def f(x):
        return (x * 2).realize()

    with pytest.raises(FunctionError, match="realizes a tensor"):
        f(Tensor([1.0]))
    x = Tensor([1.0])
    with pytest.raises(FunctionError):
        f(x)
    assert x.tolist() == [1]


def test_backward_inside_is_refused() -> None:
    w = Tensor([1.0], requires_grad=True)

    @mk.function
    def f(x):
        (x * w).sum().backward()
        return x

    with pytest.raises(FunctionError, match="backward"):
        f(Tensor([1.0]))
    assert w.grad is None


def test_a_tensor_left_in_another_place_is_refused() -> None:
    state = {"h": Tensor([0.0])}

    @mk.function
    def f(x):
        state["h"] = state["h"] + x
        return state["h"]

    with pytest.raises(FunctionError, match=r"in the place of .*\['h'\]"):
        f(Tensor([1.0]))


def test_python_values_that_change_are_refused() -> None:
    seen: list[int] = []

    @mk.function
    def f(x):
        seen.append(1)
        return x

    with pytest.raises(FunctionError, match="changes Python values"):
        f(Tensor([1.0]))


def test_a_cache_filled_by_the_first_call_is_fine() -> None:
    masks: dict[int, Tensor] = {}

    @mk.function
    def f(x):
        n = x.shape[0]
        if n not in masks:
            masks[n] = Tensor.ones(n).realize()
        return x * masks[n]

    assert f(Tensor([2.0])).tolist() == [2]
    assert f(Tensor([3.0])).tolist() == [3]
    assert f.traces == 1


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(FunctionError, match="expected a function, got int"):
        mk.function(3)


def test_seeding_inside_is_refused() -> None:
    @mk.function
    def f(x):
        mk.manual_seed(1)
        return x

    with pytest.raises(FunctionError, match="seeds the generator"):
        f(Tensor([1.0]))


def test_an_error_leaves_everything_as_it_was() -> None:
    state, x = Tensor([1.0]), Tensor([2.0], requires_grad=True)

    @mk.function
    def f(x):
        state.assign(x.detach() * 2)
        Tensor.rand(3)
        raise KeyError("mine")

    mk.manual_seed(4)
    expected = Tensor.rand(2).tolist()
    mk.manual_seed(4)
    with pytest.raises(KeyError, match="mine"):
        f(x)
    assert Tensor.rand(2).tolist() == expected
    assert (state.tolist(), x.tolist(), x.requires_grad, x.is_leaf) == ([1], [2], True, True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3]
