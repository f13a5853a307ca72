"""Random tensors: counter based, so that a value is fixed when the tensor is created.

Element i of a random tensor is Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011) of (counter + i) under the seed's key, 64 bits an element. Every random tensor takes
its own stretch of counters, held in a small buffer: the order of evaluation does not matter, and
another stretch compiles nothing new.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from morok import engine
from morok.dtype import DType, acc_dtype, default_float, dtypes
from morok.errors import ArgumentError, DTypeError, FunctionError, ShapeError
from morok.forking import held_at_fork
from morok.ir import Ops, UOp
from morok.tensor import memory, nodes
from morok.tensor.base import fail
from morok.tensor.creation import shape_from
from morok.tensor.loss import Loss
from morok.tensor.nodes import Shape, alu, const
from morok.tensor.provenance import stamp
from morok.tensor.tracing import tracing

_WORD = 0xFFFFFFFF


class _Apart(threading.local):
    """The first counter not yet given out where a thread draws apart."""

    counter: int | None = None


class _Generator:
    """The seed's key and the first counter not yet given out."""

    def __init__(self, seed: int) -> None:
        self._apart = _Apart()
        self.lock = held_at_fork(threading.Lock())
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start again with `seed`."""
        with self.lock:
            self.value = seed & ((1 << 64) - 1)
            self.counter = 0
            self.key: UOp | None = None
        record = engine.recording()
        if record is not None:
            record.seed(self.value)

    def take(self, count: int) -> tuple[UOp, UOp]:
        """The key, and the first of `count` counters, as 0-d values in memory."""
        with self.lock:
            if self.key is None:
                self.key = memory.number(dtypes.uint64, self.value)
            key, apart = self.key, self._apart.counter
            first = self.counter if apart is None else apart
            after = (first + count) & ((1 << 64) - 1)
            if apart is None:
                self.counter = after
            else:
                self._apart.counter = after
        start = memory.number(dtypes.uint64, first)
        notes = tracing()
        if notes is not None:
            notes.draws.append((count, key, start))
        record = engine.recording()
        if record is not None:
            places = (engine.buffers.buffer_of(engine.base_of(u)) for u in (key, start))
            record.draw(count, *places)
        return key, start

    def take_all(self, events: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        """For each ("draw", count), the seed and the first counter; ("seed", s) starts again."""
        out = []
        with self.lock:
            state = self.value, self.counter
            for event in events:
                if event[0] == "draw":
                    out.append(state)
                state = state_after(state, event)
            self._go_on(state)
        return out

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What this thread draws in the block uses up nothing: not for itself, and other threads,
        which go on drawing, get no number twice."""
        before = self._apart.counter
        self._apart.counter = self.counter if before is None else before
        try:
            yield
        finally:
            self._apart.counter = before

    def state(self) -> tuple[int, int]:
        """The seed, and the first counter not yet given out."""
        with self.lock:
            return self.value, self.counter

    def restore(self, state: tuple[int, int]) -> None:
        """Go on from a `state`."""
        with self.lock:
            self._go_on(state)

    def _go_on(self, state: tuple[int, int]) -> None:
        if state[0] != self.value:
            self.key = None
        self.value, self.counter = state


def state_after(state: tuple[int, int], event: tuple[str, int]) -> tuple[int, int]:
    """The seed and the next counter after ("draw", count) or ("seed", s)."""
    seed, counter = state
    kind, number = event
    return (number, 0) if kind == "seed" else (seed, (counter + number) & ((1 << 64) - 1))


generator = _Generator(0)


def manual_seed(seed: int) -> None:
    """Start the random numbers again: the same seed and the same calls give the same numbers."""
    notes = tracing()
    if notes is not None:
        fail(FunctionError, f"{notes.name} seeds the generator: do it before the call")
    generator.seed(seed)


def initial_seed() -> int:
    """The seed in use (0 until `manual_seed` is called)."""
    return generator.value


def _bits(count: int) -> UOp:
    """`count` fresh uint64, all bits random."""
    key, first = generator.take(count)
    counters = alu(Ops.ADD, nodes.iota(count, dtypes.uint64), first)
    return alu(Ops.THREEFRY, counters, key)


def _unit(bits: UOp, dtype: DType) -> UOp:
    """Even in [0, 1): as many of the high bits as `dtype` represents exactly."""
    digits = _DIGITS[dtype.name]
    high = alu(Ops.SHR, bits, const(dtypes.uint64, 64 - digits))
    work = acc_dtype(dtype)
    if digits <= 32:  # the narrow conversion is the one CPUs have in vectors
        high = nodes.cast(high, dtypes.uint32)
    return nodes.cast(alu(Ops.MUL, nodes.cast(high, work), const(work, 2.0**-digits)), dtype)


_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "fp8e4m3": 4, "fp8e5m2": 3}


