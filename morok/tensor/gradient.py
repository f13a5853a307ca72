"""Reverse-mode differentiation of tensor graphs: one entry an op, in one table.

An entry holds, for each source, what turns the gradient of a node into that source's. A gradient
has the shape of its node, or shape () when it is the same everywhere: most losses start so, and
much of the backward graph then needs no EXPAND. Results are ordinary graphs, so that they can be
differentiated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from morok import engine
from morok._core import toposort
from morok.dtype import acc_dtype, dtypes, max_value
from morok.errors import InvalidGraphError
from morok.ir import GroupOp, Ops, ReduceOp, UOp, dims_of
from morok.tensor import nodes
from morok.tensor.call_gradient import call_gradients
from morok.tensor.composed import Rule, slope_of
from morok.tensor.loop_gradient import collect, element_gradients, is_by_elements, tensors_of
from morok.tensor.loops import scanned
from morok.tensor.nodes import alu, const, shape_of, size_of, where


def sigmoid_slope(grad: UOp, node: UOp) -> UOp:
    """s (1 - s) for s = sigmoid(x)."""
    return alu(Ops.MUL, grad, alu(Ops.MUL, node, alu(Ops.SUB, const(node.dtype, 1), node)))


def log1p_slope(grad: UOp, node: UOp) -> UOp:
    """1 / (1 + u) = e**-v for v = log(1 + u)."""
    return alu(Ops.MUL, grad, alu(Ops.EXP, alu(Ops.NEG, node)))


def tanh_slope(grad: UOp, node: UOp) -> UOp:
    """1 - t**2 for t = tanh(x)."""
    return alu(Ops.MUL, grad, alu(Ops.SUB, const(node.dtype, 1), alu(Ops.MUL, node, node)))


def gradients(root: UOp, seed: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient of `root`, weighted by `seed`, with respect to each of `targets` it depends on.

    `seed` has the shape of `root` or (). The results have the shapes of the targets; they are zeros
    where only steps (floor, round …) lie between.
    InvalidGraphError for an op on the way that has no entry.
    """
    return _gradients(engine.own_nodes(root), {root: seed}, targets)


def _within(root: UOp, seed: UOp, targets: Iterable[UOp], reads: Sequence[UOp]) -> dict[UOp, UOp]:
    """`gradients` of a scalar expression whose `reads` of tensors are not entered."""
    return _gradients(toposort(root, stop=set(reads)), {root: seed}, targets)


def _gradients(
    order: list[UOp], seeds: Mapping[UOp, UOp], targets: Iterable[UOp]
) -> dict[UOp, UOp]:
    """The gradients of `targets` when `seeds` flow into nodes of the graph `order`."""
    wanted = set(targets)
    reached = _reached(order, wanted)
    found = {root: seed for root, seed in seeds.items() if root in reached}
    results: dict[UOp, dict[int, UOp]] = {}  # of calls: what flows into their values
    for node in reversed(order):
        if node not in reached:
            continue
        if node.op is Ops.CALL and node in results:
            args = node.src[1:]
            sent = tuple(i for i, arg in enumerate(args) if arg in reached)
            for i, part in call_gradients(node, results[node], sent, _gradients).items():
                collect(found, args[i], part)
            continue
        grad = found.get(node)
        if grad is None:
            continue
        if node.op is Ops.GET_TUPLE and node.src[0] in reached:
            results.setdefault(node.src[0], {})[node.arg] = grad
            continue
        if is_by_elements(node):
            for source, part in element_gradients(grad, node, _within).items():
                if source in reached:
                    collect(found, source, part)
            continue
        whole, slope = slope_of(node)
        if whole in reached and slope is not None:
            # Not where the gradient of something on the way is asked for.
            between = toposort(node, stop={whole})
            if wanted.isdisjoint(u for u in between if u is not node and u is not whole):
                collect(found, whole, slope(grad, node))
                continue
        sources = node.src
        rules = RULES.get(node.op, ())
        if not rules and any(source in reached for source in sources):
            raise InvalidGraphError(
                f"{node.op.name} has no gradient", node=node, rule="differentiable"
            )
        for source, rule in zip(sources, rules, strict=False):
            if rule is None or source not in reached:
                continue
            part = rule(grad, node)
            if node.op in _ELEMENTWISE:
                part = _met(part, node, source)
            collect(found, source, part)
    return {target: _spread(found[target], target) for target in wanted if target in found}


