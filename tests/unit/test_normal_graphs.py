"""Graphs without names: the same computation elsewhere in memory has the same key."""

from __future__ import annotations

import numpy as np

from morok.dtype import dtypes
from morok.engine import Normal, buffers, sink_of
from morok.ir import Ops, UOp
from morok.tensor import Tensor


def lent(*shape: int) -> Tensor:
    return Tensor.from_numpy(np.zeros(shape, np.float32))


def own(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32)).realize()


def keys(*tensors: Tensor) -> set[bytes]:
    found = set()
    for tensor in tensors:
        normal = Normal(sink_of([tensor.uop]))
        assert normal.key == normal.graph.key
        found.add(normal.key)
    return found


def slots(tensor: Tensor) -> list[tuple[int, int]]:
    """(offset, bytes) of each argument."""
    normal = Normal(sink_of([tensor.uop]))
    return [(window.offset, window.memory.nbytes) for window in normal.windows]


def test_other_memory_is_the_same_graph() -> None:
    x, y = own(4, 5), lent(4, 5)
    assert len(keys(x + 1, y + 1, own(4, 5).detach() + 1)) == 1
    assert len(keys(x + y, y + x)) == 1
    assert len(keys(x + x, x + y)) == 2  # one argument, two arguments
    assert len(keys(x + 1, x + 2, own(5, 4) + 1)) == 3


def test_contiguous_parts_are_arguments() -> None:
    x = own(6, 4, 5)
    assert slots(x[2] * 2) == [(2 * 80, 80)]
    assert slots(x[1:3] * 2) == [(80, 160)]
    assert slots(x[2, 1:3] * 2) == [(2 * 80 + 20, 40)]
    assert slots(x[3, 2, 4] * 2) == [(3 * 80 + 56, 4)]
    assert slots(x[4:5, 3:4, 1:3] * 2) == [(4 * 80 + 64, 8)]
    assert slots(x[:, 1] * 2) == [(0, 480)]  # in six pieces
    assert slots(x[1:3, :, 1:2] * 2) == [(80, 160)]  # pieces of a part
    assert slots(x[::-1][:2] * 2) == [(0, 480)]
    assert len(keys(*(x[i] * 2 for i in range(6)))) == 1
    assert len(keys(x[0] + x[1], x[3] + x[5], x[0] + x[0])) == 2


def test_parts_of_what_is_realized() -> None:
    x = own(6, 4)
    y = x * 2
    part = y[1:3] + 1
    y.realize()
    assert slots(part) == [(16, 32)]


def store(view: UOp, value: UOp) -> UOp:
    return view.after(UOp(Ops.STORE, dtypes.void, (view, value)))


def test_windows_of_written_memory_do_not_overlap() -> None:
    x, v = own(6, 4), own(4)
    base = buffers.base_of(x.uop)

    def arguments(*pairs: tuple[Tensor, Tensor]) -> list[int]:
        normal = Normal(sink_of([store(view.uop, value.uop) for view, value in pairs]))
        assert normal.key == normal.graph.key
        sizes = []
        for slot, window in enumerate(normal.windows):
            if window.node is base:
                sizes.append(window.memory.nbytes)
                assert slot in normal.written
        return sorted(sizes)

    assert arguments((x[1], v)) == [16]
    assert arguments((x[1], v), (x[2:4], x[4:6])) == [16, 32, 32]
    assert arguments((x[1], v + x[1])) == [16]
    assert arguments((x[0:2], x[1:3])) == [96]
    assert arguments((x[1], v + x.sum())) == [96]
    assert arguments((x[:, 1], x[:, 2])) == [96]
    assert arguments((x, x.flip(0))) == [96]


def test_the_same_memory_is_one_argument() -> None:
    x = own(3)
    assert slots(x + x.reshape(3)) == [(0, 12)]
    array = np.zeros(3, np.float32)
    a, b = Tensor.from_numpy(array), Tensor.from_numpy(array)
    assert len(slots(a + b)) == 1
    assert len(slots(a + b.bitcast(x.dtype))) == 1
    assert len(slots(a[:2] + b[1:])) == 2
