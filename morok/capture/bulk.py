"""`compile`: many computations compiled together, on all cores, before any of them runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from morok import engine
from morok.capture.callable import Function, function
from morok.capture.structure import flatten
from morok.capture.trace import place_of
from morok.dtype import DType, default_float
from morok.engine import Planned, buffers, is_buffer_view
from morok.errors import ArgumentError, BulkError, ShapeError
from morok.ir import UOp, laid_out, room_of
from morok.runtime import Device
from morok.tensor import Prepared, Tensor, fail, generator, memory, nodes

Shape = tuple[int, ...]
_PAUSE = 0.1  # seconds between two states of the line that shows progress


class Form(NamedTuple):
    """What is known of an argument when a function is compiled."""

    shape: Shape
    dtype: DType


class Compiled:
    """A function whose kernels for arguments of these shapes and dtypes are compiled.

    A call computes all that it gives, at once. ShapeError for other arguments: that would compile.
    """

    def __init__(self, traced: Function, forms: tuple[Form, ...]) -> None:
        self.forms = forms
        self._function = traced
        self._planned: Planned | None = None

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels of a call, in the order they run."""
        return () if self._planned is None else self._planned.plan.names

    def sources(self) -> tuple[str, ...]:
        """The text each was compiled from."""
        return () if self._planned is None else tuple(k.source for k in self._planned.kernels)

    def __call__(self, *tensors: Tensor) -> Any:
        given = tuple(Form(tensor.shape, tensor.dtype) for tensor in tensors)
        if given != self.forms:
            fail(ShapeError, f"{self!r} was called with {_spelled(given)}: compile that too")
        result = self._function(*tensors)
        memory.realize(flatten(result).tensors)
        return result

    def trace(self) -> list[Tensor]:
        """The results for arguments that hold nothing yet."""
        with generator.apart():
            stand_ins = [_stand_in(form) for form in self.forms]
            return list(flatten(self._function.results_of(*stand_ins)).tensors)

    def compiled_to(self, planned: Planned | None) -> Compiled:
        """This, with the plan of its calls."""
        self._planned = planned
        return self

    def __repr__(self) -> str:
        return f"{place_of(self._function.__wrapped__)} for {_spelled(self.forms)}"


def compile(  # noqa: A001 - always called as morok.compile
    work: Callable[..., Any] | Iterable[Any],
    shapes: Iterable[Sequence[Any]] | None = None,
    *,
    progress: bool | None = None,
) -> list[Any]:
    """Many computations compiled together: kernels are lowered one after another while machine code
    is made of those before on all other cores, and kernels that several have in common once.

        plans = mk.compile([a @ b, (x.softmax(1), x.sum())])
        first, second = mk.compile(attention, [((8, 64), (8, 64)), ((8, 128), (8, 128))])
        calls = mk.compile([f, g], [((3, 4),), (((5,), mk.dtypes.int32),)])

    work    graphs: a Tensor, or Tensors that are computed in one schedule, each. Or functions, with
            the `shapes` of their arguments: one function for all, or as many as there are. An
            argument is a shape (of the default float dtype), a pair of shape and dtype, or a Tensor
            that has both. Functions are traced as by `mk.function`: they may close over tensors,
            but write to none.
    progress whether a line on stderr shows how far it is; by default where that is a terminal.

    In the order of `work`: for graphs `Prepared`, whose `execute` runs them; for functions
    `Compiled`, which are called with Tensors. Nothing is run. A process that finds the plans on
    disk compiles nothing.

    BulkError if some fail, after all others are compiled: it names them, and its `results` are what
    would have been returned with exceptions in their place. ArgumentError if functions and shapes
    are not as many. DeviceError without a compiler.
    """
    jobs = _jobs(work, shapes)
    results: list[Any] = [None] * len(jobs)
    normals: dict[int, engine.Normal] = {}
    for number, job in enumerate(jobs):
        try:
            roots = _roots(job)
            if roots:
                normals[number] = engine.Normal(engine.sink_of(roots))
        except Exception as error:
            results[number] = error
    with _Progress(progress) as shown:
        plans = engine.plan_all([*normals.values()], Device["CPU"], shown)
    found: dict[int, Any] = dict(zip(normals, plans, strict=True))
    for number, job in enumerate(jobs):
        planned = found.get(number)
        if isinstance(planned, Exception):
            results[number] = planned
        elif results[number] is None:
            results[number] = (
                job.compiled_to(planned) if isinstance(job, Compiled) else Prepared(job)
            )
    failed = {n: result for n, result in enumerate(results) if isinstance(result, Exception)}
    if failed:
        names = {number: _named(number, jobs[number]) for number in failed}
        raise BulkError(
            f"{len(failed)} of {len(jobs)} computations cannot be compiled, the others are",
            results=results,
            failures={names[number]: error for number, error in failed.items()},
        )
    return results


