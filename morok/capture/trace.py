"""A recorded call: what it executed, told by what the memory was to the function.

Memory is called by a label: ("argument", i), ("closure", k), ("gradient", label of its tensor),
("made", n) for the n-th memory filled in the call, ("number", draw, part) for random counters, and
("constant", n) for contents that came from elsewhere. Two calls agree when all of this is equal;
then a third one would do the same, on other arguments.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from morok import engine
from morok._core import Flat
from morok.capture.closure import Reached, reach
from morok.capture.structure import Rebuild, flatten, names_of, rebuilder
from morok.dtype import DType
from morok.engine import Copy, Draw, Planned, Record, Run, Seed, base_of, buffers
from morok.errors import JitError
from morok.ir import UOp
from morok.runtime import Buffer
from morok.tensor import Tensor, all_tensors, memory, versions

Label = tuple[Any, ...]
_HIDDEN = "it writes to a tensor that is neither in its arguments nor in its closure"

_tracing = threading.RLock()
"""Held while a call is recorded: two at once would give tensors each other's names."""

_PATIENCE = 2.0
"""Seconds that a call waits for the recording of another thread, which may be waiting for it."""

_beside: set[int] = set()
"""Threads whose call runs plainly because another was recorded."""
_last_beside = [object()]
"""Another object for each such call."""


def _free_in_child() -> None:
    global _tracing
    _tracing = threading.RLock()
    _beside.clear()


os.register_at_fork(after_in_child=_free_in_child)


@dataclass(frozen=True, slots=True)
class Step:
    """A plan on labelled memory, from some byte on; without a plan, a copy of the second to the
    first."""

    planned: Planned | None
    memory: tuple[tuple[Label, int], ...]
    nbytes: int = 0
    values: tuple[int, ...] = ()  # of the plan's variables

    @property
    def key(self) -> tuple[Any, ...]:
        plan = None if self.planned is None else self.planned.key
        return plan, self.memory, self.nbytes, self.values


@dataclass(frozen=True, slots=True)
class Constant:
    """Contents from elsewhere. `node` is the BUFFER if it is older than the call, and is right as
    long as it has memory; else the contents were made in the call, as `data`."""

    memory: Buffer
    node: UOp | None
    data: bytes | None

    def contents(self) -> Buffer:
        """Memory that has the contents and keeps them."""
        if self.data is None:
            return self.memory
        kept = Buffer(len(self.data))
        memoryview(kept)[:] = self.data
        return kept

    @property
    def key(self) -> object:
        return self.data if self.node is None else self.node


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor that the call made and that stays: where its value lies at the end."""

    label: Label
    dtype: DType
    shape: tuple[int, ...]


@dataclass(slots=True)
class Trace:
    """What one call did. `reason` says why it cannot serve as a recording, if it cannot."""

    entries: list[Label]  # arguments, closure tensors, gradients that stood at the start
    reached: Reached
    gradients: dict[Label, bool]  # for tensors that go in: whether `.grad` was set at the start
    signature: list[tuple[Any, ...]]  # (dtype, shape, leaf) of each argument
    places: list[int]  # for each argument, the closure tensor it is, or -1
    steps: list[Step]
    numbers: list[tuple[str, int]]  # ("seed", s) and ("draw", count) in order
    constants: list[Constant]
    sizes: dict[Label, int]  # bytes of the tensors that go in
    forms: dict[Label, tuple[DType, tuple[int, ...], bool]]  # their (dtype, shape, leaf)
    finals: dict[Label, Label]  # where the values of tensors that were moved stand at the end
    made: list[Made]
    grads: dict[Label, Any]  # `.grad` at the end: "none", "same", ("made", i) or ("entry", label)
    result_key: list[Any]
    results: list[Any]  # of the result's tensors: ("made", i) or ("entry", label)
    rebuild: Rebuild
    single: bool  # the result is a tensor, in no structure
    plain_arguments: bool  # every argument is a tensor, given by position
    lent: bool  # memory of others is written or overlaps: nothing to replay
    reason: str

    @property
    def state(self) -> tuple[Any, ...]:
        """What a replay checks besides the arguments' structure: calls that alternate between such
        states are as many computations."""
        reached = tuple(id(t) for t in self.reached.tensors)
        return reached, tuple(self.places), tuple(self.gradients.items())

    def differs(self, other: Trace) -> str:
        """What another call did otherwise, "" if nothing."""
        mine, theirs = self.constants, other.constants
        if [id(t) for t in self.reached.tensors] != [id(t) for t in other.reached.tensors]:
            return "it reaches other tensors from call to call"
        if [s.key for s in self.steps] != [s.key for s in other.steps]:
            if [s.values for s in self.steps] != [s.values for s in other.steps]:
                return "it binds variables to other values from call to call: pass them bound"
            if [s.key[0] for s in self.steps] == [s.key[0] for s in other.steps]:
                return "the tensors it computes with change their roles from call to call"
            return "it computes something else from call to call"
        if [c.key for c in mine] != [c.key for c in theirs]:
            return (
                "a value made inside the function from Python or NumPy data differs from call to "
                "call: pass it as an argument"
            )
        if self.numbers != other.numbers:
            return "it draws other random numbers from call to call"
        if self.result_key != other.result_key or self.results != other.results:
            return "it returns something else from call to call"
        if (self.made, self.grads, self.finals) != (other.made, other.grads, other.finals):
            return "it leaves its tensors in another state from call to call"
        return ""


def place_of(function: Callable[..., Any]) -> str:
    """`name (file:line)` of a function, for messages."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


