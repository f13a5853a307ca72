"""Gradients of CALLs: the gradient of a call is a call of a gradient function.

For a function y = f(x) and the gradients g of some of its values, the gradient function maps
(x, g) to the gradients of some of its arguments: it computes again what it needs of f in between,
and nothing of f is kept from the forward call to the backward one. It is made once for each choice
of values and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from morok import engine
from morok.dtype import dtypes
from morok.ir import CallInfo, Ops, UOp, laid_out
from morok.tensor import nodes
from morok.tensor.bodies import function_of, parameter

Gradients = Callable[[list[UOp], Mapping[UOp, UOp], Iterable[UOp]], dict[UOp, UOp]]
"""(nodes of a graph in order, gradients that flow into some, targets) -> those of the targets."""


class _Backward(NamedTuple):
    """A gradient function, and what it is about."""

    function: UOp | None  # None: no argument has a gradient
    arguments: tuple[int, ...]  # which arguments of the call have gradients
    forward: tuple[int, ...]  # which arguments of the call it takes, and then
    flowing: tuple[int, ...]  # the gradients of which values


_Flow = tuple[int, UOp | None]
"""Number of a value and its gradient's shape: () or, for None, the value's; or a constant."""
_made: WeakKeyDictionary[UOp, dict[tuple[tuple[_Flow, ...], tuple[int, ...]], _Backward]]
_made = WeakKeyDictionary()
_ALIKE = UOp.shape_const(())  # says of a gradient that it is the same everywhere


def call_gradients(
    call: UOp, grads: Mapping[int, UOp], wanted: tuple[int, ...], gradients: Gradients
) -> dict[int, UOp]:
    """By number, the gradients of those of the `wanted` arguments of a CALL that have one, when
    `grads` flow into its values."""
    function, args = call.src[0], call.src[1:]
    flows = tuple((i, _kind(grads[i])) for i in sorted(grads))
    known = _made.setdefault(function, {})
    key = flows, wanted
    if key not in known:
        known[key] = _backward(function, flows, wanted, gradients)
    backward = known[key]
    if backward.function is None:
        return {}
    given = [args[i] for i in backward.forward] + [grads[i] for i in backward.flowing]
    done = UOp(Ops.CALL, dtypes.void, (backward.function, *given), CallInfo(call.arg.name))
    return {
        i: laid_out(done.get_tuple(place), nodes.shape_of(args[i]))
        for place, i in enumerate(backward.arguments)
    }


def _kind(grad: UOp) -> UOp | None:
    if grad.op is Ops.CONST:
        return grad
    return _ALIKE if grad.shape == () else None


def _backward(
    function: UOp, flows: tuple[_Flow, ...], wanted: tuple[int, ...], gradients: Gradients
) -> _Backward:
    """The gradient function for gradients that flow into values of a FUNCTION."""
    values, params = function.src[0].src, function.src[1:]
    seeds: dict[UOp, UOp] = {}
    flowing: dict[UOp, int] = {}  # PARAM -> value
    for i, kind in flows:
        value = values[i]
        grad = kind
        if kind is None or kind is _ALIKE:
            shape = nodes.shape_of(value) if kind is None else ()
            param = parameter(len(params) + i, value.dtype, shape)
            flowing[param] = i
            grad = laid_out(param, shape)
        assert grad is not None
        seeds[value] = nodes.add(seeds[value], grad) if value in seeds else grad
    order = engine.own_nodes(function.src[0])
    found = gradients(order, seeds, [params[i] for i in wanted])
    arguments = tuple(i for i in wanted if params[i] in found)
    if not arguments:
        return _Backward(None, (), (), ())
    body = UOp.new_tuple(*(found[params[i]] for i in arguments))
    used = {u for u in engine.own_nodes(body) if u.op is Ops.PARAM}
    forward = tuple(i for i, param in enumerate(params) if param in used)
    taken = {param: i for param, i in flowing.items() if param in used}
    info: CallInfo = function.arg
    made = function_of(
        body,
        [*(params[i] for i in forward), *taken],
        CallInfo(
            name=None if info.name is None else f"{info.name} backward",
            grad_tag=info.grad_tag,
            metadata=info.metadata,
            precompile=info.precompile_backward,
            precompile_backward=info.precompile_backward,
        ),
    )
    return _Backward(made, arguments, forward, tuple(taken.values()))
