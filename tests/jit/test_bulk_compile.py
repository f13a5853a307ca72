"""`compile`: many computations at once; what fails is named, and nothing else is lost."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import morok as mk
from morok import config, engine
from morok.capture import Compiled
from morok.errors import ArgumentError, BulkError, CompileError, FunctionError, ShapeError
from morok.runtime import Device
from morok.tensor import Tensor


def numbers(*shape: int) -> np.ndarray:
    return (np.arange(int(np.prod(shape)), dtype=np.float32) % 7 - 3).reshape(shape)


def test_graphs_become_plans() -> None:
    x, y = Tensor(numbers(5, 6)), Tensor(numbers(6, 4))
    first, second = mk.compile([x @ y, ((x * 2).sum(1), x + 1)])
    (product,) = first.execute()
    assert np.array_equal(product.numpy(), numbers(5, 6) @ numbers(6, 4))
    sums, more = second.execute()
    assert np.array_equal(sums.numpy(), (numbers(5, 6) * 2).sum(1))
    assert np.array_equal(more.numpy(), numbers(5, 6) + 1)


def test_functions_become_callables_that_compile_nothing() -> None:
    def work(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        product = a @ b
        return product.relu(), product.sum(0)

    shapes = [((n, n + 1), (n + 1, 3)) for n in (2, 5, 11)]
    calls = mk.compile(work, shapes)
    lowered, scheduled = engine.stats.lowered, engine.stats.scheduled
    for call, (left, right) in zip(calls, shapes, strict=True):
        a, b = numbers(*left), numbers(*right)
        positive, sums = call(Tensor(a), Tensor(b))
        assert np.array_equal(positive.numpy(), np.maximum(a @ b, 0))
        assert np.array_equal(sums.numpy(), (a @ b).sum(0))
        assert call.kernels
        assert len(call.sources()) == len(call.kernels)
    assert (engine.stats.lowered, engine.stats.scheduled) == (lowered, scheduled)


def test_as_many_functions_as_shapes_with_dtypes_and_examples() -> None:
    weight = Tensor(numbers(4, 2))
    functions = [lambda x: x @ weight, lambda n: n * 2 + 1, lambda x: x.sum()]
    calls = mk.compile(functions, [((3, 4),), (((5,), mk.dtypes.int32),), (Tensor(numbers(2, 2)),)])
    assert np.array_equal(calls[0](Tensor(numbers(3, 4))).numpy(), numbers(3, 4) @ numbers(4, 2))
    assert calls[1](Tensor([1, 2, 3, 4, 5])).tolist() == [3, 5, 7, 9, 11]
    assert calls[2](Tensor(numbers(2, 2))).item() == numbers(2, 2).sum()
    weight.assign(weight * 2).realize()  # what a function closes over is read when it is called
    assert np.array_equal(
        calls[0](Tensor(numbers(3, 4))).numpy(), numbers(3, 4) @ numbers(4, 2) * 2
    )


def test_equal_computations_are_compiled_once() -> None:
    graphs = [(Tensor(numbers(9, 17)) * 5 - 3).sum(1) for _ in range(6)]
    with config.override(cache_size=0):
        mk.clear_caches()
        lowered = engine.stats.lowered
        plans = mk.compile(graphs)
        assert engine.stats.lowered == lowered + 1
    for plan in plans:
        assert np.array_equal(plan.execute()[0].numpy(), (numbers(9, 17) * 5 - 3).sum(1))


def test_random_numbers_are_not_used_up() -> None:
    mk.manual_seed(5)
    expected = (Tensor.rand(4) + Tensor(numbers(4))).tolist()
    mk.manual_seed(5)
    (call,) = mk.compile(lambda x: Tensor.rand(4) + x, [((4,),)])
    assert call(Tensor(numbers(4))).tolist() == expected
    assert call(Tensor(numbers(4))).tolist() != expected


@pytest.mark.parametrize("traced", [lambda f: mk.compile(f, [((4,),)]), lambda f: mk.function(f)])
def test_other_threads_get_no_random_number_twice(traced: Callable[..., object]) -> None:
    """While a function is traced, others draw."""
    drawn: list[Tensor] = []
    begun, over = threading.Event(), threading.Event()

    def draw() -> None:
        begun.wait()
        drawn.append(Tensor.rand(4))
        over.set()

    def work(x: Tensor) -> Tensor:
        begun.set()
        over.wait()
        return x + Tensor.rand(4)

    thread = threading.Thread(target=draw)
    thread.start()
    call = traced(work)
    if not isinstance(call, list):
        drawn.append(call(Tensor(numbers(4))) - Tensor(numbers(4)))
    thread.join()
    drawn.append(Tensor.rand(4))
    values = [tuple(tensor.tolist()) for tensor in drawn]
    assert len(values) >= 2
    assert len({*values}) == len(values)


def test_values_that_need_no_kernel() -> None:
    in_memory, empty = Tensor(numbers(3)).realize(), Tensor.zeros(0, 3) + 1
    plans = mk.compile([in_memory, empty, in_memory + 1])
    assert plans[0].execute()[0].tolist() == numbers(3).tolist()
    assert plans[1].execute()[0].shape == (0, 3)
    (same,) = mk.compile(lambda x: x, [((2,),)])
    assert same(Tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert mk.compile([]) == []


def test_a_failure_is_named_and_loses_nothing() -> None:
    def work(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def broken(a: Tensor) -> Tensor:
        raise KeyError("gone")

    def reads(a: Tensor) -> Tensor:
        return a * a.sum().item()

    held = Tensor(numbers(2))

    def writes(a: Tensor) -> Tensor:
        held.assign(a)
        return a

    shapes = [((2, 3), (3, 4)), ((2, 3), (5, 4)), ((7,),), ((7,),), ((2,),), ((6, 3), (3, 1))]
    functions = [work, work, broken, reads, writes, work]
    with pytest.raises(BulkError, match="4 of 6 computations") as caught:
        mk.compile(functions, shapes)
    results, failures = caught.value.results, caught.value.failures
    kinds = [Compiled, ShapeError, KeyError, FunctionError, FunctionError, Compiled]
    assert [type(result) for result in results] == kinds
    assert list(failures.values()) == results[1:5]
    assert [name[:3] for name in failures] == ["[1]", "[2]", "[3]", "[4]"]
    assert "broken" in [*failures][1]
    assert "float32[2, 3], float32[5, 4]" in str(caught.value)
    assert held.tolist() == numbers(2).tolist()
    a, b = numbers(6, 3), numbers(3, 1)
    assert np.array_equal(results[5](Tensor(a), Tensor(b)).numpy(), a @ b)


def test_a_kernel_that_the_compiler_refuses_is_one_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = type(Device["CPU"].compiler)
    real = compiler.compile_units

    def refusing(self: object, units: list[list[str]]) -> list[bytes]:
        for unit in units:
            for text in unit:
                if "_31" in text:
                    raise CompileError("this one is refused", source=text)
        return real(self, units)

    monkeypatch.setattr(compiler, "compile_units", refusing)
    with config.override(cache_size=0):
        mk.clear_caches()
        graphs = [Tensor(numbers(n)) * 2 for n in (29, 31, 37)]
        with pytest.raises(BulkError, match="1 of 3") as caught:
            mk.compile(graphs)
    assert list(caught.value.failures) == ["[1] float32[31]"]
    assert isinstance(caught.value.results[1], CompileError)
    assert caught.value.results[2].execute()[0].tolist() == (numbers(37) * 2).tolist()


def test_other_arguments_are_refused() -> None:
    (call,) = mk.compile(lambda x: x + 1, [((2, 3),)])
    with pytest.raises(ShapeError, match=r"float32\[2, 3\] was called with float32\[3, 2\]"):
        call(Tensor(numbers(3, 2)))
    with pytest.raises(ShapeError, match="int32"):
        call(Tensor(numbers(2, 3).astype(np.int32)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((lambda x: x,), "needs the shapes"),
        (([lambda x: x], [((2,),), ((3,),)]), "1 functions and shapes for 2"),
        (([3],), "graph 0"),
        (([[]],), "graph 0"),
        ((lambda x: x, [((2, -1),)]), "neither a shape"),
        ((lambda x: x, [(2,)]), "neither a shape"),
        ((lambda x: x, [(numbers(2),)]), "neither a shape"),
        ((lambda x: x, [2]), "no list of arguments"),
        ((lambda x: x, [Tensor(numbers(2))]), "no list of arguments"),
        ((lambda x: x, 2), "no list of arguments"),
        ((Tensor(numbers(2)),), "come in a list"),
        ((None,), "come in a list"),
    ],
)
def test_mistakes(arguments: tuple, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        mk.compile(*arguments)


def test_what_is_called_needs_no_hash() -> None:
    @dataclass
    class Scaled:
        by: int

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.by

    (call,) = mk.compile(Scaled(3), [((4,),)])
    assert call(Tensor(numbers(4))).tolist() == (numbers(4) * 3).tolist()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(stream: io.StringIO, progress: bool | None = None) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        with config.override(cache_size=0):
            mk.clear_caches()
            mk.compile([Tensor(numbers(23)) * 2], progress=progress)
        return stream.getvalue()

    assert "1 of 1 kernels" in shown(Terminal())
    assert shown(Terminal()).endswith("\r\x1b[K")
    assert shown(io.StringIO()) == ""
    assert shown(Terminal(), progress=False) == ""
    assert "1 of 1 kernels" in shown(io.StringIO(), progress=True)