class Tracer:
    """Runs one call of `function` plainly and writes it down."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        flat: Flat,
    ) -> None:
        self.function, self.args, self.kwargs, self.flat = function, args, kwargs, flat
        classes = dict.fromkeys(part for part in flat.key if isinstance(part, type))
        self.reached = reach([function, *flat.opaque, *classes])
        closure = {id(t): k for k, t in enumerate(self.reached.tensors)}
        self.places = [closure.get(id(t), -1) for t in flat.tensors]
        self.tensors: dict[Label, Tensor] = {}
        for i, t in enumerate(flat.tensors):
            if self.places[i] < 0:
                self.tensors["argument", i] = t
        for k, t in enumerate(self.reached.tensors):
            self.tensors["closure", k] = t
        self.owners = dict(self.tensors)
        known = {id(t) for t in self.owners.values()}
        self.reason = ""
        self.grads_before: dict[Label, Tensor | None] = {}
        for label, t in self.owners.items():
            grad = self.grads_before[label] = t.grad
            if grad is not None and id(grad) in known:
                self.reason = "a gradient is reached under another name too"
            elif grad is not None:
                known.add(id(grad))
                self.tensors["gradient", label] = grad
        self.forms = {label: (t.dtype, t.shape, t._leaf) for label, t in self.tensors.items()}
        self.label_of = {id(t): label for label, t in self.tensors.items()}

    def run(self) -> tuple[Any, Trace | None]:
        """The result, and what happened; None where another thread was recorded or disturbed the
        recording. JitError where no replay could do the same."""
        lock = _tracing
        if not lock.acquire(timeout=_PATIENCE):
            _last_beside[0] = object()
            _beside.add(threading.get_ident())
            try:
                return self._run_plainly(), None
            finally:
                _beside.discard(threading.get_ident())
        alone, last = not _beside, _last_beside[0]
        try:
            result, trace = self._run()
            return result, trace if alone and last is _last_beside[0] else None
        finally:
            lock.release()

    def _run_plainly(self) -> Any:
        result = self.function(*self.args, **self.kwargs)
        for t in flatten(result).tensors:
            if id(t) not in self.label_of:
                memory.realize([t])
                versions.make_constant(t)
        return result

    def _run(self) -> tuple[Any, Trace]:
        tensors = list(self.tensors.values())
        memory.realize(tensors)
        versions.compute_readers(tensors)
        versions.own_memory(tensors)
        self.lent = any(versions.overlaps_lent(t) for t in tensors)
        places = {label: versions.memory_below(t) for label, t in self.tensors.items()}
        start = {label: m for label, m in places.items() if m is not None}
        record = Record(known=frozenset(id(m) for m in start.values()), born=UOp.new_unique().arg)
        others = {id(t): t for t in all_tensors() if id(t) not in self.label_of}
        grads = {id(t): grad for t, grad in versions.gradients() if id(t) in others}
        names = versions.rename(tensors)
        try:
            with engine.record_into(record):
                result = self.function(*self.args, **self.kwargs)
                trace = self._finish(result, record, start)
        finally:
            named = {id(t) for t in versions.name_back(names)}
        changed = any(key in others for key in named)
        for t, grad in versions.gradients():
            if grad is not None and id(t) in grads and grad is not grads[id(t)]:
                made = id(versions.memory_below(grad)) in record.made
                changed = changed or made or id(grad) in named
        trace.reason = self._check_places() or trace.reason or (_HIDDEN if changed else "")
        return result, trace

    def _finish(self, result: Any, record: Record, start: dict[Label, Buffer]) -> Trace:
        out = flatten(result)
        grads = {label: t.grad for label, t in self.owners.items()}
        new: dict[int, Tensor] = {}
        for t in (*out.tensors, *grads.values()):
            if t is not None and id(t) not in self.label_of:
                new[id(t)] = t
        memory.realize([*new.values(), *self.tensors.values()])
        for t in new.values():
            versions.make_constant(t)
        for t in self.tensors.values():
            if t._rg and not t._leaf:
                versions.make_constant(t)
        labels = _Labels(start, record)
        steps, numbers = labels.steps()
        written = written_labels(steps)
        number = {key: i for i, key in enumerate(new)}
        made = [Made(labels.of(t), t.dtype, t.shape) for t in new.values()]
        finals = {}
        for label, t in self.tensors.items():
            now = labels.of(t)
            if label in start and now != label:
                finals[label] = now
        results = []
        for t in out.tensors:
            own = self.label_of.get(id(t))
            where: Label = ("entry", own) if own is not None else ("made", number[id(t)])
            results.append(where)
        after: dict[Label, Any] = {}
        for label, grad in grads.items():
            if grad is None:
                after[label] = "none"
            elif grad is self.grads_before[label]:
                after[label] = "same"
            elif id(grad) in number:
                after[label] = ("made", number[id(grad)])
            else:
                after[label] = ("entry", self.label_of[id(grad)])
        return Trace(
            entries=list(self.tensors),
            reached=self.reached,
            gradients={label: grad is not None for label, grad in self.grads_before.items()},
            signature=[(t.dtype, t.shape, t._leaf) for t in self.flat.tensors],
            places=self.places,
            steps=steps,
            numbers=numbers,
            constants=labels.constants(),
            forms=self.forms,
            sizes={label: m.nbytes for label, m in start.items()},
            finals=finals,
            made=made,
            grads=after,
            result_key=out.key,
            results=results,
            rebuild=rebuilder(result, {id(t): i for i, t in enumerate(out.tensors)}),
            single=isinstance(result, Tensor),
            plain_arguments=not self.kwargs and all(isinstance(a, Tensor) for a in self.args),
            lent=self.lent or any(label in written and start[label].external for label in start),
            reason=self.reason or _hidden_write(written, labels.constants()),
        )

    def _check_places(self) -> str:
        """Nothing that leads to tensors may lead elsewhere now: a replay changes no such thing. Why
        the call cannot be replayed, if Python values of arguments changed."""
        names = {id(t): n for t, n in zip(self.reached.tensors, self.reached.names, strict=True)}
        for edge in self.reached.edges:
            if edge.now() is not edge.value and isinstance(edge.value, Tensor):
                self._refuse(names[id(edge.value)])
            if edge.kind == "size" and edge.now() != edge.value:
                return "it changes the size of a container of tensors, which a replay would not"
        flat = flatten(self.args, self.kwargs)
        before, after = self.flat.tensors, flat.tensors
        if len(before) == len(after):
            for i, (a, b) in enumerate(zip(before, after, strict=True)):
                if a is not b:
                    self._refuse(self._names()[i])
        for label, (_, _, leaf) in self.forms.items():
            if self.tensors[label]._leaf is not leaf:
                return "it changes which tensors require gradients, which a replay would not"
        if flat.key != self.flat.key:
            return "it changes Python values of its arguments, which a replay would not"
        return ""

    def _names(self) -> list[str]:
        return names_of([*named_arguments(self.function, self.args), *self.kwargs.items()])

    def names(self) -> dict[Label, str]:
        """What the user calls the tensors that go in."""
        arguments = self._names()
        return {
            label: arguments[label[1]] if label[0] == "argument" else self.reached.names[label[1]]
            for label in self.owners
        }

    def _refuse(self, name: str) -> None:
        raise JitError(
            f"{place_of(self.function)} puts another tensor in the place of {name!r}, which a "
            f"replay would not: write into the old one, {name}.assign(…)"
        )


def named_arguments(function: Callable[..., Any], args: Sequence[Any]) -> list[tuple[str, Any]]:
    """The positional arguments of a call under the names the function gives them."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    return [(names[i] if i < len(names) else f"argument {i}", arg) for i, arg in enumerate(args)]


