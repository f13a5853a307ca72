"""Which memory a BUFFER node names.

A BUFFER node is one immutable version of some memory. Overwriting the memory makes a new node on
it; the old node must not be read any more, and values that were known to lie in it are forgotten.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from morok.dtype import DType, from_numpy
from morok.errors import InvalidGraphError
from morok.ir import DeviceSpec, GroupOp, Ops, UOp
from morok.runtime import Buffer

_memory: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()
_holders: weakref.WeakKeyDictionary[UOp, list[weakref.ref[UOp]]] = weakref.WeakKeyDictionary()


def bind(node: UOp, memory: Buffer) -> UOp:
    """Make `memory` the memory of BUFFER `node`; the node."""
    _memory[node] = memory
    return node


def new_buffer(dtype: DType, size: int, device: DeviceSpec | str = "CPU") -> UOp:
    """A BUFFER of `size` elements with fresh memory, not initialised. OutOfMemoryError."""
    return bind(UOp.new_buffer(dtype, size, device), Buffer(size * dtype.itemsize))


def from_memory(array: np.ndarray[Any, Any]) -> UOp:
    """A BUFFER on the memory of a C-contiguous array, which is kept alive. Its size is the
    array's."""
    return bind(UOp.new_buffer(from_numpy(array.dtype), array.size), Buffer.from_object(array))


def buffer_of(node: UOp) -> Buffer:
    """The memory of a BUFFER node. InvalidGraphError if it was overwritten since or never had
    any."""
    memory = _memory.get(node)
    if memory is None:
        raise InvalidGraphError(
            "this value's memory was overwritten by a later assignment", node=node, stage="realize"
        )
    return memory


def base_of(view: UOp) -> UOp:
    """What a chain of movement ops looks at."""
    while view.op in GroupOp.Movement:
        view = view.src[0]
    return view


def is_buffer_view(node: UOp) -> bool:
    """A BUFFER, or a reshape of one: the value lies in memory in logical order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER


def new_version(node: UOp) -> UOp:
    """A new BUFFER node on the memory of `node`, which was overwritten; `node` has no memory any
    more."""
    memory = buffer_of(node)
    for ref in _holders.pop(node, ()):
        value = ref()
        if value is not None and value.realized is not None and base_of(value.realized) is node:
            value.realized = None
    del _memory[node]
    return bind(UOp.new_buffer(node.dtype, node.arg, node.src[1]), memory)


def hold(value: UOp, view: UOp) -> None:
    """Note that tensor node `value` lies in memory as buffer view `view`."""
    value.realized = view
    _holders.setdefault(base_of(view), []).append(weakref.ref(value))
