"""Between lazy tensors and memory: arrays in and out, realising, and writes in program order.

A BUFFER node names one version of some memory. A realised value is a *view*: a BUFFER, or a RESHAPE
of one. It stands in `tensor.uop` itself, or, where gradients still need the graph, in
`tensor.uop.realized`.

A write (`assign`) changes only what `tensor.uop` means; the memory it is bound for stands in
`tensor._home` until the tensor is realised. Lazy tensors that read the old version hold its BUFFER
in their graphs, so they cannot see the new one. When the write is carried out, memory is re-used
only if nobody else holds the old contents; lazy readers are computed in the same schedule.

Memory that is lent (`from_numpy`) is always written itself: its owner must see it. Where several
tensors were lent memory that overlaps, a write to one is carried out when it is made, and the
others have the new contents from then on, as arrays of NumPy would.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np
import numpy.typing as npt

from morok import engine
from morok._core import reaching
from morok.dtype import DType, Scalar, dtypes, from_numpy, to_numpy
from morok.engine import base_of, buffers, hold, is_buffer_view, is_write
from morok.errors import JitError
from morok.forking import held_at_fork
from morok.ir import DeviceSpec, GroupOp, Ops, UOp, extent, is_symbolic, laid_out, value_of
from morok.tensor import effects, nodes
from morok.tensor.base import Base, all_tensors, fail, remark
from morok.tensor.parts import MOST, Parts, changed_part, with_part
from morok.tensor.tracing import depends_on_arguments, refuse_unknown, tracing

_device = DeviceSpec("CPU")
lock = held_at_fork(threading.RLock())
_waiting: WeakSet[UOp] = WeakSet()
"""BUFFERs on lent memory with a write not carried out."""
_lent: WeakKeyDictionary[UOp, list[ref[npt.NDArray[Any]]]] = WeakKeyDictionary()
"""For a BUFFER, the arrays that show its memory to the user."""


# Arrays in ---------------------------------------------------------------------------------------


def copied(array: npt.NDArray[Any]) -> UOp:
    """A value in memory of its own with the contents of `array`, which has a dtype morok knows."""
    dtype = from_numpy(array.dtype)
    if array.size == 0:
        return nodes.full(array.shape, dtype, 0)
    buffer = buffers.new_buffer(dtype, array.size, _device)
    buffers.buffer_of(buffer).view(array.dtype, array.shape)[...] = array
    return nodes.reshape(buffer, array.shape)


def number(dtype: DType, value: Scalar) -> UOp:
    """A 0-d value in memory: unlike a constant, another number compiles nothing new."""
    return copied(np.array(value, to_numpy(dtype)))


def changing(constant: UOp) -> UOp:
    """A constant as a `number`, where NumPy has the dtype: what a loop writes element by element is
    another one each time."""
    if constant.dtype.name in WITHOUT_NUMPY:
        return constant
    return number(constant.dtype, constant.arg)


def aliased(array: npt.NDArray[Any]) -> UOp:
    """The memory of a C-contiguous `array` as a value; the array is kept alive. Writes that wait to
    be carried out in some of it are."""
    if array.size == 0:
        return nodes.full(array.shape, from_numpy(array.dtype), 0)
    with lock:
        buffer = buffers.from_memory(array)
        touched = _waiting.intersection(buffers.overlapping(buffer)) if _waiting else ()
        if touched:
            pending = [(t, t._home) for t in all_tensors()]
            realize(t for t, home in pending if home is not None and base_of(home) in touched)
    return laid_out(buffers.latest(buffer), array.shape)


# Arrays out --------------------------------------------------------------------------------------


def array_of(tensor: Base) -> npt.NDArray[Any]:
    """The contents, realised, as a read-only array that shows the memory itself."""
    dtype = to_numpy(tensor.dtype)
    shape = tensor.shape
    if engine.recording() is not None:
        fail(
            JitError,
            "a jitted function reads a value (numpy, item, tolist, print, a tensor as a condition "
            "or an index), which a replay would not: return the tensor, or choose with where()",
        )
    refuse_unknown([tensor], "reads a value (numpy, item, tolist, print, a condition, an index)")
    with lock:
        realize([tensor])
        view = memory_of(tensor)
        if view is None:  # no elements
            return np.empty(shape, dtype)
        base = base_of(view)
        whole = tuple(map(extent, shape))
        array: npt.NDArray[Any] = buffers.buffer_of(base).view(dtype, whole)
        if is_symbolic(shape):
            array = array[tuple(slice(value_of(n)) for n in shape)]
        array.flags.writeable = False
        shown = [lent for lent in _lent.get(base, ()) if lent() is not None]
        _lent[base] = [*shown, ref(array)]
    return array


# What is in memory -------------------------------------------------------------------------------


def memory_of(tensor: Base) -> UOp | None:
    """The view that holds a tensor's present value, None while it is lazy."""
    u = tensor.uop
    if is_buffer_view(u):
        return u
    if u.realized is None:
        # Behind identities and reshapes the value may stand in memory already.
        below = u
        while below.realized is None and not is_buffer_view(below):
            if below.op is not Ops.RESHAPE and below.op not in GroupOp.Identity:
                return None
            below = below.src[0]
        view = below if below.realized is None else below.realized
        hold(u, laid_out(base_of(view), nodes.shape_of(u)))
    held: UOp | None = u.realized
    return held


