"""Gradients of values written element by element: gathers, scatters, scans.

What `element i of the result is f(x[a(i)], …)` sends back to x is an ordered loop of its own: it
adds f's slope at i to element a(i). A scan, element i = f(element i-1, …), first runs backwards
along its axis, with f's slope with respect to what it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from morok._core import substitute
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import Ops, UOp, element_reads, is_carried, is_ordered, loops_of, parts_of
from morok.tensor import nodes
from morok.tensor.loops import recurrence, scattered, tabulated

Gradients = Callable[[UOp, UOp, Iterable[UOp], Sequence[UOp]], dict[UOp, UOp]]
"""`gradients` of a scalar expression whose reads, the last argument, are not entered."""


def is_by_elements(node: UOp) -> bool:
    """Whether gradients of `node` follow from the rules here."""
    return node.op is Ops.BUFFERIZE or is_ordered(node)


def tensors_of(node: UOp) -> list[UOp]:
    """The tensors of which `node` reads elements, and the contents it starts from."""
    found = [read.src[0] for read in element_reads(parts_of(node)) if not is_carried(read)]
    return [*found, node.src[0]] if is_ordered(node) else found


def element_gradients(grad: UOp, node: UOp, gradients: Gradients) -> dict[UOp, UOp]:
    """For each tensor of `tensors_of(node)` that gradients reach, its part of the gradient.

    `grad` has the shape of `node` or (). InvalidGraphError for an ordered loop that is no scan and
    no scatter, or puts several values in one place.
    """
    loops = loops_of(node)
    if not is_ordered(node):
        if grad.op is not Ops.CONST:  # elements of a tensor are read, one of shape () too
            grad = nodes.broadcast_to(grad, nodes.shape_of(node)).at(*loops)
        return _sent(node.src[0], grad, element_reads(parts_of(node)), gradients)
    store, memory = node.src[1], node.src[0]
    index, value = store.src[:2]
    reads = element_reads((value,))
    carried = [read for read in reads if is_carried(read)]
    if carried and all(read is index for read in carried):
        grad = nodes.broadcast_to(grad, nodes.shape_of(node))
        found = _sent(value, index.replace(src=(grad, *index.src[1:])), reads, gradients)
        collect(found, memory, grad)
        return found
    if carried and all(isinstance(_axis(read, index), int) for read in carried):
        return _scan_gradients(grad, node, carried, gradients)
    if not is_carried(index):
        grad = nodes.broadcast_to(grad, nodes.shape_of(node))
        found = _sent(value, index.replace(src=(grad, *index.src[1:])), reads, gradients)
        gate = index.src[-1] if index.arg else None
        kept = scattered(grad, index.indices, gate, nodes.const(grad.dtype, 0), loops, False)
        collect(found, memory, kept)
        return found
    raise InvalidGraphError(
        "an ordered loop that is no scan and adds nothing has no gradient",
        node=node,
        rule="differentiable",
    )


def collect(found: dict[UOp, UOp], tensor: UOp, part: UOp) -> None:
    """Add `part` to what was found of the gradient of `tensor`."""
    before = found.get(tensor)
    found[tensor] = part if before is None else nodes.add(before, part)


def _sent(value: UOp, seed: UOp, reads: Sequence[UOp], gradients: Gradients) -> dict[UOp, UOp]:
    """What the scalar `value`, with gradient `seed`, sends to the tensors it reads."""
    wanted = [read for read in reads if read.dtype.kind == "f" and not is_carried(read)]
    found: dict[UOp, UOp] = {}
    for read, slope in gradients(value, seed, wanted, reads).items():
        collect(found, read.src[0], _collected(read, slope))
    return found


def _collected(read: UOp, slope: UOp) -> UOp:
    """The tensor of the slopes at all reads of each element of `read`'s tensor."""
    tensor = read.src[0]
    shape = nodes.shape_of(tensor)
    open_loops = {*read.open_ranges, *slope.open_ranges}
    still = {loop: UOp.const(dtypes.index, 0) for loop in open_loops if loop.src[0].arg == 1}
    if still:
        read = substitute(read, still, open_only=True)
        slope = substitute(slope, still, open_only=True)
    loops = tuple(sorted(open_loops - still.keys(), key=lambda loop: int(loop.arg[0].number)))
    gate = read.src[-1] if read.arg else None
    if gate is not None:
        slope = nodes.where(gate, slope, nodes.const(slope.dtype, 0))
    if _each_once(read.indices, loops, shape):
        return nodes.reshape(tabulated(slope, [i for i in read.indices if i in loops]), shape)
    zeros = nodes.full(shape, tensor.dtype, 0)
    return scattered(zeros, read.indices, gate, slope, loops, True)


