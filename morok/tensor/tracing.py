"""What a thread notes while it traces a function: calls of the body repeat it on other tensors."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from morok import engine
from morok.errors import FunctionError
from morok.ir import Ops, UOp
from morok.tensor.base import Base, fail

State = tuple[UOp, bool, UOp | None, Any, bool]
"""`uop`, `_rg`, `_home`, `_parts` and `_alias` of a tensor."""


@dataclass(slots=True)
class Tracing:
    """One trace: the function's name; the random counters it took, (count, key, first) each; ids of
    tensors that changed by the way, as running statistics do; what tensors that were written had
    before."""

    name: str
    draws: list[tuple[int, UOp, UOp]] = field(default_factory=list)
    by_the_way: set[int] = field(default_factory=set)
    before: dict[int, tuple[Base, State]] = field(default_factory=dict)

    def write_back(self, ids: Collection[int]) -> list[Any]:
        """Give those of the tensors `ids` that were written what they had before; them."""
        back = [each for key, each in self.before.items() if key in ids]
        for tensor, state in back:
            tensor.uop, tensor._rg, tensor._home, tensor._parts, tensor._alias = state
        return [tensor for tensor, _ in back]


class _Local(threading.local):
    current: Tracing | None = None


thread_trace = _Local()


def tracing() -> Tracing | None:
    """This thread's innermost trace, None while it traces nothing."""
    return thread_trace.current


@contextmanager
def trace_into(notes: Tracing) -> Iterator[Tracing]:
    """Note in `notes` what this thread does in the block."""
    before, thread_trace.current = thread_trace.current, notes
    try:
        yield notes
    finally:
        thread_trace.current = before


def note_write(tensor: Base, before: State) -> None:
    """A tensor that was in state `before` is written."""
    notes = thread_trace.current
    if notes is not None:
        notes.before.setdefault(id(tensor), (tensor, before))


def depends_on_arguments(uop: UOp) -> bool:
    """Whether a value is made of what stands for the arguments of a function being traced."""
    return uop.has(Ops.PARAM) and any(u.op is Ops.PARAM for u in engine.own_nodes(uop))


_INSTEAD = "return the tensor, or choose with where()"


def refuse_unknown(tensors: Sequence[Base], what: str, instead: str = _INSTEAD) -> None:
    """FunctionError where this thread traces and one of `tensors` has no value yet."""
    notes = tracing()
    if notes is not None and any(depends_on_arguments(tensor.uop) for tensor in tensors):
        fail(
            FunctionError,
            f"{notes.name} {what} while it is traced, when its arguments have no values: {instead}",
        )