def home_of(tensor: Base) -> UOp | None:
    """The memory that an `assign` to this tensor may write, None where it has none of its own."""
    if tensor._home is not None:
        return tensor._home
    view = memory_of(tensor)
    if view is None:
        return None
    base = base_of(view)
    if buffers.is_external(base) and (not tensor._alias or buffers.buffer_of(base).readonly):
        return None
    return view


def pending(tensor: Base, value: UOp) -> tuple[UOp | None, Parts | None]:
    """What an `assign` of `value` makes of a tensor's `_home` and `_parts`."""
    home = home_of(tensor)
    part = changed_part(tensor.uop, value)
    if part is None:
        return home, None
    if home is None:  # nowhere to write, but the value is nested one deeper
        return None, Parts(None, 1 if tensor._parts is None else tensor._parts.writes + 1)
    if tensor._home is None:
        return home, Parts((part,), 1)
    return home, with_part(tensor._parts, part, value)


def assigned(tensor: Base) -> None:
    """A tensor was assigned to. Carries it out at once if others were lent the same memory, or if
    many writes to parts are waiting."""
    home, parts = tensor._home, tensor._parts
    if tensor._alias and home is None:
        tensor._alias = False  # memory that must not be written is left alone, and left
    if tracing() is not None and depends_on_arguments(tensor.uop):
        return
    if parts is not None and parts.writes > MOST:
        realize([tensor])
    elif tensor._alias and home is not None:
        with lock:
            if buffers.overlapping(base_of(home)):
                realize([tensor])
            else:
                _waiting.add(base_of(home))


def _written_down(tensor: Base) -> bool:
    """Whether the value was one number, and now stands in memory without a kernel."""
    u = below = tensor.uop
    while below.op is Ops.RESHAPE or below.op in GroupOp.Identity:
        below = below.src[0]
    if below.op is not Ops.CONST or below.dtype.name in WITHOUT_NUMPY:
        return False
    view = nodes.reshape(number(below.dtype, below.arg), nodes.shape_of(u))
    if tensor._rg:
        hold(u, view)
    else:
        tensor.uop = view  # the node of a number stands in every graph that has the number
    return True


WITHOUT_NUMPY = frozenset({"bfloat16", "fp8e4m3", "fp8e5m2"})


def in_numpy(dtype: DType) -> DType:
    """The dtype with the same bits that NumPy has: itself, if NumPy has it."""
    if dtype.name not in WITHOUT_NUMPY:
        return dtype
    return dtypes.uint8 if dtype.bits == 8 else dtypes.uint16


def is_settled(tensor: Base) -> bool:
    return tensor._home is None and (memory_of(tensor) is not None or 0 in tensor.shape)


def waits_for_variables(tensor: Base) -> bool:
    """Whether a value not computed yet depends on what variables are bound to."""
    u = tensor.uop
    if not u.has(Ops.BIND) or is_settled(tensor):
        return False
    return tracing() is None or not depends_on_arguments(u)


# Realising ---------------------------------------------------------------------------------------

_Owners = list[tuple[Base, UOp]]
"""Tensors that wait for a root, and what their `uop` was when the schedule was planned."""
_Followers = list[tuple[Base, UOp]]
"""Tensors on lent memory, and the BUFFERs they stand on, that overlap what is written."""


def realize(tensors: Iterable[Base]) -> None:
    """Compute tensors and carry out their pending writes, all in one schedule.

    After an error every tensor is as it was.
    """
    with lock:
        work = {id(tensor): tensor for tensor in tensors if not is_settled(tensor)}
        if not work:
            return
        refuse_unknown(list(work.values()), "realizes a tensor")
        work.update((id(tensor), tensor) for tensor in effects.due(list(work.values())))
        written: set[UOp] = set()
        followers: _Followers = []
        if any(tensor._home is not None for tensor in work.values()):
            written, followers = _plan_writes(work)
        roots: dict[UOp, _Owners] = {}
        for tensor in work.values():
            home, value = tensor._home, tensor.uop
            if home is not None and base_of(home) in written and value is not home:
                made = _stores(home, value, tensor._parts)
            elif memory_of(tensor) is not None or _written_down(tensor):
                tensor._home = tensor._parts = None
                continue
            else:
                made = [value]
            for root in made:
                roots.setdefault(root, []).append((tensor, value))
        if roots:
            _settle(roots, engine.realize(list(roots)))
            for tensor, base in followers:  # what overlaps was written: they have it too
                show(tensor, laid_out(buffers.latest(base), tensor.shape))