def written_labels(steps: Sequence[Step]) -> set[Label]:
    """The memory that some step writes, other than memory filled in the call."""
    found: set[Label] = set()
    for step in steps:
        if step.planned is None:
            continue
        for row in step.planned.rows:
            for position in row.stores:
                place = row.places[position]
                if place < step.planned.given:
                    found.add(step.memory[place][0])
    return {label for label in found if label[0] != "made"}


def _hidden_write(written: set[Label], constants: Sequence[Constant]) -> str:
    for i, constant in enumerate(constants):
        if constant.node is not None and ("constant", i) in written:
            return _HIDDEN
    return ""


class _Labels:
    """Names for the memory of a recorded call."""

    def __init__(self, start: dict[Label, Buffer], record: Record) -> None:
        self._record = record
        self._start = {id(m): label for label, m in start.items()}
        self._kept: dict[int, tuple[int, Constant]] = {}

    def of(self, tensor: Tensor) -> Label:
        """Where the value of a realised tensor lies."""
        view = memory.memory_of(tensor)
        if view is None:
            return ("empty",)
        base = base_of(view)
        place = buffers.buffer_of(base)
        self._record.read(base, place)
        return self.label(place)

    def label(self, place: Buffer) -> Label:
        key = id(place)
        if key in self._start:
            return self._start[key]
        if key in self._record.drawn:
            return ("number", *self._record.drawn[key])
        if key in self._record.made:
            return ("made", self._record.made[key])
        if key not in self._kept:
            node, data = self._record.foreign[key]
            old = node if data is None else None
            self._kept[key] = len(self._kept), Constant(place, old, data)
        return ("constant", self._kept[key][0])

    def constants(self) -> list[Constant]:
        """What the "constant" labels name, as far as they were asked for."""
        return [constant for _, constant in self._kept.values()]

    def steps(self) -> tuple[list[Step], list[tuple[str, int]]]:
        steps: list[Step] = []
        numbers: list[tuple[str, int]] = []
        for event in self._record.events:
            if isinstance(event, Run):
                places = tuple((self.label(m), offset) for m, offset in event.memory)
                steps.append(Step(event.planned, places, values=event.values))
            elif isinstance(event, Copy):
                places = ((self.label(event.target), 0), (self.label(event.source), 0))
                steps.append(Step(None, places, event.source.nbytes))
            elif isinstance(event, Draw):
                numbers.append(("draw", event.count))
            elif isinstance(event, Seed):
                numbers.append(("seed", event.seed))
        return steps, numbers
