"""Values on several devices: what the ops mean, and that the rules keep it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from morok import config
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import Level, Ops, ReduceOp, UOp, interpret_tensor, verify
from morok.rangeify import on_one_device
from tests.rangeify.scheduling import scheduled

F32 = dtypes.float32
Array = np.ndarray


def stack(*shape: int, devices: tuple[str, ...] = ("CPU", "CPU:1")) -> UOp:
    size = int(np.prod(shape))
    return UOp.mstack(*(UOp.new_buffer(F32, size, device).reshape(shape) for device in devices))


def data(root: UOp, replicated: UOp | None = None) -> dict[UOp, Array]:
    """Whole numbers for every BUFFER, so that sums are exact in any order."""
    draw = np.random.default_rng(3)
    found = [node for node in root.toposort() if node.op is Ops.BUFFER]
    arrays = {node: draw.integers(-9, 9, node.arg).astype(np.float32) for node in found}
    if replicated is not None:
        first, *others = [shard.src[0] for shard in replicated.src[0].src]
        arrays |= {node: arrays[first] for node in others if first in arrays}
    return arrays


SHARDED = stack(2, 3).multi(0)  # (4, 3)
COLUMNS = stack(4, 2).multi(1)  # (4, 4)
SAME = stack(4, 3).multi(None)
PLAIN = UOp.new_buffer(F32, 12).reshape((4, 3))
GRAPHS: dict[str, UOp] = {
    "sum with a whole value": SHARDED + PLAIN,
    "sum with a replicated value": SHARDED + SAME,
    "sum of replicated values": SAME + SAME,
    "product with a number": SHARDED * 2.0,
    "cast": SHARDED.cast(dtypes.int32),
    "choice": (SHARDED < PLAIN).where(SHARDED, SAME),
    "along different axes": SHARDED.pad((0, 0), (0, 1)) + COLUMNS,
    "hint": SHARDED.contiguous(),
    "transposed": SHARDED.permute((1, 0)),
    "flat": SHARDED.reshape((12,)),
    "split": SHARDED.reshape((2, 2, 3)),
    "across the shards' border": SHARDED.reshape((3, 4)),
    "flipped beside": SHARDED.flip((False, True)),
    "flipped along": SHARDED.flip((True, True)),
    "padded beside": SHARDED.pad((0, 1), (0, 2)),
    "padded along": SHARDED.pad((1, 1), (0, 2)),
    "shrunk beside": SHARDED.shrink((0, 1), (4, 3)),
    "shrunk along": SHARDED.shrink((1, 1), (4, 3)),
    "expanded": SHARDED.reshape((4, 3, 1)).expand((4, 3, 5)),
    "replicated and moved": SAME.permute((1, 0)).shrink((1, 0), (3, 4)),
    "reduced along": SHARDED.reduce_axis(ReduceOp.ADD, (0,)),
    "reduced beside": SHARDED.reduce_axis(ReduceOp.MIN, (1,)),
    "reduced before": COLUMNS.reduce_axis(ReduceOp.MAX, (0,)),
    "reduced in both": COLUMNS.reduce_axis(ReduceOp.MUL, (0, 1)),
    "reduced in each": SAME.reduce_axis(ReduceOp.MAX, (0,)),
    "one shard": SHARDED.mselect(1) + 1.0,
    "one of a stack": stack(2, 3).mselect(0),
    "on another device": SHARDED.copy_to("CPU:1"),
    "there already": PLAIN.copy_to("CPU"),
    "partial sums": stack(4).allreduce(ReduceOp.ADD, "CPU:1"),
    "partial maxima": stack(4).allreduce(ReduceOp.MAX, "CPU"),
    "one partial result": PLAIN.allreduce(ReduceOp.ADD, "CPU"),
    "a network's layer": (SHARDED.reshape((4, 3, 1)).expand((4, 3, 2)) * 0.5)
    .reduce_axis(ReduceOp.ADD, (1,))
    .maximum(0.0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_rules_keep_the_value_and_leave_no_shards(name: str) -> None:
    sink = UOp.new_sink(verify(GRAPHS[name], Level.TENSOR))
    done = on_one_device(sink)
    inputs = data(sink, SAME)
    (want,), (got,) = interpret_tensor(sink, inputs), interpret_tensor(done, inputs)
    assert want.shape == GRAPHS[name].shape
    assert np.array_equal(want, got)
    assert not any(done.has(op) for op in (Ops.MULTI, Ops.MSTACK, Ops.MSELECT, Ops.ALLREDUCE))


def whole(inputs: dict[UOp, Array], value: UOp) -> Array:
    """A MULTI as NumPy puts it together."""
    parts = [inputs[shard.src[0]].reshape(shard.shape) for shard in value.src[0].src]
    return parts[0] if value.arg is None else np.concatenate(parts, value.arg)


IN_NUMPY: dict[str, Callable[[Array, Array, Array], Array]] = {
    "sum with a whole value": lambda a, same, plain: a + plain,
    "choice": lambda a, same, plain: np.where(a < plain, a, same),
    "transposed": lambda a, same, plain: a.T,
    "across the shards' border": lambda a, same, plain: a.reshape(3, 4),
    "flipped along": lambda a, same, plain: a[::-1, ::-1],
    "reduced along": lambda a, same, plain: a.sum(0),
    "reduced beside": lambda a, same, plain: a.min(1),
    "one shard": lambda a, same, plain: a[2:] + 1,
    "on another device": lambda a, same, plain: a,
}


@pytest.mark.parametrize("name", IN_NUMPY)
def test_the_value_is_numpys(name: str) -> None:
    graph = GRAPHS[name]
    inputs = data(UOp.group(graph, SHARDED, SAME, PLAIN), SAME)
    plain = inputs[PLAIN.src[0]].reshape(4, 3)
    want = IN_NUMPY[name](whole(inputs, SHARDED), whole(inputs, SAME), plain)
    assert np.array_equal(interpret_tensor(graph, inputs), want)


def test_partial_results_are_reduced_with_the_step() -> None:
    parts = stack(4)
    for op, numpy in (
        (ReduceOp.ADD, np.add),
        (ReduceOp.MUL, np.multiply),
        (ReduceOp.MIN, np.minimum),
    ):
        graph = parts.allreduce(op, "CPU")
        inputs = data(graph)
        a, b = (inputs[part.src[0]] for part in parts.src)
        assert np.array_equal(interpret_tensor(graph, inputs), numpy(a, b))
        assert graph.device is UOp.new_device("CPU")


def test_each_device_computes_its_own_shard() -> None:
    other = UOp.new_device("CPU:1")
    assert SHARDED.mselect(1).device is stack(2).mselect(1).device is other
    done = on_one_device(UOp.new_sink(SHARDED.mselect(1) * 2.0))
    assert {node.arg.index for node in done.toposort() if node.op is Ops.DEVICE} == {1}
    assert not done.has(Ops.COPY)


def test_a_write_goes_to_every_shard() -> None:
    memory = stack(2, 3).multi(0)
    written = memory.after(memory.store(PLAIN * 2.0))
    done = on_one_device(UOp.new_sink(written))
    inputs = data(UOp.group(memory, PLAIN))
    want = inputs[PLAIN.src[0]].reshape(4, 3) * 2
    assert np.array_equal(interpret_tensor(done, inputs)[0], want)
    assert sum(node.op is Ops.STORE for node in done.toposort()) == 2


def test_a_write_to_one_of_a_stack() -> None:
    memory = stack(4)
    one = memory.mselect(1)
    graph = one.after(one.store(UOp.const(F32, 7.0)))
    assert np.array_equal(interpret_tensor(graph, data(graph)), np.full(4, 7.0))


@pytest.mark.parametrize("axis", [0, None])
def test_a_single_number_comes_to_every_shard(axis: int | None) -> None:
    number = UOp.new_buffer(F32, 1, "CPU:2").reshape(())
    done = on_one_device(UOp.new_sink(stack(2, 3).multi(axis) * number))
    products = [node for node in done.toposort() if node.op is Ops.MUL]
    assert {node.device.arg.index for node in products} <= {0, 1}
    for node in products:
        assert node.src[0].device is node.src[1].device


@pytest.mark.parametrize("verifying", [False, True])
def test_writes_to_parts_of_shards_are_refused(verifying: bool) -> None:
    part = SHARDED.shrink((0, 0), (2, 3))
    sink = UOp.new_sink(SHARDED.after(part.store(part + 1.0)))
    with (
        config.override(verify=verifying),
        pytest.raises(InvalidGraphError, match="expected no such op"),
    ):
        on_one_device(sink)


def test_graphs_without_shards_stay_as_they_are() -> None:
    sink = UOp.new_sink(PLAIN + 1.0)
    assert on_one_device(sink) is sink


@pytest.mark.parametrize("name", ["sum with a whole value", "reduced along", "transposed"])
def test_shards_of_one_device_are_compiled(name: str) -> None:
    graph = GRAPHS[name]
    inputs = data(graph)
    assert np.array_equal(scheduled(graph, inputs), interpret_tensor(graph, inputs))