def _reached(order: list[UOp], wanted: set[UOp]) -> set[UOp]:
    """The nodes through which a gradient flows to one of `wanted`."""
    reached: set[UOp] = set()
    for node in order:
        if node in wanted or (node.op is Ops.CALL and not reached.isdisjoint(node.src[1:])):
            reached.add(node)
        elif node.op is not Ops.DETACH and node.dtype.kind == "f":
            for source in tensors_of(node) if is_by_elements(node) else node.src:
                if source in reached:
                    reached.add(node)
                    break
    return reached


# Arithmetic on gradients -------------------------------------------------------------------------


def _spread(grad: UOp, node: UOp) -> UOp:
    """`grad` in the shape of its node."""
    return nodes.broadcast_to(grad, shape_of(node))


def _met(grad: UOp, node: UOp, source: UOp) -> UOp:
    """The gradient of a source of shape () that met a larger one is the sum over all places."""
    shape = shape_of(node)
    if source.shape == () and shape != ():
        if grad.shape == ():
            return _repeated(grad, size_of(node))
        return nodes.total(grad, range(len(shape)))
    return grad


def _repeated(grad: UOp, count: int) -> UOp:
    """The sum of `count` times the same; halves cannot hold large counts."""
    work = acc_dtype(grad.dtype)
    return nodes.cast(_times(nodes.cast(grad, work), nodes.count(work, count)), grad.dtype)