def _each_once(at: Sequence[UOp], loops: Sequence[UOp], shape: nodes.Shape) -> bool:
    """Whether the loops read each element once: every index is a loop through its whole axis."""
    plain = [i for i, n in zip(at, shape, strict=True) if i.op is Ops.RANGE and i.src[0].arg == n]
    still = sum(n == 1 and i.op is Ops.CONST for i, n in zip(at, shape, strict=True))
    return len(plain) + still == len(shape) and len(set(plain)) == len(plain) == len(loops)


def _axis(read: UOp, index: UOp) -> int | None:
    """The axis along which a carried read is one behind where the loop writes."""
    apart = [
        axis
        for axis, (a, b) in enumerate(zip(read.indices, index.indices, strict=True))
        if a is not b
    ]
    if len(apart) != 1 or index.indices[apart[0]].op is not Ops.RANGE:
        return None
    loop = index.indices[apart[0]]
    before = (loop - 1).maximum(UOp.const(dtypes.index, 0))
    return apart[0] if read.indices[apart[0]] is before else None


def _scan_gradients(
    grad: UOp, node: UOp, carried: list[UOp], gradients: Gradients
) -> dict[UOp, UOp]:
    store = node.src[1]
    index, value = store.src[:2]
    axis = _axis(carried[0], index)
    assert axis is not None
    loop = index.indices[axis]
    # Elements are final once written: what the loop carried can be read from its result.
    reads = element_reads((value,))
    final = {read: read for read in reads if not is_carried(read)}
    final |= {read: node.at(*read.indices) for read in carried}
    value = value.substitute(final)
    reads = [final[read] for read in reads]
    # The slope at i with respect to element i - 1, where i > 0.
    one = nodes.const(node.dtype, 1)
    slopes = gradients(value, one, [final[read] for read in carried], reads)
    slope = nodes.const(node.dtype, 0)
    for part in slopes.values():
        slope = nodes.alu(Ops.ADD, slope, part)
    flows = _backwards(nodes.broadcast_to(grad, nodes.shape_of(node)), axis, loop, slope)
    others = [read for read in reads if read.src[0] is not node]
    return _sent(value, flows.at(*index.indices), others, gradients)


def _backwards(grad: UOp, axis: int, loop: UOp, slope: UOp) -> UOp:
    """h with h[i] = grad[i] + slope[i + 1] * h[i + 1] along `axis`: a scan of the flipped arrays,
    so that it can be differentiated in its turn."""
    shape = nodes.shape_of(grad)
    last = shape[axis] - 1
    flags = [i == axis for i in range(len(shape))]
    grad = nodes.flip(grad, flags)
    ahead = (last + 1 - loop).minimum(UOp.const(dtypes.index, last))

    def step(before: UOp, loops: tuple[UOp, ...]) -> UOp:
        here = substitute(slope, {loop: ahead}, open_only=True)
        carried = nodes.alu(Ops.MUL, here, before)
        own = grad.at(*loops)
        return nodes.where(loops[axis] < 1, own, nodes.alu(Ops.ADD, own, carried))

    return nodes.flip(recurrence(shape, axis, grad.dtype, step), flags)
