"""`function`: functions of tensors that are traced once into a FUNCTION and called from then on.

Traced is a call whose tensors are replaced by what stands for them, once for each structure, shape,
dtype and Python value of its arguments and of what the function closes over. Every later call with
that structure is one CALL node of the same body.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload
from weakref import WeakSet, ref

from morok import config, engine
from morok._core import Flat, toposort
from morok.caches import CacheInfo, register
from morok.capture.closure import closed_over, is_users, methods_of, names_in, values_of
from morok.capture.structure import Rebuild, Wrapper, flatten, rebuilder
from morok.capture.trace import named_arguments, place_of
from morok.dtype import dtypes
from morok.engine import base_of
from morok.errors import FunctionError
from morok.ir import CallInfo, Ops, UOp, laid_out
from morok.tensor import (
    Tensor,
    all_tensors,
    bodies,
    effects,
    fail,
    generator,
    is_grad_enabled,
    memory,
    no_grad,
    nodes,
    stamp,
    tracing,
)

P = ParamSpec("P")
R = TypeVar("R")

_BODIES = 64  # remembered by a function
_ROUNDS = (
    2  # of looking for tensors that nothing leads to: what it finds then is made anew each time
)


class _Write(NamedTuple):
    """A tensor that a call writes: its place among the tensors that go in, and which value of the
    body it becomes."""

    tensor: int
    value: UOp | int  # a value that does not depend on the call stands itself
    requires_grad: bool
    by_the_way: bool  # as running statistics change: with what they came with


class _Result(NamedTuple):
    """A tensor of the result."""

    entry: int  # which tensor that goes in it is, or -1
    value: UOp | int
    requires_grad: bool


class _Body(NamedTuple):
    """What a trace left."""

    function: UOp | None  # None: no value depends on the call
    taken: tuple[int, ...]  # of the tensors that go in, which the body takes, in its order
    held: tuple[UOp, ...]  # memory made while tracing, which it takes next
    counters: tuple[tuple[int, str], ...]  # (draw, "key" or "first"), which it takes last
    draws: tuple[int, ...]  # counts of the random counters that each call takes
    writes: tuple[_Write, ...]
    results: tuple[_Result, ...]
    rebuild: Rebuild
    beyond: tuple[tuple[Tensor, bool], ...] = ()
    """Tensors that nothing the call can be taken apart into leads to, and whether they required
    gradients: they go in after the others."""

    def still_holds(self) -> bool:
        """Whether the tensors beyond are as they were for the trace."""
        return all(tensor.requires_grad == flag for tensor, flag in self.beyond)


class Function(Wrapper):
    """A function of tensors whose calls are CALLs. As a method it binds."""

    def __init__(self, function: Callable[..., Any], info: CallInfo) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.info = info
        self._bodies: OrderedDict[Any, _Body] = OrderedDict()
        _living.add(self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<function of {place_of(self.__wrapped__)}>"

    @property
    def traces(self) -> int:
        """How many bodies are remembered."""
        return len(self._bodies)

    def clear(self) -> None:
        """Forget every body."""
        self._bodies.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        body, tensors = self._body(args, kwargs)
        if any(tensors[write.tensor]._alias for write in body.writes) and _share_memory(tensors):
            return self.__wrapped__(*args, **kwargs)
        return _called(body, tensors, self.info)

    def results_of(self, *args: Any) -> Any:
        """What a call gives, which changes nothing. FunctionError for one that writes tensors."""
        body, tensors = self._body(args, {})
        if body.writes:
            fail(FunctionError, f"{place_of(self.__wrapped__)} writes tensors: return the values")
        return _called(body, tensors, self.info)

    def _body(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Body, list[Tensor]]:
        """The body of a call, traced if there is none yet, and the tensors that go in."""
        flat = everything(self.__wrapped__, args, kwargs)
        with memory.lock:
            key = _key(flat)
            body = self._bodies.get(key)
            if body is None or not body.still_holds():
                body, flat = self._traced(args, kwargs, flat)
                self._bodies[_key(flat)] = body
                while len(self._bodies) > _BODIES:
                    self._bodies.popitem(last=False)
            else:
                self._bodies.move_to_end(key)
        return body, [*flat.tensors, *(tensor for tensor, _ in body.beyond)]

    def _traced(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], flat: Flat
    ) -> tuple[_Body, Flat]:
        """The body, and the arguments as they are now: the first call of all may leave Python
        values behind (a cache, say), the second must not change them again."""
        again = False
        beyond: list[Tensor] = []
        rounds = 0
        while True:
            tensors = [*flat.tensors, *beyond]
            last = rounds == _ROUNDS
            body, found = _trace(self.__wrapped__, args, kwargs, tensors, self.info, last)
            if found:
                beyond, rounds = [*beyond, *found], rounds + 1
                continue
            body = body._replace(beyond=tuple((t, t.requires_grad) for t in beyond))
            after = everything(self.__wrapped__, args, kwargs)
            for i, tensor in enumerate(after.tensors):
                if tracing.depends_on_arguments(tensor.uop) and tracing.tracing() is None:
                    name = everything(self.__wrapped__, args, kwargs, named=True).names[i]
                    fail(
                        FunctionError,
                        f"{place_of(self.__wrapped__)} puts a tensor it computes in the place of "
                        f"{name!r}: return it, or write into the old one with assign(…)",
                    )
            if after.key == flat.key:
                return body, after
            if again:
                fail(
                    FunctionError,
                    f"{place_of(self.__wrapped__)} changes Python values of its arguments or of "
                    "what it closes over, which a call of its body would not: return them",
                )
            flat, again = after, True
            known = {id(tensor) for tensor in flat.tensors}
            beyond = [tensor for tensor in beyond if id(tensor) not in known]


def everything(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    named: bool = False,
) -> Flat:
    """The arguments of a call, and what the function and the functions in all this close over,
    taken apart."""
    flat = Flat(named)
    for name, value in (*named_arguments(function, args), *kwargs.items()):
        flat.add(value, name)
    flat.add(tuple(kwargs))
    waiting: list[Any] = [function]
    seen: set[int] = set()
    names: set[str] = set()
    classes: dict[type, None] = {}
    opaque = keys = 0
    while waiting:
        for root in waiting:
            if id(root) not in seen:
                seen.add(id(root))
                names |= names_in(root)
                for name, value in closed_over(root):
                    flat.add(value, name)
        waiting = flat.opaque[opaque:]
        types = [part for part in flat.key[keys:] if isinstance(part, type)]
        types = [each for each in types if each.__module__ != "builtins"]
        opaque, keys = len(flat.opaque), len(flat.key)
        waiting += types
        classes.update(dict.fromkeys(filter(is_users, waiting)))
        if not waiting:  # all names are known that stand for methods so far
            for cls in classes:
                waiting += (f for f in methods_of(cls, names) if id(f) not in seen)
    for cls in classes:
        for name, value in values_of(cls, names):
            flat.key.append(name)
            flat.add(value, f"{cls.__qualname__}.{name}")
    return flat


def _key(flat: Flat) -> tuple[Any, ...]:
    settings = config.get()
    mode = is_grad_enabled(), settings.default_float, settings.default_int
    return (*mode, *(tensor.requires_grad for tensor in flat.tensors), *flat.key)


class _Kept(NamedTuple):
    """What a tensor was before a trace put something in its place."""

    tensor: Tensor
    uop: UOp
    requires_grad: bool
    home: UOp | None
    parts: Any
    alias: bool
    marks: Any


@contextmanager
def _stand_ins(tensors: Sequence[Tensor]) -> Iterator[list[UOp]]:
    """Until the end of the block PARAMs stand for the values of tensors; the graphs put there."""
    kept = [_Kept(t, t.uop, t._rg, t._home, t._parts, t._alias, t._marks) for t in tensors]
    try:
        placed = []
        for slot, tensor in enumerate(tensors):
            shape, dtype = tensor.shape, tensor.dtype
            if 0 in shape:
                stand_in = nodes.full(shape, dtype, 0)
            else:
                stand_in = laid_out(bodies.parameter(slot, dtype, shape), shape)
            tensor.uop = stand_in
            tensor._home = tensor._parts = None
            tensor._marks = [ref(stand_in)] if tensor._leaf else None
            tensor._alias = False
            placed.append(stand_in)
        yield placed
    finally:
        for each in kept:
            tensor = each.tensor
            tensor.uop, tensor._rg, tensor._home = each.uop, each.requires_grad, each.home
            tensor._parts, tensor._alias, tensor._marks = each.parts, each.alias, each.marks


def _trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[Tensor],
    info: CallInfo,
    last: bool,
) -> tuple[_Body, list[Tensor]]:
    """Run `function` on stand-ins for its tensors: what that left, and the tensors beyond those
    that it reads or writes. None where it is the `last` time: what is read stays as it is, and
    a write is a FunctionError."""
    others = {id(t): (t, t.uop) for t in all_tensors() if isinstance(t, Tensor)}
    grads = [t.grad for t in tensors]
    notes = tracing.Tracing(place_of(function))
    entry = {id(t): i for i, t in enumerate(tensors)}
    try:
        with generator.apart(), tracing.trace_into(notes), _stand_ins(tensors) as placed:
            result = function(*args, **kwargs)
            out = flatten(result)
            results = [(entry.get(id(t), -1), t.uop, t._rg) for t in out.tensors]
            written = [(i, t.uop, t._rg) for i, t in enumerate(tensors) if t.uop is not placed[i]]
            grads_after = [t.grad for t in tensors]
            leaves = {u for t in tensors for u in _later_leaves(t)}
    finally:
        hidden = notes.write_back({*others} - {*entry})
        for tensor, grad in zip(tensors, grads, strict=True):
            tensor.grad = grad
    if any(new is not old for new, old in zip(grads_after, grads, strict=True)):
        fail(FunctionError, f"{notes.name} sets gradients: call backward outside of it")
    for uop in (uop for _, uop, rg in (*results, *written) if rg):
        _refuse_later_leaves(notes.name, uop, leaves)
    drawn: dict[UOp, tuple[int, str]] = {}
    for number, (_, key, first) in enumerate(notes.draws):
        drawn.setdefault(base_of(key), (number, "key"))
        drawn[base_of(first)] = number, "first"
    values: dict[UOp, int] = {}

    def value_of(uop: UOp) -> UOp | int:
        if 0 in nodes.shape_of(uop):
            return nodes.full(nodes.shape_of(uop), uop.dtype, 0)
        if not any(u.op is Ops.PARAM or u in drawn for u in engine.own_nodes(uop)):
            return uop
        return values.setdefault(uop, len(values))

    writes = tuple(
        _Write(i, value_of(uop), rg, id(tensors[i]) in notes.by_the_way) for i, uop, rg in written
    )
    parts = tuple(
        _Result(i, 0, False) if i >= 0 else _Result(-1, value_of(uop), rg) for i, uop, rg in results
    )
    body = UOp.new_tuple(*values)
    own = engine.own_nodes(body)
    params = sorted((u for u in own if u.op is Ops.PARAM), key=lambda u: u.arg)
    memories = [u for u in own if u.op is Ops.BUFFER and u.src[0].op is Ops.UNIQUE]
    held = [u for u in memories if u not in drawn]
    counters = [u for u in memories if u in drawn]
    if last and hidden:
        fail(FunctionError, f"{notes.name} writes to other tensors each time it is traced")
    found = {id(t): t for t in hidden}
    if not last and (held or tracing.tracing() is not None):
        found.update((id(t), t) for t in _unnamed(own, entry, others, out.tensors))
    made = None
    if values and not found:
        made = bodies.function_of(body, [*params, *held, *counters], info)
    return _Body(
        made,
        tuple(param.arg[0] for param in params),
        tuple(held),
        tuple(drawn[u] for u in counters),
        tuple(count for count, _, _ in notes.draws),
        writes,
        parts,
        rebuilder(result, {id(t): i for i, t in enumerate(out.tensors)}),
    ), [*found.values()]


def _later_leaves(tensor: Tensor) -> list[UOp]:
    """What a leaf that stands for an argument became by writes."""
    found = [mark() for mark in (tensor._marks or [])[1:]] if tensor._leaf else []
    return [uop for uop in found if uop is not None]


def _refuse_later_leaves(name: str, value: UOp, leaves: set[UOp]) -> None:
    """FunctionError where gradients would flow from a value to a leaf as it was written."""
    if leaves and value not in leaves:
        stops = (Ops.DETACH, Ops.FUNCTION)
        if not leaves.isdisjoint(toposort(value, stop=lambda node: node.op in stops)):
            fail(
                FunctionError,
                f"{name} computes with a leaf that requires gradients after it wrote it, and a "
                "call has gradients only of what goes in: use detach() of it, or write it outside",
            )


def _unnamed(
    own: list[UOp],
    entry: Container[int],
    before: Mapping[int, tuple[Tensor, UOp]],
    given_back: Sequence[Tensor],
) -> list[Tensor]:
    """Living tensors other than those of `entry` whose values, in memory or computed from what is,
    stand in the graph `own`. Not such as were made on the way and given back: each call makes
    another."""
    nodes_of_body, made = set(own), {id(t) for t in given_back}
    found = []
    for tensor in all_tensors():
        if id(tensor) in entry or not isinstance(tensor, Tensor):
            continue
        if id(tensor) in before:
            uop = before[id(tensor)][1]
        elif id(tensor) not in made and not tracing.depends_on_arguments(tensor.uop):
            uop = tensor.uop
        else:
            continue
        if uop in nodes_of_body and (uop.has(Ops.BUFFER) or uop.has(Ops.PARAM)):
            found.append(tensor)
    return found


def _share_memory(tensors: Sequence[Tensor]) -> bool:
    """Whether some of the tensors were lent memory that overlaps: a write to one is then one to
    others too, which a body does not know."""
    lent = [memory.home_of(tensor) for tensor in tensors if tensor._alias]
    bases = {base_of(home) for home in lent if home is not None}
    return any(not bases.isdisjoint(engine.buffers.overlapping(base)) for base in bases)


def _called(body: _Body, tensors: Sequence[Tensor], info: CallInfo) -> Any:
    """What a call of the function gives."""
    stamp()
    written = [tensors[write.tensor] for write in body.writes]
    for target in filter(memory.waits_for_variables, written):
        target.realize()  # with the values they have; this call may give others
    draws = [generator.take(count) for count in body.draws]
    call = None
    if body.function is not None:
        given = [tensors[i].uop for i in body.taken]
        given += body.held
        given += (draws[draw][part == "first"] for draw, part in body.counters)
        call = UOp(Ops.CALL, dtypes.void, (body.function, *given), CallInfo(info.name))

    def value_of(value: UOp | int) -> UOp:
        if isinstance(value, UOp):
            return value
        assert call is not None
        return call.get_tuple(value)

    given_back = [
        tensors[part.entry]
        if part.entry >= 0
        else Tensor._wrap(value_of(part.value), part.requires_grad)
        for part in body.results
    ]
    for write in body.writes:
        target = tensors[write.tensor]
        new = Tensor._wrap(value_of(write.value), write.requires_grad)
        with no_grad() if target._leaf else nullcontext():
            if write.by_the_way:
                effects.change(target, new, new.uop)
            else:
                target.assign(new)
    return body.rebuild(given_back)


@overload
def function(traced: Callable[P, R]) -> Callable[P, R]: ...
@overload
def function(
    traced: None = None,
    *,
    name: str | None = None,
    metadata: Sequence[str] = (),
    grad_tag: str | None = None,
    precompile: bool = False,
    precompile_backward: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def function(
    traced: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    metadata: Sequence[str] = (),
    grad_tag: str | None = None,
    precompile: bool = False,
    precompile_backward: bool = False,
) -> Any:
    """The function `traced`, traced once for each structure of its arguments; a call is one node.

    The body of a trace is differentiated, scheduled and compiled once, however often it is called:
    a network of a hundred equal blocks costs the compiler one. Tensors in the arguments and in what
    the function closes over go in as arguments of the CALL; Python values there belong to the
    structure. Writes to those tensors, random numbers and gradients are what they are without it.
    Tensors that nothing there leads to (in a cache, say) are noted when the function is traced.
    Where a call writes lent memory that two of the tensors share, the function itself runs.
    Values cross the border of a call in memory: nothing is fused across it, and the backward of a
    call computes again what it needs of the forward. While a call is traced, no other thread may
    use the tensors that go in.

    `name` and `metadata` show in MOROK_DEBUG=2 beside its kernels, `precompile` compiles the body
    when it is traced, `precompile_backward` the gradient function when it is made. `grad_tag` is
    kept on both.

    FunctionError where a call of the body could not do the same: a value is read or realized
    inside, backward is called, another tensor is put in a tensor's place instead of written into
    it, or Python values change.
    """
    if traced is None:
        return partial(
            function,
            name=name,
            metadata=metadata,
            grad_tag=grad_tag,
            precompile=precompile,
            precompile_backward=precompile_backward,
        )
    if not callable(traced):
        fail(FunctionError, f"function: expected a function, got {type(traced).__name__}")
    if name is None:
        name = getattr(traced, "__qualname__", None)
    return Function(
        traced, CallInfo(name, grad_tag, tuple(metadata), precompile, precompile_backward)
    )


_living: WeakSet[Function] = WeakSet()


def _clear_all() -> None:
    for each in list(_living):
        each.clear()


def _info() -> CacheInfo:
    every = [*_living]
    return CacheInfo(sum(each.traces for each in every), _BODIES * len(every))


register("functions", _info, _clear_all)
