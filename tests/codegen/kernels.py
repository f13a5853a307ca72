"""Small kernels in the form that rangeify hands to code generation, with data to run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from morok._core import toposort
from morok.dtype import AddrSpace, DType, acc_dtype, dtypes, to_numpy
from morok.ir import AxisType, BufferizeOpts, Capability, KernelInfo, Ops, ReduceOp, UOp, check_node
from morok.ir.interpret import interpret_kernel
from morok.optimizer import parse_opts, prepare, replay

LOCAL = BufferizeOpts(addrspace=AddrSpace.LOCAL)


def capability(lanes: int = 8, *, vector_alu: bool = True) -> Capability:
    """A CPU whose vectors have up to `lanes` floats of 32 bits."""
    widths = []
    for dtype in dtypes.all:
        widest = lanes * 4 // dtype.itemsize
        widths.append((dtype, tuple(1 << power for power in range(widest.bit_length()))))
    return Capability(
        "test",
        ops=frozenset(Ops),
        vector_widths=tuple(widths),
        vector_alu=vector_alu,
        vector_registers=2 * lanes,
        l1_bytes=32 << 10,
    )


@dataclass
class Kernel:
    """A kernel and the contents of its buffers, in the order of its PARAMs."""

    sink: UOp
    buffers: list[np.ndarray]


class Builder:
    """Numbers axes and slots while a kernel is written down."""

    def __init__(self, seed: int = 0) -> None:
        self.axes = 0
        self.random = np.random.default_rng(seed)
        self.buffers: list[np.ndarray] = []
        self.outputs = 0

    def loop(self, end: int, axis_type: AxisType = AxisType.LOOP) -> UOp:
        self.axes += 1
        return UOp.range(end, self.axes - 1, axis_type, renumbered=True)

    def red(self, end: int) -> UOp:
        return self.loop(end, AxisType.REDUCE)

    def data(self, dtype: DType, size: int) -> np.ndarray:
        if dtype.kind == "f":
            return self.random.standard_normal(size).astype(to_numpy(dtype))
        if dtype.kind == "b":
            return self.random.integers(0, 2, size).astype(bool)
        low = 0 if dtype.kind == "u" else -50
        return self.random.integers(low, 50, size).astype(to_numpy(dtype))

    def param(
        self, size: int, dtype: DType = dtypes.float32, data: np.ndarray | None = None
    ) -> UOp:
        slot = len(self.buffers)
        self.buffers.append(self.data(dtype, size) if data is None else data)
        return UOp.param(slot, dtype.ptr(), size)

    def kernel(self, *stores: UOp) -> Kernel:
        return Kernel(UOp(Ops.SINK, dtypes.void, stores, KernelInfo(name="test")), self.buffers)


def elementwise(m: int, n: int) -> Kernel:
    """out[i, j] = a[i, j] * b[j] + 1"""
    k = Builder(1)
    i, j = k.loop(m), k.loop(n)
    out, a, b = k.param(m * n), k.param(m * n), k.param(n)
    value = a.at(i * n + j) * b.at(j) + 1.0
    return k.kernel(out.at(i * n + j).store(value, i, j))


def counting(n: int) -> Kernel:
    """out[i] = 3 * i + 1, in two dtypes"""
    k = Builder(2)
    i = k.loop(n)
    ints, floats = k.param(n, dtypes.int32), k.param(n)
    return k.kernel(
        ints.at(i).store((i * 3 + 1).cast(dtypes.int32), i),
        floats.at(i).store((i * 3 + 1).cast(dtypes.float32), i),
    )


def transposed_add(m: int, n: int) -> Kernel:
    """out[i, j] = a[i, j] + b[j, i]"""
    k = Builder(3)
    i, j = k.loop(m), k.loop(n)
    out, a, b = k.param(m * n), k.param(m * n), k.param(m * n)
    return k.kernel(out.at(i * n + j).store(a.at(i * n + j) + b.at(j * m + i), i, j))


def row_reduce(m: int, n: int, op: ReduceOp, dtype: DType = dtypes.float32) -> Kernel:
    """out[i] = reduce of x[i, :]"""
    k = Builder(4)
    i, r = k.loop(m), k.red(n)
    out, x = k.param(m, dtype), k.param(m * n, dtype)
    return k.kernel(out.at(i).store(x.at(i * n + r).reduce(op, r), i))


def column_reduce(m: int, n: int, op: ReduceOp, dtype: DType = dtypes.float32) -> Kernel:
    """out[j] = reduce of x[:, j]"""
    k = Builder(5)
    j, r = k.loop(n), k.red(m)
    out, x = k.param(n, dtype), k.param(m * n, dtype)
    return k.kernel(out.at(j).store(x.at(r * n + j).reduce(op, r), j))


def full_sum(n: int) -> Kernel:
    """out[0] = sum(x), a STORE without loops"""
    k = Builder(6)
    r = k.red(n)
    out, x = k.param(1), k.param(n)
    return k.kernel(out.at(0).store(x.at(r).reduce(ReduceOp.ADD, r)))


def matmul(
    m: int, n: int, depth: int, *, transposed: bool = False, epilogue: bool = False
) -> Kernel:
    """out = a @ b (or b.T), relu(… + bias)"""
    k = Builder(7)
    i, j, r = k.loop(m), k.loop(n), k.red(depth)
    out, a, b = k.param(m * n), k.param(m * depth), k.param(n * depth)
    right = b.at(j * depth + r) if transposed else b.at(r * n + j)
    value = (a.at(i * depth + r) * right).reduce(ReduceOp.ADD, r)
    if epilogue:
        value = (value + k.param(n).at(j)).maximum(0.0)
    return k.kernel(out.at(i * n + j).store(value, i, j))


def conv(channels: int, outs: int, size: int, taps: int) -> Kernel:
    """A padded 2-d convolution, stride 1, gates at the border"""
    k = Builder(8)
    o, y, x = k.loop(outs), k.loop(size), k.loop(size)
    c, r, q = k.red(channels), k.red(taps), k.red(taps)
    out = k.param(outs * size * size)
    image, weight = k.param(channels * size * size), k.param(outs * channels * taps * taps)
    row, column = y + r + -(taps // 2), x + q + -(taps // 2)
    gate = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    pixel = image.at((c * size + row) * size + column, gate=gate)
    factor = weight.at(((o * channels + c) * taps + r) * taps + q)
    value = (pixel * factor).reduce(ReduceOp.ADD, c, r, q)
    return k.kernel(out.at((o * size + y) * size + x).store(value, o, y, x))


def convs(images: int, channels: int, outs: int, size: int, taps: int) -> Kernel:
    """As `conv`, of several images."""
    k = Builder(8)
    n, o, y, x = k.loop(images), k.loop(outs), k.loop(size), k.loop(size)
    c, r, q = k.red(channels), k.red(taps), k.red(taps)
    out = k.param(images * outs * size * size)
    image = k.param(images * channels * size * size)
    weight = k.param(outs * channels * taps * taps)
    row, column = y + r + -(taps // 2), x + q + -(taps // 2)
    gate = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    pixel = image.at(((n * channels + c) * size + row) * size + column, gate=gate)
    factor = weight.at(((o * channels + c) * taps + r) * taps + q)
    value = (pixel * factor).reduce(ReduceOp.ADD, c, r, q)
    return k.kernel(out.at(((n * outs + o) * size + y) * size + x).store(value, n, o, y, x))


def framed_conv(channels: int, outs: int, size: int) -> Kernel:
    """As `conv` with three taps, but zeros are chosen instead of what lies beyond the border."""
    k = Builder(12)
    o, y, x = k.loop(outs), k.loop(size), k.loop(size)
    c, r, q = k.red(channels), k.red(3), k.red(3)
    out = k.param(outs * size * size)
    image, weight = k.param(channels * size * size), k.param(outs * channels * 9)
    row, column = y + r + -1, x + q + -1
    inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    pixel = image.at((c * size + row) * size + column, gate=inside)
    factor = weight.at(((o * channels + c) * 3 + r) * 3 + q)
    value = (inside.where(pixel, 0.0) * factor).reduce(ReduceOp.ADD, c, r, q)
    return k.kernel(out.at((o * size + y) * size + x).store(value, o, y, x))


def folded(size: int, taps: int, channels: int, outs: int) -> Kernel:
    """The gradient of a convolution's source, one row: sums that the border leaves out"""
    k = Builder(13)
    total = size + taps - 1
    o, x = k.loop(outs), k.loop(total)
    q, c = k.red(taps), k.red(channels)
    out = k.param(outs * total)
    slope, weight = k.param(channels * size), k.param(channels * outs * taps)
    inside = (x >= q) & (x < q + size)
    term = slope.at(c * size + x - q, gate=inside) * weight.at((c * outs + o) * taps + q)
    value = inside.where(term.reduce(ReduceOp.ADD, c), 0.0).reduce(ReduceOp.ADD, q)
    return k.kernel(out.at(o * total + x).store(value, o, x))


