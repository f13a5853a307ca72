"""Kernels as scheduling makes them, with what their buffers hold: what random actions are tried on.

A seed is a small computation of one of the families below, with random shapes (ones and primes
among them) and a random dtype. It is scheduled and run kernel by kernel on the interpreter, so that
every kernel comes with sensible contents, places to index among them. Half of the data are small
whole numbers: as long as sums of them stay exact, every order gives the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from bench._interpreted import interpreted
from bench._views import views
from bench.programs import WITH_ELEMENTS, Program, program
from morok import Tensor
from morok.dtype import DType, dtypes, to_numpy
from morok.ir import Ops, UOp
from morok.ir.interpret import interpret_kernel
from morok.optimizer import range_end
from morok.rangeify import run_kernel_split_pipeline

__all__ = ["FAMILIES", "Case", "cases"]

Array = np.ndarray
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 8, 11, 13, 16, 16, 17, 24, 31, 32, 37, 64)
_FLOATS = (dtypes.float32,) * 5 + (dtypes.float64, dtypes.float16, dtypes.bfloat16)
_INTS = tuple(dtype for dtype in dtypes.all if dtype.kind in "iu")
_MOST = 1 << 15  # iterations of the innermost statement
_MOST_BYTES = 1 << 20  # of all buffers of a kernel


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and what its buffers hold, by slot."""

    sink: UOp
    arrays: tuple[Array, ...]


class Maker:
    """Makes inputs of a random kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.whole = rng.random() < 0.6  # only whole numbers
        self.float = rng.choice(_FLOATS)
        self.number = rng.choice((*_FLOATS, *_INTS))

    def size(self, most: int = 64) -> int:
        return self.rng.choice([n for n in _SIZES if n <= most])

    def shape(self, axes: int, most: int = 4096) -> tuple[int, ...]:
        while True:
            shape = tuple(self.size() for _ in range(axes))
            if prod(shape) <= most:
                return shape

    def tensor(self, *shape: int, dtype: DType | None = None) -> Tensor:
        """Of the maker's float dtype, or of another one."""
        dtype = dtype or self.float
        random = np.random.default_rng(self.rng.getrandbits(32))
        if dtype.kind == "b":
            return Tensor(random.random(shape) < 0.5)
        if dtype.kind != "f":
            low = 0 if dtype.kind == "u" else -8
            return Tensor(random.integers(low, 9, shape).astype(to_numpy(dtype)))
        data = random.integers(-3, 4, shape) if self.whole else random.standard_normal(shape)
        return Tensor(np.asarray(data, np.float32), dtype=dtype).realize()

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p


# One function a family: values that are realised together -----------------------------------------


def _matmul(m: Maker) -> list[Tensor]:
    rows, columns, depth = (m.size() for _ in range(3))
    while rows * columns * depth > _MOST:
        rows, columns = max(rows // 2, 1), max(columns // 3, 1)
    dtype = m.number if m.chance(0.3) else m.float
    batch = (m.rng.choice((1, 2, 3)),) if m.chance(0.3) else ()
    a = m.tensor(*batch, depth, rows, dtype=dtype).transpose(-1, -2)
    a = m.tensor(*batch, rows, depth, dtype=dtype) if m.chance(0.7) else a
    b = m.tensor(*batch, columns, depth, dtype=dtype).transpose(-1, -2)
    b = m.tensor(*batch, depth, columns, dtype=dtype) if m.chance(0.7) else b
    out = a @ b
    if m.chance(0.3):
        out = out + m.tensor(columns, dtype=dtype)
    if m.chance(0.3):
        out = out.maximum(0)
    return [out]


def _convolution(m: Maker) -> list[Tensor]:
    taps, stride = m.rng.choice((1, 2, 3, 5)), m.rng.choice((1, 1, 2, 3))
    height, width = (m.rng.choice((5, 7, 8, 11, 12, 16)) for _ in range(2))
    channels, out = m.rng.choice((1, 2, 3, 4)), m.rng.choice((1, 2, 3, 4, 8))
    x = m.tensor(m.rng.choice((1, 1, 2)), channels, height, width)
    w = m.tensor(out, channels, taps, taps)
    padding = m.rng.randint(0, taps // 2)
    if m.chance():
        return [x.conv2d(w, stride=stride, padding=padding)]
    x.requires_grad_(True), w.requires_grad_(True)
    y = x.conv2d(w, stride=stride, padding=padding)
    (y * m.tensor(*y.shape)).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    return [x.grad, w.grad]


def _reduction(m: Maker) -> list[Tensor]:
    x = m.tensor(*m.shape(m.rng.randint(1, 3)), dtype=m.number)
    axis = m.rng.randrange(x.ndim)
    ways: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: x.sum(axis),
        lambda x: x.sum(),
        lambda x: x.max(axis),
        lambda x: x.min(axis),
        lambda x: x.prod(axis),
        lambda x: x.argmax(axis),
        lambda x: (x > 1).any(axis),
        lambda x: (x >= 1).all(axis),
        lambda x: x.cast(m.float).mean(axis),
        lambda x: (x * x).sum(axis),
    )
    return [way(x) for way in m.rng.sample(ways, m.rng.choice((1, 1, 2, 3)))]


def _rows(m: Maker) -> list[Tensor]:
    x = m.tensor(*m.shape(2, 1024))
    ways: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: x.softmax(-1),
        lambda x: x.softmax(0),
        lambda x: x.log_softmax(-1),
        lambda x: x.logsumexp(-1),
        lambda x: x.layer_norm((x.shape[-1],)),
        lambda x: x.std(-1) if x.shape[-1] > 1 else x,
        lambda x: (x - x.mean(0)) * (x.var(0, correction=0) + 1).rsqrt(),
        lambda x: x / (x.abs().max(-1, keepdim=True) + 1),
    )
    return [m.rng.choice(ways)(x)]


