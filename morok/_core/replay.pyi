"""Replaying a recorded function: tensors in, one plan, tensors out."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from morok._core.launch import ExecutionPlan

MISS: Final[object]
"""What a replay gives when the capture does not fit: something is not where it was."""

PLAIN: Final[object]
"""What a replay gives when the function must run plainly: it would write somebody else's memory."""

EDGE_KINDS: Final[dict[str, int]]
"""The number of each kind of edge."""

class Capture:
    """A recorded function as one plan.

    entries    (kind, index, slot or -1, written, gradient, leaf, kept, form): tensors that go in.
               Kind 0 is argument `index`, 1 closure tensor `index`, 2 the gradient of entry
               `index`; the latter come last. `gradient` says what `.grad` must be: 0 anything, 1
               None, 2 a tensor; `kept` says that the old value is needed, `form` is (dtype number,
               shape)
    edges      (kind, holder, key, value): what must still hold, see EDGE_KINDS
    constants  (slot, Buffer)
    parts      (slot, slot it begins in, bytes behind its beginning)
    outputs    (slot or -1, dtype, shape) of each new tensor
    grads      (entry, output): whose `.grad` becomes which output (-1: None; -2 - e: entry e)
    signature  (number of the dtype, shape, leaf) of each argument
    places     for each argument, the closure tensor it is, or -1
    rebuild    (outputs, entry tensors) -> the result, unless `single` names the output that is it
    """

    key: list[Any] | None
    """Of the arguments, as `Flat` has it; None if all of them are tensors."""
    settings: object
    """The Config with which it may be replayed without asking; None: with none."""
    replays: int
    """How often it was replayed."""
    details: Any
    """For whoever made the capture."""
    report: Callable[[int, tuple[int, ...]], None] | None

    def __init__(
        self,
        plan: ExecutionPlan,
        *,
        n_given: int,
        entries: list[tuple[int, int, int, bool, int, bool, bool, tuple[int, tuple[int, ...]]]],
        closure: list[Any],
        edges: list[tuple[int, Any, Any, Any]],
        constants: list[tuple[int, Any]],
        parts: list[tuple[int, int, int]],
        outputs: list[tuple[int, Any, tuple[int, ...]]],
        grads: list[tuple[int, int]],
        number_slots: list[int],
        grad_mode: bool,
        signature: tuple[tuple[Any, ...], ...],
        places: tuple[int, ...],
        plain_arguments: bool,
        make: Callable[[Any, tuple[int, ...]], Any],
        prepare: Callable[[list[Any], list[Any]], None],
        numbers: Callable[[], Sequence[int]],
        lock: Any,
        rebuild: Callable[[Sequence[Any], Sequence[Any]], Any],
        single: int,
    ) -> None: ...
    def replay(self, arguments: list[Any]) -> Any:
        """What the function returns for these tensors; MISS or PLAIN if nothing has happened."""