def padded(n: int, before: int, after: int) -> Kernel:
    """out = x with zeros around it, plus one"""
    k = Builder(9)
    total = n + before + after
    i = k.loop(total)
    out, x = k.param(total), k.param(n)
    at = i + -before
    return k.kernel(out.at(i).store(x.at(at, gate=(at >= 0) & (at < n)) + 1.0, i))


def lower_triangle(n: int) -> Kernel:
    """out[i, j] = x[i, j] if j <= i else 0"""
    k = Builder(10)
    i, j = k.loop(n), k.loop(n)
    out, x = k.param(n * n), k.param(n * n)
    value = (j <= i).where(x.at(i * n + j), 0.0)
    return k.kernel(out.at(i * n + j).store(value, i, j))


def softmax(m: int, n: int) -> Kernel:
    """Rows of softmax; the exponentials stay in a local row"""
    k = Builder(11)
    i, j = k.loop(m), k.loop(n)
    top, fill, total = k.red(n), k.loop(n), k.red(n)
    out, x = k.param(m * n), k.param(m * n)
    most = x.at(i * n + top).reduce(ReduceOp.MAX, top)
    row = (x.at(i * n + fill) - most).exp().bufferize(fill, opts=LOCAL)
    under = row.at(total).reduce(ReduceOp.ADD, total)
    return k.kernel(out.at(i * n + j).store(row.at(j) / under, i, j))


