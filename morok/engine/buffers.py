"""Which memory a BUFFER node names.

A BUFFER node is one immutable version of some memory. Overwriting the memory makes a new node on
it; the old node must not be read any more, and values that were known to lie in it are forgotten.

Memory of the pool has one BUFFER. Memory that belongs to somebody else may be lent several times,
whole or in parts: BUFFERs on it overlap, and what is written to one is a new version of them all.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from morok.dtype import DType, from_numpy
from morok.engine.overlap import Spans
from morok.errors import InvalidGraphError
from morok.ir import DeviceSpec, GroupOp, Ops, UOp, is_ordered, memory_under
from morok.runtime import Buffer

_memory: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()
_holders: weakref.WeakKeyDictionary[UOp, list[weakref.ref[UOp]]] = weakref.WeakKeyDictionary()
_next: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()
"""Of an overwritten BUFFER on lent memory, the one that took its place."""
_external: weakref.WeakKeyDictionary[Buffer, weakref.ref[UOp]] = weakref.WeakKeyDictionary()
"""Memory of others, and the BUFFER that is its present version."""
_spans: Spans[weakref.ref[Buffer]] | None = None
"""Where it all lies; None when some was added since."""


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
    global _spans
    memory = Buffer.from_object(array)
    node = bind(UOp.new_buffer(from_numpy(array.dtype), array.size), memory)
    _external[memory] = weakref.ref(node)
    _spans = None
    return node


def is_external(node: UOp) -> bool:
    """Whether a BUFFER names memory that belongs to somebody else (`from_memory`)."""
    return _memory.get(node) in _external


def overlapping(node: UOp) -> list[UOp]:
    """The other living BUFFERs that share some of this one's memory: only such of `from_memory`."""
    global _spans
    memory = buffer_of(node)
    if memory not in _external:
        return []
    if _spans is None:
        _spans = Spans((m.ptr, m.ptr + m.nbytes, weakref.ref(m)) for m in list(_external))
    out = []
    for ref in _spans.overlapping(memory.ptr, memory.ptr + memory.nbytes):
        other = ref()
        version = _external[other]() if other is not None and other is not memory else None
        if version is not None:
            out.append(version)
    return out


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
    """A BUFFER, or a reshape of one, perhaps cut to symbolic dims: the value lies in memory in
    logical order."""
    return memory_under(node).op is Ops.BUFFER


def is_write(root: UOp) -> bool:
    """A write of a whole view of memory, `AFTER(view, STORE(view, value))`, not a value."""
    return root.op is Ops.AFTER and not is_ordered(root)


def new_version(node: UOp) -> UOp:
    """A new BUFFER node on the memory of `node`, which was overwritten; `node` and the BUFFERs that
    overlap it have no memory any more: `latest` says what took their place."""
    for other in overlapping(node):
        _renew(other)
    return _renew(node)


def forget(node: UOp) -> None:
    """The contents of `node` are gone: neither it nor values that lay in it have memory."""
    for ref in _holders.pop(node, ()):
        value = ref()
        if value is not None and value.realized is not None and base_of(value.realized) is node:
            value.realized = None
    _memory.pop(node, None)


def second_name(node: UOp) -> UOp:
    """A further BUFFER on the memory of `node`: what is computed from it is no value that was
    computed from `node` before. A write must invalidate both."""
    return call_version(UOp.new_buffer(node.dtype, node.arg, node.src[1]), buffer_of(node))


def call_version(node: UOp, memory: Buffer) -> UOp:
    """Make BUFFER `node` the present version of `memory`; the node."""
    if memory in _external:
        _external[memory] = weakref.ref(node)
    return bind(node, memory)


def has_memory(node: UOp) -> bool:
    """Whether a BUFFER node's contents still exist."""
    return node in _memory


def _renew(node: UOp) -> UOp:
    memory = buffer_of(node)
    forget(node)
    fresh = call_version(UOp.new_buffer(node.dtype, node.arg, node.src[1]), memory)
    if memory in _external:
        _next[node] = fresh
    return fresh


def latest(node: UOp) -> UOp:
    """The present version of the lent memory that BUFFER `node` names or named."""
    while node not in _memory:
        node = _next[node]
    return node


def hold(value: UOp, view: UOp) -> None:
    """Note that tensor node `value` lies in memory as buffer view `view`."""
    value.realized = view
    _holders.setdefault(base_of(view), []).append(weakref.ref(value))
