"""Small programs of views, padding and reductions that went wrong in systems of this kind: every
way to run them gives NumPy's answer, with caches that are cold, on the disk only, and warm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ways import realised_after_every_operation

import morok as mk
from bench._interpreted import interpreted
from morok import config, engine
from morok.tensor import Tensor

Array = np.ndarray[Any, Any]


class ByNumpy:
    """What programs use that NumPy and tensors spell differently."""

    arange = staticmethod(np.arange)
    ones = staticmethod(lambda *shape: np.ones(shape, np.float32))

    @staticmethod
    def pad(x: Array, pairs: Any, value: float = 0) -> Array:
        return np.pad(x, pairs, constant_values=value)

    @staticmethod
    def pooled(x: Array, height: int, width: int) -> Array:
        """Means over the windows from floor(i * n / m) to ceil((i + 1) * n / m), one by one."""
        out = np.empty((*x.shape[:2], height, width), x.dtype)
        for i in range(height):
            for j in range(width):
                rows = slice(i * x.shape[2] // height, -(-(i + 1) * x.shape[2] // height))
                columns = slice(j * x.shape[3] // width, -(-(j + 1) * x.shape[3] // width))
                out[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
        return out


class ByTensors:
    arange = Tensor.arange
    ones = Tensor.ones

    @staticmethod
    def pad(x: Tensor, pairs: Any, value: float = 0) -> Tensor:
        return x.pad(pairs, value=value)

    @staticmethod
    def pooled(x: Tensor, height: int, width: int) -> Tensor:
        return x.adaptive_avg_pool2d((height, width))


Library = Any  # one of the two
Program = Callable[[Library, Any], list[Any]]


def pages(lib: Library) -> Any:
    return lib.arange(1, 51).reshape(2, 5, 5)


def padded_in_front(lib: Library, x: Any) -> list[Any]:
    y = lib.pad(x, ((2, 0), (0, 0), (0, 0))).reshape(2, 2, 5, 5)
    return [y, y.reshape(4, 5, 5), y.reshape(4, 5, 5)[1:3], y.reshape(4, 25).sum(1)]


def reshaped_across_the_edge(lib: Library, x: Any) -> list[Any]:
    y = lib.pad(x, ((0, 0), (0, 0), (1, 2)))
    z = y.reshape(4, 20)
    return [z, z.reshape(8, 10) + 1, z.reshape(80)[3:77:4], (z.reshape(16, 5) + 1).max(0)]


def padded_twice(lib: Library, x: Any) -> list[Any]:
    y = lib.pad(x, ((0, 1), (0, 0), (0, 0)), 7).reshape(15, 5)
    z = lib.pad(y, ((1, 0), (0, 2)), -3).reshape(7, 16)
    return [z, z.T.reshape(4, 28), z[::-1, ::-1].reshape(-1)[5:50]]


def five_and_six(lib: Library) -> Any:
    return lib.arange(5, 7)


def one_element_of_padding(lib: Library, x: Any) -> list[Any]:
    y = lib.pad(x, ((1, 1),), 2)
    return [y, y[2], y[0], y[1:3], y[3], lib.ones(3)[2], lib.pad(lib.ones(3), ((1, 0),), 2)[0]]


def four(lib: Library) -> Any:
    return lib.arange(4)


def two_reductions_of_parts(lib: Library, x: Any) -> list[Any]:
    return [x[1:4].max() - x[1:3].min(), x[1:4].max() * 10 + x[:2].sum(), x[::-1][:2].min()]


def images(lib: Library) -> Any:
    return (lib.arange(3 * 33 * 8 * 8) % 31 * 0.5).reshape(3, 33, 8, 8)


def pooled_to_seven(lib: Library, x: Any) -> list[Any]:
    y = lib.pooled(x, 7, 7).reshape(3, -1)
    return [y, y.sum(1), y.sum()]


def two_twos(lib: Library) -> Any:
    return lib.arange(2) * 0 + 2


def first_of_equals(lib: Library, x: Any) -> list[Any]:
    return [(~x).argmax(), (~x).argmin(), (-x).argmax(), (~x), (x == 2).argmax()]


CASES: list[tuple[Callable[[Library], Any], Program]] = [
    (pages, padded_in_front),
    (pages, reshaped_across_the_edge),
    (pages, padded_twice),
    (five_and_six, one_element_of_padding),
    (four, two_reductions_of_parts),
    (images, pooled_to_seven),
    (two_twos, first_of_equals),
]


# Ways --------------------------------------------------------------------------------------------


def lazily(program: Program, given: Array) -> list[Array]:
    results = program(ByTensors, Tensor(given))
    Tensor.realize(*results)
    return [result.numpy() for result in results]


def one_by_one(program: Program, given: Array) -> list[Array]:
    """Every result a schedule of its own."""
    return [result.numpy() for result in program(ByTensors, Tensor(given))]


def realised_after_every_step(program: Program, given: Array) -> list[Array]:
    with realised_after_every_operation():
        return one_by_one(program, given)


def third_call(program: Program, given: Array) -> list[Array]:
    function = mk.jit(lambda x: program(ByTensors, x))
    for _ in range(2):
        function(Tensor(given * 0))
    results = function(Tensor(given))
    assert function.replays == 1
    return [result.numpy() for result in results]


def on_the_interpreter(program: Program, given: Array) -> list[Array]:
    with interpreted() as sinks:
        results = lazily(program, given)
    assert sinks
    return results


WAYS = [lazily, one_by_one, realised_after_every_step, third_call, on_the_interpreter]


def same(got: list[Array], want: list[Any]) -> None:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=f"result {i}")
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"result {i}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("make", "program"), CASES, ids=[p.__name__ for _, p in CASES])
def test_every_way(
    make: Callable[[Library], Any],
    program: Program,
    way: Callable[[Program, Array], list[Array]],
    tmp_path: Path,
) -> None:
    given = make(ByNumpy)
    want = program(ByNumpy, given)
    with config.override(cache_dir=tmp_path):
        mk.clear_caches()
        same(way(program, given), want)
        same(way(program, given), want)  # what is in memory
        mk.clear_caches()
        same(way(program, given), want)  # what is on the disk


@pytest.mark.parametrize(("make", "program"), CASES, ids=[p.__name__ for _, p in CASES])
def test_without_memory(make: Callable[[Library], Any], program: Program) -> None:
    """Of counters and constants alone, which the compiler folds."""
    want = program(ByNumpy, make(ByNumpy))
    results = program(ByTensors, make(ByTensors))
    assert not engine.Normal(engine.sink_of([result.uop for result in results])).windows
    Tensor.realize(*results)
    same([result.numpy() for result in results], want)


def test_the_answers() -> None:
    """Those that are known by heart, of NumPy too."""
    for lib in (ByNumpy, ByTensors):
        number = lambda x: int(x.item())  # noqa: E731
        assert number(two_reductions_of_parts(lib, four(lib))[0]) == 2
        assert number(first_of_equals(lib, two_twos(lib))[0]) == 0
        assert number(one_element_of_padding(lib, five_and_six(lib))[1]) == 6
        assert number(one_element_of_padding(lib, five_and_six(lib))[5]) == 1