def staged(m: int, n: int) -> Kernel:
    """out[j, i] = x[i, j] through a local copy of the whole matrix"""
    k = Builder(12)
    i, j, a, b = k.loop(n), k.loop(m), k.loop(m), k.loop(n)
    out, x = k.param(m * n), k.param(m * n)
    copy = x.at(a * n + b).bufferize(a, b, opts=LOCAL)
    return k.kernel(out.at(i * m + j).store(copy.at(j, i) * 2.0, i, j))


def gather(m: int, n: int) -> Kernel:
    """out[i, j] = table[ids[i], j] + list[ids[j % …]]: an index read from memory"""
    k = Builder(13)
    i, j = k.loop(m), k.loop(n)
    out, table, values = k.param(m * n), k.param(7 * n), k.param(7)
    rows = k.param(m, dtypes.int32, np.arange(m, dtype=np.int32) * 3 % 7)
    picks = k.param(n, dtypes.int32, np.arange(n, dtype=np.int32) * 5 % 7)
    row, pick = (ids.cast(dtypes.index).maximum(0).minimum(6) for ids in (rows.at(i), picks.at(j)))
    first, second = table.at(row * n + j), values.at(pick)
    return k.kernel(out.at(i * n + j).store(first + second, i, j))


def flipped(n: int) -> Kernel:
    """out[i] = x[n - 1 - i]"""
    k = Builder(14)
    i = k.loop(n)
    out, x = k.param(n), k.param(n)
    return k.kernel(out.at(i).store(x.at(i * -1 + (n - 1)) + x.at(i), i))