def _one(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg == 1


def _times(a: UOp, b: UOp) -> UOp:
    if _one(a):
        return b
    return a if _one(b) else alu(Ops.MUL, a, b)


def _neg(a: UOp) -> UOp:
    return alu(Ops.NEG, a)


def _over(a: UOp, b: UOp) -> UOp:
    return alu(Ops.FDIV, a, b)


def _scaled(a: UOp, factor: float) -> UOp:
    return _times(a, const(a.dtype, factor))


def _zero(like: UOp) -> UOp:
    return const(like.dtype, 0)


# Rules -------------------------------------------------------------------------------------------


def _pass(grad: UOp, node: UOp) -> UOp:
    return grad


def _flat(grad: UOp, node: UOp) -> UOp:
    """The slope of a step: 0 wherever it has one."""
    return _zero(node)


def _first(build: Callable[[UOp, UOp, UOp], UOp]) -> tuple[Rule]:
    """A rule for an op of one source, from (gradient, source, node)."""
    return (lambda grad, node: build(grad, node.src[0], node),)


def _larger(side: int, op: Ops) -> Rule:
    """MAX and MIN: the gradient goes to the winner, half to each where they tie; NaN, which neither
    loses nor ties, gets it on both sides (PyTorch)."""

    def rule(grad: UOp, node: UOp) -> UOp:
        own, other = node.src[side], node.src[1 - side]
        loses = nodes.compare(op, own, other)
        ties = nodes.compare(Ops.EQ, own, other)
        return where(loses, _zero(grad), where(ties, _scaled(grad, 0.5), grad))

    return rule


def _power_base(grad: UOp, node: UOp) -> UOp:
    """b * a**(b-1), and 0 where b is 0 whatever a is."""
    base, power = node.src
    less = alu(Ops.SUB, power, const(power.dtype, 1))
    slope = _times(power, alu(Ops.POW, base, less))
    still = nodes.compare(Ops.EQ, power, _zero(power))
    return where(still, _zero(grad), _times(grad, slope))


def _power_exponent(grad: UOp, node: UOp) -> UOp:
    """a**b * log(a), and 0 where a is 0 and b is not negative."""
    base, power = node.src
    nothing = alu(
        Ops.AND,
        nodes.compare(Ops.EQ, base, _zero(base)),
        nodes.compare(Ops.GE, power, _zero(power)),
    )
    slope = _times(node, alu(Ops.LOG, where(nothing, const(base.dtype, 1), base)))
    return where(nothing, _zero(grad), _times(grad, slope))


def _where_a(grad: UOp, node: UOp) -> UOp:
    return where(node.src[0], grad, _zero(grad))


def _where_b(grad: UOp, node: UOp) -> UOp:
    return where(node.src[0], _zero(grad), grad)


def _reduce_axis(grad: UOp, node: UOp) -> UOp:
    op, axes = node.arg
    source = node.src[0]
    if op is ReduceOp.ADD:
        return _unreduced(grad, source, axes)
    return _product(grad, node, axes) if op is ReduceOp.MUL else _extreme(grad, node, axes)


def _unreduced(u: UOp, source: UOp, axes: tuple[int, ...]) -> UOp:
    """A value per result, at every element it was made of; () stays ()."""
    if u.shape == ():
        return u
    shape = shape_of(source)
    return nodes.expand(nodes.reshape(u, nodes.keep_axes(shape, axes)), shape)


FIRST_WINS = "first wins"
"""Argument of a NOOP below a MAX or MIN over axes, by which equal extremes do not share."""


def _extreme(grad: UOp, node: UOp, axes: tuple[int, ...]) -> UOp:
    """Equal extremes share: counted in the accumulation dtype, because halves cannot count."""
    source = node.src[0]
    chosen = nodes.is_extreme(source, node.arg[0], axes)
    if source.op is Ops.NOOP and source.arg == FIRST_WINS:
        place = _places(shape_of(source), axes)
        none = const(dtypes.int32, max_value(dtypes.int32))
        first = nodes.reduce(where(chosen, place, none), ReduceOp.MIN, axes)
        chosen = nodes.compare(Ops.EQ, place, _unreduced(first, source, axes))
        return where(chosen, _unreduced(grad, source, axes), _zero(grad))
    work = acc_dtype(grad.dtype)
    count = nodes.reduce(nodes.cast(chosen, work), ReduceOp.ADD, axes)
    share = nodes.cast(_over(nodes.cast(grad, work), count), grad.dtype)
    return where(chosen, _unreduced(share, source, axes), _zero(grad))


def _places(shape: tuple[int, ...], axes: tuple[int, ...]) -> UOp:
    """Every element's place within the axes, row by row, as int32."""
    count = math.prod(shape[axis] for axis in axes)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    return nodes.expand(
        nodes.reshape(nodes.iota(count, dtypes.int32), nodes.keep_axes(shape, others)), shape
    )


def _product(grad: UOp, node: UOp, axes: tuple[int, ...]) -> UOp:
    """The product of the others: of those in front of an element, running from one end, times those
    behind it, running from the other. Unlike the whole over the element it holds, and has the right
    slope, where elements are zero."""
    source = node.src[0]
    shape = shape_of(source)
    order = [*(axis for axis in range(len(shape)) if axis not in axes), *axes]
    rows = nodes.permute(source, order)
    apart = shape_of(rows)
    count = math.prod(shape[axis] for axis in axes)
    rows = nodes.reshape(rows, (size_of(rows) // count, count))
    back = (False, True)
    others = alu(Ops.MUL, _before(rows), nodes.flip(_before(nodes.flip(rows, back)), back))
    others = nodes.reshape(others, apart)
    others = nodes.permute(others, [order.index(i) for i in range(len(order))])
    return _times(_unreduced(grad, source, axes), others)


def _before(rows: UOp) -> UOp:
    """For each element of a row the product of those in front of it; 1 for the first."""
    count = shape_of(rows)[1]
    shifted = nodes.shrink(nodes.pad(rows, (0, 1), (0, 0)), (0, 0), (shape_of(rows)[0], count))
    first = nodes.compare(Ops.EQ, nodes.iota(count, dtypes.int32), const(dtypes.int32, 0))
    first = nodes.broadcast_to(first, shape_of(rows))
    return scanned(where(first, const(rows.dtype, 1), shifted), 1, Ops.MUL)


def _expand(grad: UOp, node: UOp) -> UOp:
    source = node.src[0]
    before, after = shape_of(source), shape_of(node)
    axes = tuple(i for i, n in enumerate(before) if n != after[i])
    if grad.shape == ():
        return _repeated(grad, math.prod(after[i] for i in axes))
    return nodes.reshape(nodes.total(grad, axes), before)


def _reshape(grad: UOp, node: UOp) -> UOp:
    return grad if grad.shape == () else nodes.reshape(grad, shape_of(node.src[0]))


def _permute(grad: UOp, node: UOp) -> UOp:
    if grad.shape == ():
        return grad
    axes = node.arg
    return nodes.permute(grad, [axes.index(i) for i in range(len(axes))])


def _pad(grad: UOp, node: UOp) -> UOp:
    if grad.shape == ():
        return grad
    begins = dims_of(node.src[1])
    ends = [b + n for b, n in zip(begins, shape_of(node.src[0]), strict=True)]
    return nodes.shrink(grad, begins, ends)


def _shrink(grad: UOp, node: UOp) -> UOp:
    begins, ends = dims_of(node.src[1]), dims_of(node.src[2])
    after = [n - e for n, e in zip(shape_of(node.src[0]), ends, strict=True)]
    return nodes.pad(_spread(grad, node), begins, after)


def _flip(grad: UOp, node: UOp) -> UOp:
    return grad if grad.shape == () else nodes.flip(grad, node.arg)


_PASS: tuple[Rule | None, ...] = (_pass,)

# fmt: off
RULES: Mapping[Ops, tuple[Rule | None, ...]] = {
    # movement
    Ops.RESHAPE: (_reshape,),
    Ops.EXPAND: (_expand,),
    Ops.PERMUTE: (_permute,),
    Ops.PAD: (_pad,),
    Ops.SHRINK: (_shrink,),
    Ops.FLIP: (_flip,),
    # identity
    Ops.CONTIGUOUS: _PASS,
    Ops.CONTIGUOUS_BACKWARD: (lambda g, n: alu(Ops.CONTIGUOUS, g),),
    Ops.PRECAST: _PASS,
    Ops.NOOP: _PASS,
    Ops.COPY: _PASS,
    Ops.AFTER: _PASS,
    Ops.DETACH: (None,),
    # reduction
    Ops.REDUCE_AXIS: (_reduce_axis,),
    # dtype
    Ops.CAST: _first(lambda g, x, n: nodes.cast(g, x.dtype)),
    # one operand
    Ops.NEG: _first(lambda g, x, n: _neg(g)),
    Ops.ABS: _first(lambda g, x, n: _times(g, alu(Ops.SIGN, x))),
    Ops.SQUARE: _first(lambda g, x, n: _times(g, _scaled(x, 2))),
    Ops.SQRT: _first(lambda g, x, n: _over(g, _scaled(n, 2))),
    Ops.RSQRT: _first(lambda g, x, n: _times(g, _scaled(_times(n, _times(n, n)), -0.5))),
    Ops.RECIPROCAL: _first(lambda g, x, n: _neg(_times(g, _times(n, n)))),
    Ops.EXP: _first(lambda g, x, n: _times(g, n)),
    Ops.EXP2: _first(lambda g, x, n: _times(g, _scaled(n, math.log(2)))),
    Ops.LOG: _first(lambda g, x, n: _over(g, x)),
    Ops.LOG2: _first(lambda g, x, n: _over(g, _scaled(x, math.log(2)))),
    Ops.SIN: _first(lambda g, x, n: _times(g, alu(Ops.COS, x))),
    Ops.COS: _first(lambda g, x, n: _neg(_times(g, alu(Ops.SIN, x)))),
    Ops.TAN: _first(lambda g, x, n: _times(g, nodes.add(_times(n, n), const(n.dtype, 1)))),
    Ops.ERF: _first(lambda g, x, n: _times(
        g, _scaled(alu(Ops.EXP, _neg(_times(x, x))), 2 / math.sqrt(math.pi)))),
    Ops.FLOOR: (_flat,), Ops.CEIL: (_flat,), Ops.TRUNC: (_flat,), Ops.ROUND: (_flat,),
    Ops.SIGN: (_flat,),
    Ops.BITCAST: (None,),
    # two operands
    Ops.ADD: (_pass, _pass),
    Ops.SUB: (_pass, lambda g, n: _neg(g)),
    Ops.MUL: (lambda g, n: _times(g, n.src[1]), lambda g, n: _times(g, n.src[0])),
    Ops.FDIV: (lambda g, n: _over(g, n.src[1]),
               lambda g, n: _neg(_over(_times(g, n), n.src[1]))),
    Ops.POW: (_power_base, _power_exponent),
    Ops.MAX: (_larger(0, Ops.LT), _larger(1, Ops.LT)),
    Ops.MIN: (_larger(0, Ops.GT), _larger(1, Ops.GT)),
    Ops.FLOORDIV: (_flat, _flat),
    Ops.IDIV: (_flat, _flat),
    Ops.FLOORMOD: (_pass, lambda g, n: _neg(_times(g, alu(Ops.FLOOR, _over(*n.src))))),
    Ops.MOD: (_pass, lambda g, n: _neg(_times(g, alu(Ops.TRUNC, _over(*n.src))))),
    # three operands
    Ops.WHERE: (None, _where_a, _where_b),
    Ops.MULACC: (lambda g, n: _times(g, n.src[1]), lambda g, n: _times(g, n.src[0]), _pass),
}
# fmt: on
"""op -> for each source, how its gradient follows; None where none flows."""

_ELEMENTWISE = frozenset(
    op for op in RULES if op not in GroupOp.Movement and op is not Ops.REDUCE_AXIS
)
