"""One program, two interpreters: the lazy `Tensor` and the eager model must agree at every read.

Programs create, compute, index, write, realise in any order, hold on to arrays read earlier, forget
tensors, alias and overlap memory of the caller's, call jitted functions, draw random numbers, take
gradients, and make mistakes in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import morok as mk
from bench._sessions import (
    MEANINGS,
    array_of,
    fits,
    functions,
    has_axes,
    index_arrays,
    is_float,
    is_number,
    is_small,
    like,
    meets,
    places_along,
    takes,
)
from bench.numpy_model import BINARY, REDUCTIONS, UNARY, Array, LentModel, ModelTensor
from morok import engine
from morok.errors import MorokError
from morok.tensor import Tensor

SHAPES = st.sampled_from([(), (1,), (3,), (2, 3), (3, 1), (3, 3), (2, 1, 3), (7,), (4, 3)])
DTYPES = st.sampled_from([np.int32, np.float32])
PICK = st.integers(0, 1 << 16)
SMALL = st.integers(-4, 4)
INDICES = st.sampled_from(
    [
        0,
        -1,
        slice(1, None),
        slice(0, 2),
        slice(None, None, -1),
        slice(None, None, 2),
        (Ellipsis, 0),
        (Ellipsis, slice(1, 3)),
        (None, slice(1, 2)),
        (slice(0, 2), Ellipsis, slice(None, None, -1)),
    ]
)
Pair = tuple[Tensor, ModelTensor]


class Programs(RuleBasedStateMachine):
    """Pairs of a tensor and its model; rules pick among them by number."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.held: list[tuple[Array, Array]] = []
        # (array, its model, the tensors on it): the tensors live as long as what they write shows
        self.lent: list[tuple[Array, Array, list[Pair]]] = []
        self.jitted = functions()

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
        if model.array.size and model.array.size <= 64 and is_small(model.array):
            self.pairs.append((tensor, model))

    def agree(self, tensor: Tensor, model: ModelTensor) -> None:
        got = tensor.numpy()
        assert got.dtype == model.array.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, model.array, rtol=1e-5, atol=1e-2)
        else:
            np.testing.assert_array_equal(got, model.array)

    # making --------------------------------------------------------------------------------------

    @initialize(number=PICK)
    def start(self, number: int) -> None:
        for dtype in (np.int32, np.float32):
            self.create((2, 3), dtype, number)
            self.create((3, 3), dtype, number + 1)

    @rule(shape=SHAPES, dtype=DTYPES, number=PICK)
    def create(self, shape: tuple[int, ...], dtype: Any, number: int) -> None:
        array = array_of(number, shape, dtype)
        self.keep(Tensor(array), ModelTensor(array))

    @rule(value=SMALL, shape=SHAPES)
    def constant(self, value: int, shape: tuple[int, ...]) -> None:
        self.keep(Tensor.full(shape, value), ModelTensor(np.full(shape, value, np.int32)))

    @rule(shape=SHAPES, number=PICK)
    def draw(self, shape: tuple[int, ...], number: int) -> None:
        """The numbers of a seed are the same, whenever they are computed."""
        mk.manual_seed(number % 7)
        twin = Tensor.randint(-8, 9, shape).numpy()
        mk.manual_seed(number % 7)
        self.keep(Tensor.randint(-8, 9, shape), ModelTensor(twin))

    @rule(shape=SHAPES, dtype=DTYPES, number=PICK)
    def lend(self, shape: tuple[int, ...], dtype: Any, number: int) -> None:
        array = array_of(number, shape, dtype)
        self.lent.append((array, array.copy(), []))
        self._on(self.lent[-1], (), shape)

    @precondition(lambda self: self.lent)
    @rule(a=PICK, begin=st.integers(0, 5), count=st.integers(1, 6), flat=st.booleans())
    def lend_again(self, a: int, begin: int, count: int, flat: bool) -> None:
        """Whole or in part, overlapping what was lent already."""
        place = self.lent[a % len(self.lent)]
        size = place[0].size
        begin = min(begin, size - 1)
        count = min(count, size - begin)
        if flat:
            self._on(place, slice(begin, begin + count), (count,))
        else:
            self._on(place, (), place[0].shape)

    def _on(self, place: tuple[Array, Array, list[Pair]], part: Any, shape: Any) -> None:
        views = [array.reshape(-1)[part].reshape(shape) for array in place[:2]]
        if not all(view.size and np.shares_memory(view, place[i]) for i, view in enumerate(views)):
            return
        pair = Tensor.from_numpy(views[0]), LentModel(views[1])
        place[2].append(pair)
        self.pairs.append(pair)

    @precondition(lambda self: self.lent)
    @rule(a=PICK, b=PICK, value=SMALL)
    def other_dtype(self, a: int, b: int, value: int) -> None:
        """The same bytes as half words: seen and written through for a moment."""
        array, model, _ = self.lent[a % len(self.lent)]
        if array.dtype != np.int32:
            return
        halves, twin = array.reshape(-1).view(np.int16), model.reshape(-1).view(np.int16)
        tensor = Tensor.from_numpy(halves)
        at = b % twin.size
        tensor[at] = value
        twin[at] = value
        self.agree(tensor, LentModel(twin))

    # computing -----------------------------------------------------------------------------------

    @rule(a=PICK, b=PICK, name=st.sampled_from(sorted(BINARY)))
    def binary(self, a: int, b: int, name: str) -> None:
        x, mx = self.pick(a, is_number)
        y, my = self.pick(b, lambda m: like(m, mx) and meets(m.shape, mx.shape))
        self.keep(getattr(x, name)(y), mx.binary(name, my))

    @rule(a=PICK, name=st.sampled_from(sorted(UNARY)))
    def unary(self, a: int, name: str) -> None:
        x, mx = self.pick(a, is_number)
        self.keep(getattr(x, name)(), mx.unary(name))

    @rule(a=PICK, b=PICK, c=PICK)
    def choose(self, a: int, b: int, c: int) -> None:
        x, mx = self.pick(a, is_number)
        y, my = self.pick(b, lambda m: like(m, mx) and meets(m.shape, mx.shape))
        cond, mc = x < y, mx.binary("lt", my)
        z, mz = self.pick(c, lambda m: like(m, mx) and meets(m.shape, mc.shape))
        self.keep(cond.where(x, z), mc.where(mx, mz))

    @rule(a=PICK, axis=st.sampled_from([None, 0, -1]), name=st.sampled_from(sorted(REDUCTIONS)))
    def reduce(self, a: int, axis: int | None, name: str) -> None:
        x, mx = self.pick(a, lambda m: has_axes(m) and (is_number(m) or name == "sum"))
        self.keep(getattr(x, name)(axis), mx.reduce(name, axis))

    @rule(a=PICK, b=PICK)
    def multiply(self, a: int, b: int) -> None:
        x, mx = self.pick(a, lambda m: is_number(m) and len(m.shape) == 2)
        y, my = self.pick(
            b, lambda m: like(m, mx) and len(m.shape) == 2 and m.shape[0] == mx.shape[1], True
        )
        if y is not None:
            self.keep(x @ y, mx.matmul(my))

    @rule(a=PICK, axis=st.sampled_from([0, -1]))
    def scan(self, a: int, axis: int) -> None:
        x, mx = self.pick(a, lambda m: has_axes(m) and is_number(m))
        self.keep(x.cumsum(axis), mx.cumsum(axis % len(mx.shape)))

    @rule(a=PICK, b=PICK)
    def differentiate(self, a: int, b: int) -> None:
        """Of sum(w * y * w): 2 w y, a constant from then on."""
        x, mx = self.pick(a, is_float)
        y, my = self.pick(b, lambda m: is_float(m) and m.shape == mx.shape)
        w = x.detach().requires_grad_()
        (w * y.detach() * w).sum().backward()
        assert w.grad is not None
        self.keep(w.grad, ModelTensor(2 * mx.array * my.array))

    @rule(a=PICK, b=PICK, name=st.sampled_from(["both", "chain", "write", "part"]), twice=PICK)
    def call(self, a: int, b: int, name: str, twice: int) -> None:
        """A jitted function, up to four times in a row, with any tensors: aliases, lazy ones, one
        tensor in two places. Results are held."""
        x, mx = self.pick(a, is_number)
        y, my = self.pick(b, lambda m: like(m, mx) and m.shape == mx.shape)
        for _ in range(1 + twice % 4):
            if not is_small(4 * np.abs(mx.array.astype(np.float64)) + np.abs(my.array) + 8):
                return
            results = self.jitted[name](x, [y])
            for tensor, model in zip(results, MEANINGS[name](mx, my), strict=True):
                self.keep(tensor, model)

    # moving --------------------------------------------------------------------------------------

    @rule(
        a=PICK, how=st.sampled_from(["flat", "turn", "flip", "widen", "pad"]), by=st.integers(0, 2)
    )
    def move(self, a: int, how: str, by: int) -> None:
        x, mx = self.pick(a, has_axes)
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
        elif is_number(mx):
            pairs = [(by, 1)] * rank
            self.keep(x.pad(pairs, value=by), mx.pad(pairs, by))

    @rule(a=PICK, b=PICK)
    def join(self, a: int, b: int) -> None:
        x, mx = self.pick(a, has_axes)
        y, my = self.pick(b, lambda m: like(m, mx) and has_axes(m) and m.shape[1:] == mx.shape[1:])
        self.keep(x.cat(y), mx.cat(my, 0))

    @rule(a=PICK, index=INDICES)
    def look(self, a: int, index: Any) -> None:
        x, mx = self.pick(a, lambda m: takes(m, index))
        self.keep(x[index], mx[index])

    @rule(a=PICK, number=PICK)
    def look_at_many(self, a: int, number: int) -> None:
        x, mx = self.pick(a, has_axes)
        index, same = index_arrays(number, mx.shape)
        self.keep(x[index], mx[same])

    @rule(a=PICK, number=PICK, axis=st.integers(0, 1))
    def gather(self, a: int, number: int, axis: int) -> None:
        x, mx = self.pick(a, has_axes)
        axis %= len(mx.shape)
        index = places_along(number, mx.shape, axis)
        self.keep(x.gather(axis, index), mx.gather(axis, index))

    @rule(a=PICK, b=PICK, number=PICK, axis=st.integers(0, 1), add=st.booleans())
    def scatter(self, a: int, b: int, number: int, axis: int, add: bool) -> None:
        x, mx = self.pick(a, lambda m: has_axes(m) and is_number(m))
        axis %= len(mx.shape)
        y, my = self.pick(b, lambda m: like(m, mx) and m.shape == mx.shape)
        index = places_along(number, mx.shape, axis)[: mx.shape[0]]
        index = np.take(index, range(min(index.shape[axis], mx.shape[axis])), axis)
        how = "add" if add else None
        self.keep(x.scatter(axis, index, y, how), mx.scatter(axis, index, my, add))

    @rule(a=PICK, how=st.sampled_from(["detach", "clone", "contiguous"]))
    def same(self, a: int, how: str) -> None:
        x, mx = self.pick(a)
        self.keep(getattr(x, how)(), ModelTensor(mx.array))

    # writing -------------------------------------------------------------------------------------

    @rule(a=PICK, b=PICK)
    def assign(self, a: int, b: int) -> None:
        x, mx = self.pick(a)
        y, my = self.pick(b, lambda m: like(m, mx) and fits(m.shape, mx.shape))
        x.assign(y)
        mx.assign(my)

    @rule(a=PICK, b=PICK, name=st.sampled_from(["add", "sub", "maximum"]))
    def update(self, a: int, b: int, name: str) -> None:
        x, mx = self.pick(a, is_number)
        y, my = self.pick(b, lambda m: like(m, mx) and fits(m.shape, mx.shape))
        new = mx.binary(name, my)
        if not is_small(new.array):
            return
        if name == "add":
            x += y
        elif name == "sub":
            x -= y
        else:
            x.assign(x.maximum(y))
        mx.assign(new)

    @rule(a=PICK, b=PICK, index=INDICES)
    def write(self, a: int, b: int, index: Any) -> None:
        x, mx = self.pick(a, lambda m: takes(m, index))
        place = mx.array[index]
        y, my = self.pick(b, lambda m: like(m, mx) and fits(m.shape, place.shape), True)
        if y is not None and place.size:
            x[index] = y
            mx[index] = my

    @rule(a=PICK, index=INDICES, value=SMALL)
    def write_number(self, a: int, index: Any, value: int) -> None:
        x, mx = self.pick(a, lambda m: takes(m, index) and is_number(m))
        x[index] = value
        mx[index] = ModelTensor(np.array(value, mx.array.dtype))

    @rule(a=PICK, index=INDICES, by=SMALL)
    def update_part(self, a: int, index: Any, by: int) -> None:
        x, mx = self.pick(a, lambda m: takes(m, index) and is_number(m))
        new = mx.array[index] * by
        if is_small(new):
            x[index] *= by
            mx[index] = ModelTensor(new)

    @rule(a=PICK, b=PICK, number=PICK)
    def write_many(self, a: int, b: int, number: int) -> None:
        """Index arrays may name a place twice: the last write wins."""
        x, mx = self.pick(a, has_axes)
        index, same = index_arrays(number, mx.shape)
        shape = mx.array[same].shape
        y, my = self.pick(b, lambda m: like(m, mx) and fits(m.shape, shape), True)
        if y is not None and 0 not in shape:
            x[index] = y
            mx[same] = my

    @rule(a=PICK, b=PICK, how=st.integers(0, 5))
    def mistake(self, a: int, b: int, how: int) -> None:
        """An error, after which everything is as before."""
        x, mx = self.pick(a, lambda m: has_axes(m) and m.array.dtype == np.int32)
        y, _ = self.pick(b)
        wrong: list[Callable[[], Any]] = [
            lambda: x.assign(Tensor.zeros(*mx.shape, 5)),
            lambda: x.__setitem__(mx.shape[0], y),
            lambda: x.__setitem__(slice(None), Tensor.zeros(17, 19)),
            lambda: x.__itruediv__(2),
            lambda: x.__iadd__(Tensor.zeros(5, *mx.shape, dtype=mk.dtypes.int32)),
            lambda: x.__setitem__([mx.shape[0]], 1),
        ]
        try:
            wrong[how]()
        except MorokError:
            return
        raise AssertionError(f"mistake {how} went unnoticed")

    @rule(a=PICK, b=PICK)
    def starve(self, a: int, b: int) -> None:
        """A write and a read for which there is no memory: made later, or not at all."""
        x, mx = self.pick(a)
        y, my = self.pick(b, lambda m: like(m, mx) and fits(m.shape, mx.shape))
        with mock.patch.object(engine, "realize", side_effect=MemoryError):
            try:
                x.assign(y)
            except MemoryError:
                return
            mx.assign(my)
            try:
                x.numpy()
            except MemoryError:
                return

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
        for array, before in self.held:
            if not any(np.shares_memory(array, lent) for lent, *_ in self.lent):
                np.testing.assert_array_equal(array, before)

    def teardown(self) -> None:
        if not self.pairs:
            return
        owners = [tensor for *_, pairs in self.lent for tensor, _ in pairs]
        Tensor.realize(*(tensor for tensor, _ in self.pairs), *owners)
        for tensor, model in self.pairs:
            self.agree(tensor, model)
        for array, model_array, _ in self.lent:
            np.testing.assert_array_equal(array, model_array)


# Running -----------------------------------------------------------------------------------------


def run(number: int, examples: int = 20, steps: int = 40) -> None:
    """The programs of one seed: the same ones in every process. The exception of the first that
    goes wrong, after the shortest such program was printed."""
    run_state_machine_as_test(
        seed(number)(Programs),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=False,
            print_blob=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