def _elementwise(m: Maker) -> list[Tensor]:
    shape = m.shape(m.rng.randint(1, 3))
    x, y = m.tensor(*shape), m.tensor(*shape)
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: x.gelu(),
        lambda: x.exp() * y + 1,
        lambda: (x * y).sigmoid(),
        lambda: x.tanh() + x.T.contiguous().T,
        lambda: (x < y).where(x, y * 2),
        lambda: x.sin() + y.cos(),
        lambda: (x.abs() + 1).log() / (y.square() + 1).sqrt(),
        lambda: x.erf() - y.round(),
        lambda: x.cast(dtypes.int32) + y.cast(dtypes.int8).cast(dtypes.int32),
        lambda: x.cast(m.rng.choice(_FLOATS)) * 2,
        lambda: x < y,
        lambda: (x > 0) & (y > 0),
        lambda: x.floor() + y.ceil() * x.trunc(),
    )
    return [way() for way in m.rng.sample(ways, m.rng.choice((1, 1, 2, 3)))]


def _integers(m: Maker) -> list[Tensor]:
    shape, dtype = m.shape(m.rng.randint(1, 3)), m.rng.choice(_INTS)
    x, y = m.tensor(*shape, dtype=dtype), m.tensor(*shape, dtype=dtype)
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: x * y - x,
        lambda: x // y,
        lambda: x % y,
        lambda: x & y | (x ^ 3),
        lambda: (x << 1) + (y >> 1),
        lambda: x.maximum(y).cast(m.rng.choice(_INTS)),
        lambda: (x < y).cast(dtypes.int32).sum(0),
        lambda: (x == y).where(x, y),
        lambda: x.cast(m.float) * 3,
        lambda: x * x.T.contiguous().T,
    )
    return [way() for way in m.rng.sample(ways, m.rng.choice((1, 1, 2, 3)))]


def _moved(m: Maker) -> list[Tensor]:
    x = m.tensor(*m.shape(2, 1024), dtype=m.number)
    pads = [(m.rng.randint(0, 3), m.rng.randint(0, 3)) for _ in range(2)]
    ways: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: x.T.contiguous(),
        lambda x: x.pad(pads) + 1,
        lambda x: x.pad(pads).sum(m.rng.randrange(2)),
        lambda x: x.flip(1) + x,
        lambda x: x[:, ::2].contiguous(),
        lambda x: x.repeat(2, 1).T + 1,
        lambda x: Tensor.cat(x, x + 1, dim=m.rng.randrange(2)),
        lambda x: x.tril() + x.triu(),
        lambda x: x.reshape(-1)[1:] if x.numel() > 1 else x + 1,
    )
    return [m.rng.choice(ways)(x)]


def _windows(m: Maker) -> list[Tensor]:
    side = m.rng.choice((4, 5, 7, 8, 9, 12))
    x = m.tensor(m.rng.choice((1, 2, 3)), m.rng.choice((1, 2, 3)), side, side)
    x.requires_grad_(True)
    taps = m.rng.choice((2, 3))
    pooled = x.max_pool2d(taps) if m.chance() else x.avg_pool2d(taps)
    if m.chance():
        return [pooled]
    (pooled * m.tensor(*pooled.shape)).sum().backward()
    assert x.grad is not None
    return [x.grad]


