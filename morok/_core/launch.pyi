"""Running machine code: libraries in memory, kernels, and plans that run many in one call."""

from collections.abc import Iterable, Sequence
from typing import Any, final

from morok._core.memory import Buffer

@final
class Library:
    """A shared or relocatable object loaded from its bytes, unloaded with its last user.

    `name` is for messages. DeviceError, with the loader's reason, if the bytes are no library for
    this machine or need a symbol nobody has. Stays loaded in the child of a fork.
    """

    def __init__(self, image: bytes, name: str = "kernels") -> None: ...
    @property
    def name(self) -> str:
        """The name it was given."""

    def symbol(self, name: str) -> int:
        """Address of a function, valid as long as the library lives. DeviceError if missing."""

    def kernel(self, name: str) -> Kernel:
        """A function that keeps the library loaded. DeviceError if missing."""

@final
class Kernel:
    """A function of a library, which it keeps loaded. Made by `Library.kernel`.

    Its C type is `void (void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi)`.
    """

    @property
    def name(self) -> str:
        """Its symbol."""

    @property
    def library(self) -> Library:
        """Where it lives."""

    @property
    def ptr(self) -> int:
        """Its address."""

@final
class ExecutionPlan:
    """Kernels in the order they run, with their argument slots.

    A kernel is a tuple `(function, slots, scratch_bytes=0, lo=0, hi=1, variables=None, name="",
    split=0)`, shorter if the defaults serve: `function` a Kernel (kept loaded) or an address
    (the caller keeps it loaded, or passes its owner in `keep`); `slots` says which slot each of its
    `bufs` is; `variables` which of the plan's variables each of its `vars` is (None: all, as they
    stand). With `split` it is called for parts of 0 to `hi`, which cover it, on as many threads as
    the setting `threads` says, each with scratch of its own; 2 asks for few parts.

    The first `n_slots` slots are filled by the caller of `run`. Further slots lie at the offsets
    `arena` (multiples of 64) of memory the plan owns, `arena_bytes` long. That memory and the
    kernels' scratch space are leased per execution: threads may run one plan at the same time.

    A run gives the first `n_vars` variables; those behind them are always `constants`.

    InvalidGraphError if a slot or variable does not exist.
    """

    def __init__(
        self,
        kernels: Iterable[Sequence[Any]],
        n_slots: int,
        *,
        n_vars: int = 0,
        arena: Iterable[int] = (),
        arena_bytes: int = 0,
        keep: Iterable[object] = (),
        groups: Iterable[tuple[int, ...]] = (),
        constants: Iterable[int] = (),
    ) -> None: ...
    def run(self, buffers: Iterable[Buffer], vars: Iterable[int] = ()) -> None:  # noqa: A002
        """Runs all kernels with the GIL released; returns when they are done.

        One buffer a slot, each as large as the kernels take it to be (not checked), and one value
        a variable. InvalidGraphError on a wrong count, OutOfMemoryError if none is left to lease.
        """

    def run_profiled(
        self,
        buffers: Iterable[Buffer],
        vars: Iterable[int] = (),  # noqa: A002
    ) -> tuple[int, tuple[int, ...]]:
        """As `run`; gives the start (clock of `time.perf_counter_ns`) and each kernel's ns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels' names."""

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The kernels' numbers by dependency, as whoever made the plan found them: those of one
        group may run side by side, the groups run in order."""

    @property
    def lease_bytes(self) -> int:
        """Memory each execution needs besides its buffers."""

    def __len__(self) -> int:
        """The number of kernels."""

COPY_KERNEL: int
"""The address of a kernel that copies bytes `lo` to `hi` of its second buffer to its first."""
