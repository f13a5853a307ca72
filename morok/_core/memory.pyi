"""Buffers: aligned host memory from a bounded pool, or somebody else's memory kept alive."""

from typing import Any, final

import numpy as np
import numpy.typing as npt

@final
class Buffer:
    """`nbytes` of memory, not initialised.

    The memory starts at a multiple of 64 bytes (2 MiB, with huge-page advice, from 2 MiB on), and
    all bytes up to the next multiple of 64 may be read and written. It returns to the pool when the
    object and all views of it are gone. Lends itself through the buffer protocol, so
    `memoryview(buffer)` and `numpy.frombuffer(buffer)` copy nothing and keep it alive.

    Raises OutOfMemoryError with the sizes; everything allocated before stays intact.
    """

    def __init__(self, nbytes: int) -> None: ...
    @staticmethod
    def from_object(memory: object) -> Buffer:
        """The memory of any object with the buffer protocol, in place; the object is kept alive.

        Read-only memory gives a `readonly` buffer. Neither alignment nor slack at the end is
        promised: look at `alignment`. ShapeError if the memory is not C-contiguous, TypeError if
        the object lends none.
        """

    @staticmethod
    def from_pointer(address: int, nbytes: int, owner: object, *, readonly: bool = False) -> Buffer:
        """`nbytes` at `address`, which stay valid as long as `owner` lives; it is kept alive."""

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """A part of this memory as a buffer of its own, which keeps this one alive.

        ShapeError if it does not lie inside.
        """

    def view(
        self, dtype: npt.DTypeLike, shape: int | tuple[int, ...] | None = None, offset: int = 0
    ) -> np.ndarray[Any, Any]:
        """A NumPy array on this memory from byte `offset` on; it keeps the buffer alive.

        `shape` defaults to as many elements as fit, in one dimension. ShapeError if the array does
        not fit into the buffer.
        """

    @property
    def ptr(self) -> int:
        """Address of the first byte."""

    @property
    def nbytes(self) -> int:
        """Size that was asked for."""

    @property
    def readonly(self) -> bool:
        """Whether kernels must not write here."""

    @property
    def external(self) -> bool:
        """Whether the memory is somebody else's: wrapped, or a slice of another buffer."""

    @property
    def base(self) -> object:
        """What keeps external memory alive; None for memory of the pool."""

    @property
    def alignment(self) -> int:
        """The largest power of two, up to 2 MiB, that divides the address."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

def memory_stats() -> dict[str, int]:
    """Counters of buffers and of the pool, in objects and bytes.

    `live_buffers` own pool memory; `live_bytes` is what they and the leases of plans occupy,
    `peak_bytes` the most since `reset_peak()`. `external_*` are buffers on somebody else's memory,
    slices included. `pooled_*` is free memory kept for reuse, at most `pool_limit`. `taken_fresh`
    and `taken_reused` count where blocks came from.
    """

def reset_peak() -> None:
    """Makes `peak_bytes` start again from what is live now."""

def clear_pool() -> None:
    """Gives all free memory back to the system."""

def set_pool_limit(nbytes: int) -> None:
    """Bounds the free memory kept for reuse; frees what is beyond. 0 keeps none."""