def _jobs(work: Any, shapes: Iterable[Sequence[Any]] | None) -> list[Any]:
    """A list of Tensors or a `Compiled` for each computation."""
    if shapes is None:
        if callable(work):
            fail(ArgumentError, "compile: a function needs the shapes of its arguments")
        if isinstance(work, Tensor) or not isinstance(work, Iterable):
            fail(ArgumentError, "compile: graphs come in a list, even if it is one")
        graphs = []
        for number, each in enumerate(work):
            graph = [*each] if isinstance(each, list | tuple) else [each]
            if not graph or not all(isinstance(tensor, Tensor) for tensor in graph):
                fail(ArgumentError, f"compile: graph {number} is no Tensor, nor several")
            graphs.append(graph)
        return graphs
    wanted = [tuple(map(_form, _listed(arguments))) for arguments in _listed(shapes)]
    functions = [work] * len(wanted) if callable(work) else [*work]
    if len(functions) != len(wanted):
        fail(
            ArgumentError,
            f"compile: {len(functions)} functions and shapes for {len(wanted)} of them",
        )
    # By identity: an object that can be called need not have a hash.
    traced: dict[int, Any] = {
        id(f): f if isinstance(f, Function) else function(f) for f in functions
    }
    return [Compiled(traced[id(f)], forms) for f, forms in zip(functions, wanted, strict=True)]


def _listed(shapes: Any) -> Any:
    """`shapes`, or the arguments of a call, if they can be gone through."""
    if isinstance(shapes, Tensor) or not isinstance(shapes, Iterable):
        fail(
            ArgumentError,
            f"compile: {shapes!r} is no list of arguments: shapes are given as [((3, 4), …), …]",
        )
    return shapes


def _form(argument: Any) -> Form:
    """The shape and dtype that stand for an argument."""
    if isinstance(argument, Tensor):
        return Form(argument.shape, argument.dtype)
    shape, dtype = argument, None
    if isinstance(argument, list | tuple) and [type(x) for x in argument[1:]] == [DType]:
        shape, dtype = argument
    whole = isinstance(shape, list | tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
    if not whole:
        fail(ArgumentError, f"compile: {argument!r} is neither a shape, nor one and a dtype")
    return Form(tuple(shape), dtype or default_float())


def _stand_in(form: Form) -> Tensor:
    """A tensor of a form, its memory not filled."""
    if 0 in form.shape:
        return Tensor._wrap(nodes.full(form.shape, form.dtype, 0))
    node = buffers.new_buffer(form.dtype, room_of(form.shape))
    return Tensor._wrap(laid_out(node, form.shape))


def _roots(job: Any) -> list[UOp]:
    """What is computed in the schedule of a call, or of a `Prepared`."""
    if not isinstance(job, Compiled):
        return [tensor.uop for tensor in job if 0 not in tensor.shape]
    found = {tensor.uop: None for tensor in job.trace() if 0 not in tensor.shape}
    return [u for u in found if not is_buffer_view(u) and u.realized is None]


def _spelled(forms: Sequence[Form]) -> str:
    return ", ".join(f"{form.dtype.name}{[*form.shape]}" for form in forms) or "no arguments"


def _named(number: int, job: Any) -> str:
    what = (
        repr(job) if isinstance(job, Compiled) else _spelled([Form(t.shape, t.dtype) for t in job])
    )
    return f"[{number}] {what}"


class _Progress:
    """A line on stderr, at most ten times a second, that is gone in the end."""

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        if self._wanted and monotonic() >= self._next:
            self._next = monotonic() + _PAUSE
            print(f"\r\x1b[Kcompiling: {done} of {total} kernels", end="", file=sys.stderr)
            sys.stderr.flush()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._next:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
