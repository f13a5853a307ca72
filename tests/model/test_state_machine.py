"""One program, two interpreters: the lazy `Tensor` and the eager model must agree at every read.

Programs create, compute, write, realise in any order, hold on to arrays read earlier, forget
tensors, and alias memory of the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy_model import BINARY, REDUCTIONS, UNARY, ModelTensor

from morok.tensor import Tensor

LIMIT = 1e5
"""Values stay below, so that float sums in another order stay close."""

SHAPES = st.sampled_from([(), (1,), (3,), (2, 3), (3, 1), (3, 3), (2, 1, 3)])
PICK = st.integers(0, 1 << 16)
SMALL = st.integers(-4, 4)
INDICES = [0, slice(1, None), slice(None, None, -1), slice(None, None, 2)]


class Programs(RuleBasedStateMachine):
    """Pairs of a tensor and its model; rules pick among them by number."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Tensor, ModelTensor]] = []
        self.held: list[tuple[Any, Any]] = []
        self.lent: list[tuple[Tensor, ModelTensor, Any]] = []

    # choosing ------------------------------------------------------------------------------------

    def pick(
        self, number: int, test: Callable[[ModelTensor], bool] | None = None, optional: bool = False
    ) -> Any:
        """A pair whose model passes the test. Without `optional` there is always one."""
        fitting = [pair for pair in self.pairs if test is None or test(pair[1])]
        if not fitting and optional:
            return None, None
        return fitting[number % len(fitting)]

    def keep(self, tensor: Tensor, model: ModelTensor) -> None:
        """A new pair, unless its numbers would get out of hand."""
        assert tensor.shape == model.shape
        if model.array.size == 0 or model.array.size > 64:
            return
        if np.abs(model.array.astype(np.float64)).max() < LIMIT:
            self.pairs.append((tensor, model))

    def agree(self, tensor: Tensor, model: ModelTensor) -> None:
        got = tensor.numpy()
        assert got.dtype == model.array.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, model.array, rtol=1e-5, atol=1e-2)
        else:
            np.testing.assert_array_equal(got, model.array)

    # making --------------------------------------------------------------------------------------

    @initialize(seed=PICK)
    def start(self, seed: int) -> None:
        for dtype in (np.int32, np.float32):
            self.create((2, 3), dtype, seed)
            self.create((3, 3), dtype, seed + 1)

    @rule(shape=SHAPES, dtype=st.sampled_from([np.int32, np.float32]), seed=PICK)
    def create(self, shape: tuple[int, ...], dtype: Any, seed: int) -> None:
        array = np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)
        self.keep(Tensor(array), ModelTensor(array))

    @rule(value=SMALL, shape=SHAPES)
    def constant(self, value: int, shape: tuple[int, ...]) -> None:
        self.keep(Tensor.full(shape, value), ModelTensor(np.full(shape, value, np.int32)))

    @rule(shape=SHAPES, seed=PICK)
    def lend(self, shape: tuple[int, ...], seed: int) -> None:
        array = np.random.default_rng(seed).integers(-8, 9, shape).astype(np.int32)
        tensor, model = Tensor.from_numpy(array), ModelTensor(array)
        self.keep(tensor, model)
        self.lent.append((tensor, model, array))

    # computing -----------------------------------------------------------------------------------

    @rule(a=PICK, b=PICK, name=st.sampled_from(sorted(BINARY)))
    def binary(self, a: int, b: int, name: str) -> None:
        x, mx = self.pick(a, _is_number)
        y, my = self.pick(b, lambda m: _like(m, mx) and _meets(m.shape, mx.shape))
        self.keep(getattr(x, name)(y), mx.binary(name, my))

    @rule(a=PICK, name=st.sampled_from(sorted(UNARY)))
    def unary(self, a: int, name: str) -> None:
        x, mx = self.pick(a, _is_number)
        self.keep(getattr(x, name)(), mx.unary(name))

    @rule(a=PICK, b=PICK, c=PICK)
    def choose(self, a: int, b: int, c: int) -> None:
        x, mx = self.pick(a, _is_number)
        y, my = self.pick(b, lambda m: _like(m, mx) and _meets(m.shape, mx.shape))
        cond, mc = x < y, mx.binary("lt", my)
        z, mz = self.pick(c, lambda m: _like(m, mx) and _meets(m.shape, mc.shape))
        self.keep(cond.where(x, z), mc.where(mx, mz))

    @rule(a=PICK, axis=st.sampled_from([None, 0, -1]), name=st.sampled_from(sorted(REDUCTIONS)))
    def reduce(self, a: int, axis: int | None, name: str) -> None:
        x, mx = self.pick(a, lambda m: _has_axes(m) and (_is_number(m) or name == "sum"))
        self.keep(getattr(x, name)(axis), mx.reduce(name, axis))

    @rule(a=PICK, b=PICK)
    def multiply(self, a: int, b: int) -> None:
        x, mx = self.pick(a, lambda m: _is_number(m) and len(m.shape) == 2)
        y, my = self.pick(
            b, lambda m: _like(m, mx) and len(m.shape) == 2 and m.shape[0] == mx.shape[1], True
        )
        if y is not None:
            self.keep(x @ y, mx.matmul(my))

    # moving --------------------------------------------------------------------------------------

    @rule(
        a=PICK, how=st.sampled_from(["flat", "turn", "flip", "widen", "pad"]), by=st.integers(0, 2)
    )
    def move(self, a: int, how: str, by: int) -> None:
        x, mx = self.pick(a, _has_axes)
        rank = len(mx.shape)
        if how == "flat":
            self.keep(x.reshape(-1), mx.reshape(-1))
        elif how == "turn":
            axes = tuple(np.roll(np.arange(rank), by))
            self.keep(x.permute(*axes), mx.permute(*axes))
        elif how == "flip":
            self.keep(x.flip(by % rank), mx.flip(by % rank))
        elif how == "widen":
            shape = (by + 1, *mx.shape)
            self.keep(x.expand(*shape), mx.expand(*shape))
        elif _is_number(mx):
            pairs = [(by, 1)] * rank
            self.keep(x.pad(pairs, value=by), mx.pad(pairs, by))

    @rule(a=PICK, b=PICK)
    def join(self, a: int, b: int) -> None:
        x, mx = self.pick(a, _has_axes)
        y, my = self.pick(
            b, lambda m: _like(m, mx) and _has_axes(m) and m.shape[1:] == mx.shape[1:]
        )
        self.keep(x.cat(y), mx.cat(my, 0))

    @rule(a=PICK, index=st.sampled_from(INDICES))
    def look(self, a: int, index: Any) -> None:
        x, mx = self.pick(a, _has_axes)
        self.keep(x[index], mx[index])

    @rule(a=PICK, how=st.sampled_from(["detach", "clone", "contiguous"]))
    def same(self, a: int, how: str) -> None:
        x, mx = self.pick(a)
        self.keep(getattr(x, how)(), ModelTensor(mx.array))

    # writing -------------------------------------------------------------------------------------

    @rule(a=PICK, b=PICK)
    def assign(self, a: int, b: int) -> None:
        x, mx = self.pick(a)
        y, my = self.pick(b, lambda m: _like(m, mx) and _fits(m.shape, mx.shape))
        x.assign(y)
        mx.assign(my)

    @rule(a=PICK, b=PICK, name=st.sampled_from(["add", "sub", "maximum"]))
    def update(self, a: int, b: int, name: str) -> None:
        x, mx = self.pick(a, _is_number)
        y, my = self.pick(b, lambda m: _like(m, mx) and _fits(m.shape, mx.shape))
        new = mx.binary(name, my)
        if np.abs(new.array.astype(np.float64)).max() >= LIMIT:
            return
        if name == "add":
            x += y
        elif name == "sub":
            x -= y
        else:
            x.assign(x.maximum(y))
        mx.assign(new)

    @rule(a=PICK, b=PICK, index=st.sampled_from(INDICES))
    def write(self, a: int, b: int, index: Any) -> None:
        x, mx = self.pick(a, _has_axes)
        place = mx.array[index]
        y, my = self.pick(b, lambda m: _like(m, mx) and _fits(m.shape, place.shape), True)
        if y is not None and place.size:
            x[index] = y
            mx[index] = my

    # looking -------------------------------------------------------------------------------------

    @rule(numbers=st.lists(PICK, min_size=1, max_size=3))
    def realize(self, numbers: list[int]) -> None:
        Tensor.realize(*(self.pick(number)[0] for number in numbers))

    @rule(a=PICK)
    def read(self, a: int) -> None:
        self.agree(*self.pick(a))

    @rule(a=PICK)
    def hold(self, a: int) -> None:
        x, _ = self.pick(a)
        array = x.numpy()
        self.held.append((array, array.copy()))

    @precondition(lambda self: len(self.pairs) > 6)
    @rule(a=PICK)
    def forget(self, a: int) -> None:
        """Any pair but the first, which keep every rule possible."""
        self.pairs.pop(4 + a % (len(self.pairs) - 4))

    @invariant()
    def what_was_shown_stays(self) -> None:
        lent = [array for *_, array in self.lent]
        for array, before in self.held:
            if not any(np.shares_memory(array, other) for other in lent):
                np.testing.assert_array_equal(array, before)

    def teardown(self) -> None:
        if not self.pairs:
            return
        Tensor.realize(*(tensor for tensor, _ in self.pairs), *(t for t, *_ in self.lent))
        for tensor, model in self.pairs:
            self.agree(tensor, model)
        for _, model, array in self.lent:
            np.testing.assert_array_equal(array, model.array)


def _is_number(model: ModelTensor) -> bool:
    return model.array.dtype.kind != "b"


def _has_axes(model: ModelTensor) -> bool:
    return model.array.ndim > 0


def _like(model: ModelTensor, other: ModelTensor) -> bool:
    return model.array.dtype == other.array.dtype


def _meets(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    return _meets(shape, into) and np.broadcast_shapes(shape, into) == into


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(max_examples=25, stateful_step_count=25)