def _stores(home: UOp, value: UOp, parts: Parts | None) -> list[UOp]:
    """The writes that make the memory `home` hold `value`."""
    if parts is None or parts.boxes is None:
        pairs = [(home, value)]
    else:
        pairs = [(nodes.shrink(home, box.begins, box.ends), box.value) for box in parts.boxes]
    return [
        UOp(Ops.AFTER, view.dtype, (view, UOp(Ops.STORE, dtypes.void, (view, new))))
        for view, new in pairs
    ]


def _plan_writes(work: dict[int, Base]) -> tuple[set[UOp], _Followers]:
    """The BUFFERs that this schedule may overwrite, and who sees it. Adds to `work` the lazy
    tensors that read what is overwritten, and moves out what would be lost there."""
    others = [tensor for tensor in all_tensors() if id(tensor) not in work]
    while True:
        targets: dict[UOp, Base] = {}
        for tensor in work.values():
            if tensor._home is not None:
                base = base_of(tensor._home)
                if base not in targets or tensor._alias:
                    targets[base] = tensor
        touched = {*targets}
        for base, owner in targets.items():
            if owner._alias:
                touched.update(buffers.overlapping(base))
        # Who has just the value that is written finds it there, as the result that was assigned.
        values = {tensor.uop for tensor in work.values()}
        hits = reaching([other.uop for other in others], touched)
        concerned: list[Base] = []
        readers: list[Base] = []
        for other, hit in zip(others, hits, strict=True):
            home = other._home
            if hit and (home is not None or (other.uop not in values and memory_of(other) is None)):
                readers.append(other)
            elif hit or (home is not None and base_of(home) in touched):
                concerned.append(other)
        if not readers:
            break
        work.update((id(reader), reader) for reader in readers)
        others = [other for other in others if id(other) not in work]
    shared: dict[UOp, list[Base]] = {}
    for tensor in (*concerned, *work.values()):
        for view in {memory_of(tensor), tensor._home}:
            place = None if view is None else base_of(view)
            if place in touched and targets.get(place) is not tensor:
                shared.setdefault(place, []).append(tensor)
    written = set()
    for base, owner in targets.items():
        if owner._alias or (base not in shared and not is_shown(base)):
            written.add(base)
    followers = []
    for base in touched:
        lent = buffers.is_external(base)
        for sharer in shared.get(base, ()) if lent else ():
            if sharer._alias and sharer._home is None:
                followers.append((sharer, base))
            else:
                move_out(sharer, base)
    return written, followers


def show(tensor: Base, view: UOp) -> None:
    """A realised tensor is from now on what lies in `view`: a leaf still, or a constant."""
    tensor.uop = view
    tensor._rg = tensor._rg and tensor._leaf
    remark(tensor)


def move_out(sharer: Base, base: UOp) -> None:
    """A tensor whose value stands in memory about to be overwritten gets a copy of its own."""
    view = memory_of(sharer)
    if view is None or base_of(view) is not base:
        return
    place = laid_out(engine.duplicate(base), sharer.shape)
    if sharer.uop is view:
        sharer.uop = place
        remark(sharer)
    else:
        hold(sharer.uop, place)


def show_as(base: UOp, other: UOp) -> None:
    """BUFFER `other` names the memory of `base` too: the same arrays show it."""
    if base in _lent:
        _lent[other] = _lent[base]


def is_shown(base: UOp) -> bool:
    """Whether the user holds an array of this memory: it must not change under his hands."""
    return any(array() is not None for array in _lent.get(base, ()))


def _settle(roots: dict[UOp, _Owners], views: Sequence[UOp]) -> None:
    """Point tensors at the memory that now holds them."""
    taken: set[int] = set()
    for (root, owners), view in zip(roots.items(), views, strict=True):
        written = is_write(root)
        base = base_of(view)
        memory = id(buffers.buffer_of(base))
        if not written and memory in taken:
            # Roots that are equal but for their marks were computed once.
            view = laid_out(engine.duplicate(base), nodes.shape_of(root))
            root.realized = None
        taken.add(memory)
        for tensor, value in owners:
            if written:  # perhaps a part of it
                view = laid_out(base, nodes.shape_of(value))
            if not is_buffer_view(value) and value.realized is None and value.op is not Ops.CONST:
                hold(value, view)
            if tensor.uop is not value:  # settled by its first part, or assigned meanwhile
                home = tensor._home
                if written and home is not None and base_of(home) is base_of(root.src[0]):
                    tensor._home, tensor._parts = view, None
                continue
            tensor._home = tensor._parts = None
            # A graph is kept where gradients flow through it.
            if not tensor._rg or tensor._leaf:
                tensor.uop = view
                remark(tensor)