def _attention(m: Maker) -> list[Tensor]:
    heads, length, width = m.rng.choice((1, 2)), m.rng.choice((1, 5, 8, 13)), m.rng.choice((4, 8))
    q, k, v = (m.tensor(1, heads, length, width) for _ in range(3))
    return [q.scaled_dot_product_attention(k, v, is_causal=m.chance())]


def _indexed(m: Maker) -> list[Tensor]:
    x = m.tensor(m.size(), m.size(17), dtype=m.number)
    places = np.array([m.rng.randrange(x.shape[0]) for _ in range(m.size())], np.int32)
    if m.chance():
        return [x[Tensor(places)]]
    return [x.cumsum(m.rng.randrange(2))]


def _written(m: Maker) -> list[Tensor]:
    """A step of an optimizer: what is written is read."""
    shape = m.shape(2, 1024)
    p, v, g = (m.tensor(*shape).realize() for _ in range(3))
    v *= 0.5
    v += g
    p -= v * 0.25
    return [p, v]


def _left_out(m: Maker) -> list[Tensor]:
    """Sums of sums that conditions on places leave out, lane by lane or a whole loop at a time."""
    sizes = [m.size(8) for _ in range(5)]
    x = m.tensor(*sizes)
    if m.chance():
        x = x * m.tensor(*(n if m.chance() else 1 for n in sizes))
    for axes in range(4, 1, -1):
        x = x.max(axes) if m.chance(0.2) else x.sum(axes)
        if m.chance(0.7):
            x = _inside(m, sizes[:axes]).where(x, 0.0 if m.chance(0.8) else 1.5)
    return [x]


def _inside(m: Maker, sizes: list[int]) -> Tensor:
    """A condition on one or two places, or two of them."""
    found = None
    for _ in range(m.rng.choice((1, 1, 2))):
        total = Tensor([0])
        for axis in m.rng.sample(range(len(sizes)), m.rng.choice((1, 2))):
            place = [sizes[axis] if k == axis else 1 for k in range(len(sizes))]
            total = total + Tensor.arange(sizes[axis]).reshape(*place) * m.rng.choice((1, 1, 2, -1))
        limit = m.rng.randint(-3, 8)
        here = total < limit if m.chance() else total >= limit
        found = here if found is None else (found & here if m.chance(0.85) else found | here)
    assert found is not None
    return found.expand(*sizes)


FAMILIES: tuple[Callable[[Maker], list[Tensor]], ...] = (
    _matmul,
    _matmul,
    _matmul,
    _convolution,
    _convolution,
    _reduction,
    _reduction,
    _rows,
    _rows,
    _elementwise,
    _integers,
    _moved,
    _windows,
    _attention,
    _indexed,
    _written,
    _left_out,
    _left_out,
)


def cases(seed: int) -> list[Case]:
    """The kernels of a seed, in the order in which they run; those that are too large left out."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        node_seed = rng.getrandbits(16)
        make = rng.choice((views, program, lambda s: program(WITH_ELEMENTS + s)))
        found = _of_program(make(node_seed))
    else:
        found = _of_tensors(rng.choice(FAMILIES), Maker(rng))
    return [case for case in found if _is_small(case)]


def _of_tensors(family: Callable[[Maker], list[Tensor]], maker: Maker) -> list[Case]:
    found: list[Case] = []
    with interpreted(lambda sink, arrays: found.append(Case(sink, tuple(arrays)))):
        values = family(maker)
        found.clear()  # what made the inputs
        values[0].realize(*values[1:])
    return found


def _of_program(p: Program) -> list[Case]:
    found = []
    memory: dict[UOp, Array] = {}
    schedule = run_kernel_split_pipeline(UOp(Ops.SINK, dtypes.void, p.roots))
    for call in schedule.calls:
        sink, *args = call.src
        for buffer in args:
            if buffer not in memory:
                blank = buffer.op is not Ops.PARAM
                memory[buffer] = (
                    np.full(buffer.arg, 99, to_numpy(buffer.dtype))
                    if blank
                    else p.inputs[buffer.arg[0]].reshape(-1).copy()
                )
        arrays = tuple(memory[buffer] for buffer in args)
        found.append(Case(sink, arrays))
        memory.update(zip(args, interpret_kernel(sink, arrays), strict=True))
    return found


def _is_small(case: Case) -> bool:
    if sum(array.nbytes for array in case.arrays) > _MOST_BYTES:
        return False
    ends = {rng: range_end(rng) for rng in case.sink.toposort() if rng.op is Ops.RANGE}
    return all(
        prod(ends[rng] for rng in {*node.open_ranges, *node.ended_ranges} if rng in ends)
        <= 4 * _MOST
        for node in case.sink.toposort()
    )
