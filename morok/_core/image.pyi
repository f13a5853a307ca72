"""Relocatable ELF objects in memory, ready to run, without a linker."""

from typing import final

def is_relocatable(data: bytes) -> bool:
    """Whether these bytes claim to be a relocatable ELF object."""

@final
class CodeImage:
    """The code of one relocatable object of this machine, in memory of its own until it dies.

    Code may call memcpy, memset, memmove, fmod and fmodf and nothing else outside the object.
    DeviceError for anything else than a whole object with code and constants, or if symbols are
    missing, which it names. Stays valid in the child of a fork.
    """

    def __init__(self, data: bytes) -> None: ...
    @property
    def functions(self) -> dict[str, int]:
        """Name -> address of each global function, valid as long as the image lives."""