def repeated(n: int, times: int) -> Kernel:
    """out[i] = x[i // times] + x[i % n]"""
    k = Builder(15)
    i = k.loop(n * times)
    out, x = k.param(n * times), k.param(n)
    return k.kernel(out.at(i).store(x.at(i // times) - x.at(i % n), i))


def strided(n: int, stride: int) -> Kernel:
    """out[i] = the largest of a window of `stride` elements"""
    k = Builder(16)
    i, r = k.loop(n), k.red(stride)
    out, x = k.param(n), k.param(n * stride)
    return k.kernel(out.at(i).store(x.at(i * stride + r).reduce(ReduceOp.MAX, r), i))


def variance(m: int, n: int) -> Kernel:
    """Mean and variance of rows; the second reduction needs the first, over the same range"""
    k = Builder(17)
    i, r = k.loop(m), k.red(n)
    means, out, x = k.param(m), k.param(m), k.param(m * n)
    mean = x.at(i * n + r).reduce(ReduceOp.ADD, r) * (1.0 / n)
    away = x.at(i * n + r) - mean
    value = (away * away).reduce(ReduceOp.ADD, r) * (1.0 / n)
    return k.kernel(means.at(i).store(mean, i), out.at(i).store(value, i))


def two_sums(m: int, n: int) -> Kernel:
    """Sum and sum of squares of rows in one loop"""
    k = Builder(18)
    i, r = k.loop(m), k.red(n)
    first, second, x = k.param(m), k.param(m), k.param(m * n)
    read = x.at(i * n + r)
    return k.kernel(
        first.at(i).store(read.reduce(ReduceOp.ADD, r), i),
        second.at(i).store((read * read).reduce(ReduceOp.ADD, r), i),
    )


def in_place(n: int) -> Kernel:
    """x = x * x + y, written where it is read"""
    k = Builder(19)
    i = k.loop(n)
    x, y = k.param(n), k.param(n)
    old = x.at(i)
    return k.kernel(x.at(i).store(old * old + y.at(i), i))


def compared(n: int) -> Kernel:
    """out = x < y as bool; picked = where(x < y, x, 2y); wide = x in float64"""
    k = Builder(20)
    i = k.loop(n)
    out, picked, wide = k.param(n, dtypes.bool), k.param(n), k.param(n, dtypes.float64)
    x, y = k.param(n), k.param(n)
    less = x.at(i) < y.at(i)
    return k.kernel(
        out.at(i).store(less, i),
        picked.at(i).store(less.where(x.at(i), y.at(i) * 2.0), i),
        wide.at(i).store(x.at(i).cast(dtypes.float64), i),
    )


def half_sum(m: int, n: int) -> Kernel:
    """Sums of rows of float16 numbers"""
    return row_reduce(m, n, ReduceOp.ADD, dtypes.float16)


def short_product(
    m: int,
    n: int,
    k: int,
    dtype: DType,
    *,
    transposed: bool = False,
    data: Callable[[Builder, int], np.ndarray] | None = None,
) -> Kernel:
    """out[i, j] = sum over r of a[i, r] * b[r, j], or of b[j, r], in the wider dtype"""
    wide = acc_dtype(dtype)
    b = Builder(22)
    i, j, r = b.loop(m), b.loop(n), b.red(k)
    out = b.param(m * n, wide)
    x, y = (
        b.param(size, dtype, None if data is None else data(b, size)) for size in (m * k, k * n)
    )
    right = y.at(j * k + r) if transposed else y.at(r * n + j)
    total = (x.at(i * k + r).cast(wide) * right.cast(wide)).reduce(ReduceOp.ADD, r)
    return b.kernel(out.at(i * n + j).store(total, i, j))


def gated_store(n: int, limit: int) -> Kernel:
    """out[i] = x[i] for i < limit only"""
    k = Builder(21)
    i = k.loop(n)
    out, x = k.param(n), k.param(n)
    return k.kernel(out.at(i, gate=i < limit).store(x.at(i) + 1.0, i))


def nested_sum(m: int, n: int, depth: int) -> Kernel:
    """out[i] = max over j of (sum over r of x[i, j, r]) * y[j]"""
    k = Builder(22)
    i, j, r = k.loop(m), k.red(n), k.red(depth)
    out, x, y = k.param(m), k.param(m * n * depth), k.param(n)
    inner = x.at((i * n + j) * depth + r).reduce(ReduceOp.ADD, r)
    return k.kernel(out.at(i).store((inner * y.at(j)).reduce(ReduceOp.MAX, j), i))


def broadcast_sum(m: int, n: int, depth: int) -> Kernel:
    """out[i, j] = (sum over r of x[i, r]) + y[j]: the sum stands between two loops"""
    k = Builder(23)
    i, j, r = k.loop(m), k.loop(n), k.red(depth)
    out, x, y = k.param(m * n), k.param(m * depth), k.param(n)
    value = x.at(i * depth + r).reduce(ReduceOp.ADD, r)
    return k.kernel(out.at(i * n + j).store(value + y.at(j), i, j))


CASES: dict[str, Callable[[], Kernel]] = {
    "elementwise 3x16": lambda: elementwise(3, 16),
    "elementwise 5x1": lambda: elementwise(5, 1),
    "elementwise 1x13": lambda: elementwise(1, 13),
    "elementwise 2x100": lambda: elementwise(2, 100),
    "counting 24": lambda: counting(24),
    "transposed add 4x8": lambda: transposed_add(4, 8),
    "transposed add 16x16": lambda: transposed_add(16, 16),
    "row sum 3x64": lambda: row_reduce(3, 64, ReduceOp.ADD),
    "row sum 2x37": lambda: row_reduce(2, 37, ReduceOp.ADD),
    "row sum 4x3": lambda: row_reduce(4, 3, ReduceOp.ADD),
    "row max 3x24": lambda: row_reduce(3, 24, ReduceOp.MAX),
    "row min int 3x13": lambda: row_reduce(3, 13, ReduceOp.MIN, dtypes.int32),
    "row product 2x8": lambda: row_reduce(2, 8, ReduceOp.MUL, dtypes.float64),
    "row any 3x16": lambda: row_reduce(3, 16, ReduceOp.MAX, dtypes.bool),
    "column sum 9x16": lambda: column_reduce(9, 16, ReduceOp.ADD),
    "column sum 32x5": lambda: column_reduce(32, 5, ReduceOp.ADD),
    "column max uint8 8x32": lambda: column_reduce(8, 32, ReduceOp.MAX, dtypes.uint8),
    "full sum 131": lambda: full_sum(131),
    "full sum 1": lambda: full_sum(1),
    "matmul 8x16x12": lambda: matmul(8, 16, 12),
    "matmul 5x7x3": lambda: matmul(5, 7, 3),
    "matmul 4x20x1": lambda: matmul(4, 20, 1),
    "matmul relu 4x32x6": lambda: matmul(4, 32, 6, epilogue=True),
    "matmul transposed 4x8x32": lambda: matmul(4, 8, 32, transposed=True),
    "matmul staged 16x20x9": lambda: matmul(16, 20, 9, transposed=True),
    "conv 2 4 8 3": lambda: conv(2, 4, 8, 3),
    "conv 1 3 7 3": lambda: conv(1, 3, 7, 3),
    "folded 6 3 4 8": lambda: folded(6, 3, 4, 8),
    "folded 5 4 3 3": lambda: folded(5, 4, 3, 3),
    "padded 13": lambda: padded(13, 2, 1),
    "padded 16": lambda: padded(16, 8, 8),
    "lower triangle 16": lambda: lower_triangle(16),
    "lower triangle 7": lambda: lower_triangle(7),
    "softmax 3x16": lambda: softmax(3, 16),
    "softmax 2x29": lambda: softmax(2, 29),
    "staged 8x16": lambda: staged(8, 16),
    "gather 5x8": lambda: gather(5, 8),
    "flipped 16": lambda: flipped(16),
    "repeated 8 4": lambda: repeated(8, 4),
    "repeated 3 5": lambda: repeated(3, 5),
    "repeated 16 16": lambda: repeated(16, 16),
    "strided 16 2": lambda: strided(16, 2),
    "strided 8 8": lambda: strided(8, 8),
    "variance 3x16": lambda: variance(3, 16),
    "variance 2x11": lambda: variance(2, 11),
    "two sums 2x40": lambda: two_sums(2, 40),
    "in place 19": lambda: in_place(19),
    "compared 16": lambda: compared(16),
    "half sum 2x48": lambda: half_sum(2, 48),
    "half product 5x16x12": lambda: short_product(5, 16, 12, dtypes.float16),
    "byte product 3x8x6": lambda: short_product(3, 8, 6, dtypes.int8, transposed=True),
    "gated store 16": lambda: gated_store(16, 11),
    "nested sum 2x4x8": lambda: nested_sum(2, 4, 8),
    "broadcast sum 4x8x5": lambda: broadcast_sum(4, 8, 5),
}


def nodes(root: UOp, op: Ops, test: Callable[[UOp], bool] = lambda node: True) -> list[UOp]:
    """The nodes of this op below `root` that pass the test."""
    return [node for node in toposort(root) if node.op is op and test(node)]


def only(root: UOp, op: Ops, test: Callable[[UOp], bool] = lambda node: True) -> UOp:
    """The one node of this op that passes the test."""
    found = nodes(root, op, test)
    assert len(found) == 1, f"{len(found)} {op.name}"
    return found[0]


def run(sink: UOp, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """The contents of all buffers after the kernel has run on copies of them."""
    return interpret_kernel(sink, buffers)


def check(kernel: Kernel, sink: UOp) -> None:
    """`sink` is well-formed node by node and writes what the kernel writes, sums reassociated."""
    for node in toposort(sink):
        check_node(node)
    expected = run(kernel.sink, kernel.buffers)
    for before, after in zip(expected, run(sink, kernel.buffers), strict=True):
        if before.dtype.kind == "f":
            tolerance = 8 * np.sqrt(len(before)) * np.finfo(before.dtype).eps
            np.testing.assert_allclose(after, before, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(after, before)


def opted(kernel: Kernel, opts: str) -> UOp:
    """The prepared kernel with these actions applied."""
    return replay(prepare(kernel.sink), parse_opts(opts))