class Random(Loss):
    """Constructors of random tensors."""

    __slots__ = ()

    @classmethod
    def _drawn(cls, shape: Shape, flat: UOp, requires_grad: bool) -> Self:
        return cls._created(nodes.reshape(flat, shape), requires_grad)

    @staticmethod
    def _float(method: str, dtype: DType | None) -> DType:
        dtype = dtype or default_float()
        if dtype.kind != "f":
            fail(DTypeError, f"{method}: random numbers of {dtype}: a float dtype is needed")
        return dtype

    @classmethod
    def rand(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """Even in [0, 1)."""
        stamp()
        dims = shape_from(shape)
        flat = _unit(_bits(math.prod(dims)), cls._float("rand", dtype))
        return cls._drawn(dims, flat, requires_grad)

    @classmethod
    def uniform(
        cls,
        *shape: int | Sequence[int],
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Even in [low, high)."""
        stamp()
        dims, dtype = shape_from(shape), cls._float("uniform", dtype)
        flat = _unit(_bits(math.prod(dims)), dtype)
        flat = alu(Ops.MUL, flat, const(dtype, high - low))
        flat = alu(Ops.ADD, flat, const(dtype, low))
        return cls._drawn(dims, flat, requires_grad)

    @classmethod
    def randn(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """Normal with mean 0 and variance 1 (Box and Muller 1958, from the halves of a block)."""
        return cls.normal(*shape, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def normal(
        cls,
        *shape: int | Sequence[int],
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Normal with this mean and standard deviation."""
        stamp()
        dims, dtype = shape_from(shape), cls._float("normal", dtype)
        work = acc_dtype(dtype)
        bits = _bits(math.prod(dims))
        high = nodes.cast(alu(Ops.SHR, bits, const(dtypes.uint64, 32)), dtypes.uint32)
        low = nodes.cast(alu(Ops.AND, bits, const(dtypes.uint64, _WORD)), dtypes.uint32)
        # In (0, 1]: half a step above zero, so that the logarithm is finite.
        radius = alu(Ops.MUL, nodes.cast(high, work), const(work, 2.0**-32))
        radius = alu(Ops.ADD, radius, const(work, 2.0**-33))
        radius = alu(Ops.MUL, alu(Ops.LOG, radius), const(work, -2.0))
        angle = alu(Ops.MUL, nodes.cast(low, work), const(work, 2 * math.pi * 2.0**-32))
        flat = alu(Ops.MUL, alu(Ops.SQRT, radius), alu(Ops.COS, angle))
        if std != 1:
            flat = alu(Ops.MUL, flat, const(work, std))
        if mean != 0:
            flat = alu(Ops.ADD, flat, const(work, mean))
        return cls._drawn(dims, nodes.cast(flat, dtype), requires_grad)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int | None = None,
        size: int | Sequence[int] = (),
        *,
        dtype: DType | None = None,
    ) -> Self:
        """Whole numbers in low … high - 1 (`randint(high, size=…)` starts at 0)."""
        low, high = (0, low) if high is None else (low, high)
        dtype = dtype or dtypes.int32
        span = high - low
        if dtype.kind not in "iu" or span < 1 or span > 1 << 64:
            fail(ShapeError, f"randint: no numbers of {dtype} from {low} to {high - 1}")
        stamp()
        dims = shape_from((size,))
        bits = _bits(math.prod(dims))
        if span <= _WORD:
            # The high word times the span, its high word: even up to 2**-32 (Lemire 2019).
            bits = alu(Ops.SHR, bits, const(dtypes.uint64, 32))
            bits = alu(Ops.MUL, bits, const(dtypes.uint64, span))
            bits = alu(Ops.SHR, bits, const(dtypes.uint64, 32))
        elif span < 1 << 64:
            bits = alu(Ops.MOD, bits, const(dtypes.uint64, span))
        flat = nodes.cast(bits, dtype)
        if low:
            flat = alu(Ops.ADD, flat, const(dtype, low))
        return cls._drawn(dims, flat, False)

    def bernoulli(self) -> Self:
        """1 with the probability this tensor gives, else 0."""
        return (self.rand(self.shape, dtype=dtypes.float32) < self).cast(self.dtype)

    def dropout(self, p: float = 0.5, training: bool = True) -> Self:
        """Each element 0 with probability p, the others over 1 - p; unchanged when not training."""
        if not 0 <= p <= 1:
            fail(ArgumentError, f"dropout: {p} is no probability")
        if not training or p == 0:
            return self._same()
        if p == 1:
            return self * 0.0
        return (self.rand(self.shape, dtype=dtypes.float32) < p).where(0.0, self / (1.0 - p))

    # initialisation of layers --------------------------------------------------------------------

    @classmethod
    def kaiming_uniform(
        cls,
        *shape: int | Sequence[int],
        a: float = 0.0,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Even, with the variance that keeps activations at theirs behind a leaky ReLU of slope `a`
        (He et al. 2015); the fan-in is the product of all dims but the first."""
        bound = math.sqrt(6 / ((1 + a * a) * _fans(shape)[0]))
        return cls.uniform(*shape, low=-bound, high=bound, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def kaiming_normal(
        cls,
        *shape: int | Sequence[int],
        a: float = 0.0,
        dtype: DType | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """As `kaiming_uniform`, normal."""
        std = math.sqrt(2 / ((1 + a * a) * _fans(shape)[0]))
        return cls.normal(*shape, std=std, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def glorot_uniform(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """Even, with the variance that keeps both activations and gradients at theirs (Glorot and
        Bengio 2010)."""
        bound = math.sqrt(6 / sum(_fans(shape)))
        return cls.uniform(*shape, low=-bound, high=bound, dtype=dtype, requires_grad=requires_grad)

    @classmethod
    def glorot_normal(
        cls, *shape: int | Sequence[int], dtype: DType | None = None, requires_grad: bool = False
    ) -> Self:
        """As `glorot_uniform`, normal."""
        std = math.sqrt(2 / sum(_fans(shape)))
        return cls.normal(*shape, std=std, dtype=dtype, requires_grad=requires_grad)

    xavier_uniform, xavier_normal = glorot_uniform, glorot_normal


def _fans(shape: tuple[int | Sequence[int], ...]) -> tuple[int, int]:
    """How many inputs an output has, and outputs an input, for weights (out, in, *axes)."""
    dims = shape_from(shape)
    if len(dims) < 2:
        return max(math.prod(dims), 1), max(math.prod(dims), 1)
    field = math.prod(dims[2:])
    return max(dims[1] * field, 1), max(dims[0] * field, 1)
