"""Stage 6: the ranged graph becomes kernels, `CALL(SINK(STORE…), args)`, in an order that can
run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from morok._core import consumers, toposort
from morok.dtype import dtypes
from morok.errors import InvalidGraphError
from morok.ir import CallInfo, KernelInfo, Level, Ops, UOp, check_stage, extent, is_ordered
from morok.rangeify.collapse import load_collapse
from morok.rangeify.cost import tensor_reads
from morok.rangeify.estimate import estimate
from morok.rangeify.movement import below_movement, early_movement_ops
from morok.rangeify.multi import on_one_device
from morok.rangeify.partial import partial_reductions
from morok.rangeify.places import Kernel, Ranged
from morok.rangeify.ranges import Rangeify
from morok.rangeify.split import split_ranges
from morok.rangeify.transforms import block_sums, renumber, simplify_merge_adjacent
from morok.rangeify.values import Values
from morok.rangeify.watch import seen

_STORES_TOGETHER = 48  # in one kernel of updates
_ATTEMPTS = 64  # each adds the buffers that writes need, as far as the last one showed them


@dataclass(frozen=True, slots=True)
class Schedule:
    """Kernels in an order that can run. Arguments of a CALL are PARAMs (the caller's buffers) and
    BUFFERs named by LUNIQUE (results and intermediate values)."""

    calls: tuple[UOp, ...]
    outputs: tuple[
        UOp, ...
    ]  # for each source of the sink: the PARAM or BUFFER that holds its value


RANGE_STAGES: tuple[tuple[str, Callable[[UOp], UOp]], ...] = (
    ("load collapse", load_collapse),
    ("split ranges", split_ranges),
    ("initial symbolic", lambda sink: sink.simplify()),
    ("simplify ranges", simplify_merge_adjacent),
    ("block sums", block_sums),
    ("renumber", renumber),
)
"""Stages 2 to 5 on each kernel, and the names of its loops."""


class LocalAddBufferContext:
    """Numbers the buffers of one kernel in the order of their first use (`dg`: the next slot)."""

    def __init__(self) -> None:
        self.dg = 0
        self.args: list[UOp] = []

    def add(self, buffer: UOp) -> UOp:
        """The kernel's PARAM for a buffer of the schedule."""
        size = buffer.arg if buffer.op is Ops.BUFFER else buffer.arg[1]
        p = UOp(Ops.PARAM, buffer.dtype.ptr(), (), (self.dg, size))
        self.dg += 1
        self.args.append(buffer)
        return p


def _name(sink: UOp) -> str:
    """`R_128_32_9`: reduces or not, the sizes of its loops."""
    loops = [u for u in sink.toposort() if u.op is Ops.RANGE]
    loops.sort(key=lambda r: r.arg[0].number)
    kind = "R" if any(r.arg[1].is_reduce for r in loops) else "E"
    ends = (r.src[0] for r in loops)
    sizes = (str(end.arg) if end.op is Ops.CONST else f"v{extent(end)}" for end in ends)
    return "_".join([kind, *sizes])


def split_store(stores: list[UOp]) -> UOp:
    """One kernel: the CALL of a SINK of stores over its own numbered PARAMs and ranges.

    The SINK depends only on what is computed: not on names of buffers nor on where in the graph it
    stood.
    """
    sink = seen("ranges", UOp(Ops.SINK, dtypes.void, tuple(stores)))
    for name, stage in RANGE_STAGES:
        sink = seen(name, stage(sink))
    context = LocalAddBufferContext()
    order = sink.toposort()
    replace = {u: context.add(u) for u in order if u.op in (Ops.BUFFER, Ops.PARAM)}
    for u in order:
        if u.op is Ops.AFTER:  # a pointer, as what it passes on
            replace[u] = replace[u.src[0]].after(*u.src[1:])
    sink = sink.substitute(replace)
    info = KernelInfo(name=_name(sink), estimates=estimate(sink))
    sink = check_stage(UOp(Ops.SINK, dtypes.void, sink.src, info), Level.KERNEL, "split store")
    return UOp(Ops.CALL, dtypes.void, (sink, *context.args), CallInfo(name=info.name))


def split_all_stores(ranged: Ranged, order: list[list[Kernel]]) -> tuple[UOp, ...]:
    """Each STORE border a kernel; stores of one loop nest, and nests put together, are one
    border."""
    return tuple(
        split_store([s for k in group for s in ranged.stores[k].values()]) for group in order
    )


def put_together(ranged: Ranged, order: list[Kernel]) -> list[list[Kernel]]:
    """Elementwise updates of memory share kernels, nest after nest, where nothing but such updates
    waits for them.

    So an optimizer step over any number of parameters is a handful of kernels. Those with the same
    number of updates one after another behind them do not wait for each other, and run before those
    with fewer.
    """
    written = _written(ranged)
    behind: dict[Kernel, int] = {}
    for k in reversed(order):
        after = _followers(k, written)
        if _is_update(k, ranged) and all(f in behind for f in after):
            behind[k] = 1 + max((behind[f] for f in after), default=0)
    updates: list[list[Kernel]] = []
    stores = 0
    in_order = [*reversed(behind)]
    in_order.sort(key=lambda k: -behind[k])
    for k in in_order:
        mates = updates[-1] if updates and behind[updates[-1][0]] == behind[k] else None
        if mates is None or stores + len(ranged.stores[k]) > _STORES_TOGETHER:
            updates.append([])
            stores = 0
        updates[-1].append(k)
        stores += len(ranged.stores[k])
    return [[k] for k in order if k not in behind] + updates


def _is_update(k: Kernel, ranged: Ranged) -> bool:
    return all(o.op is Ops.AFTER and not is_ordered(o) for o in k.outputs) and not any(
        s.src[1].has(op) for s in ranged.stores[k].values() for op in (Ops.REDUCE, Ops.BUFFERIZE)
    )


def _followers(k: Kernel, written: dict[UOp, list[Kernel]]) -> set[Kernel]:
    """The kernels that must run after `k`: they read what it stores, or overwrite what it reads."""
    overwriting = (w for u in k.reads for w in written.get(u, ()))
    return {f for f in (*k.readers, *overwriting) if f is not k}


def _written(ranged: Ranged) -> dict[UOp, list[Kernel]]:
    """The caller's buffers that are overwritten, and by which kernels: several write parts."""
    out: dict[UOp, list[Kernel]] = {}
    for k in ranged.kernels:
        for o in k.outputs:
            if o.op is Ops.AFTER:
                out.setdefault(ranged.buffers[o], []).append(k)
    return out


def _torn(k: Kernel, ranged: Ranged) -> UOp | None:
    """An output of `k` that overwrites elements which `k` still reads in other iterations."""
    for o, store in ranged.stores[k].items():
        if o.op is not Ops.AFTER or is_ordered(o):
            continue
        target = store.src[0]
        for s in ranged.stores[k].values():
            for u in s.src[1].toposort():
                if u.op is Ops.INDEX and u.src[0] is target.src[0] and u is not target:
                    return o
    return None


def fix_assign(ranged: Ranged) -> tuple[list[Kernel], list[UOp]]:
    """An order in which every kernel runs after those whose results it reads, and every overwriting
    kernel after the readers of what it overwrites; and the buffers that must be copied first, for
    each cycle one on it, without whose readers the order would be possible."""
    written = _written(ranged)
    before: dict[Kernel, dict[Kernel, UOp]] = {k: {} for k in ranged.kernels}
    for k in ranged.kernels:
        for r in k.readers:
            before[r].setdefault(k, ranged.buffers[k.outputs[0]])
    for k in ranged.kernels:
        for u in k.reads:
            for writer in written.get(u, ()):
                if writer is not k:
                    before[writer][k] = u
    order: list[Kernel] = []
    copied: list[UOp] = []
    state: dict[Kernel, int] = {}
    # Kernels were numbered from the outputs down: the highest number first follows the graph from
    # its inputs.
    for start in reversed(ranged.kernels):
        stack = [start]
        while stack:
            k = stack[-1]
            if state.get(k) == 2:
                stack.pop()
                continue
            state[k] = 1
            waiting = [b for b in before[k] if state.get(b) != 2]
            on_cycle = [b for b in waiting if state.get(b) == 1]
            if on_cycle:
                buffer = _overwritten_on_cycle(stack, on_cycle[0], before, written)
                copied.append(buffer)
                for writer in written[buffer]:
                    before[writer] = {b: u for b, u in before[writer].items() if u is not buffer}
                _shorten(stack, before, state)
            elif waiting:
                stack.append(waiting[0])
            else:
                state[k] = 2
                order.append(stack.pop())
    return order, copied


def _shorten(
    stack: list[Kernel], before: dict[Kernel, dict[Kernel, UOp]], state: dict[Kernel, int]
) -> None:
    """Take off the stack what no kernel below it on the stack waits for any more."""
    for place, (later, earlier) in enumerate(pairwise(stack), 1):
        if earlier not in before[later]:
            for k in stack[place:]:
                del state[k]
            del stack[place:]
            return


def _overwritten_on_cycle(
    stack: list[Kernel],
    first: Kernel,
    before: dict[Kernel, dict[Kernel, UOp]],
    written: dict[UOp, list[Kernel]],
) -> UOp:
    cycle = [*stack[stack.index(first) :], first]
    for later, earlier in pairwise(cycle):
        buffer = before[later][earlier]
        if later in written.get(buffer, ()):
            return buffer
    raise InvalidGraphError(
        "kernels wait for each other in a circle", node=stack[-1].outputs[0], stage="split store"
    )


def _in_place(sink: UOp) -> UOp:
    """A write of an ordered loop's result over the contents it started from: the loop runs on the
    memory itself, so that `t[rows] = values` touches the rows and nothing else.

    AFTER(view, STORE(view, loop of CONTIGUOUS(view))) -> loop of view. What the loop reads of the
    memory otherwise is computed before it.
    """
    users = consumers(sink)
    return sink.replace(src=tuple(_loop_in_place(root, users) for root in sink.src))


def _loop_in_place(root: UOp, users: dict[UOp, list[UOp]]) -> UOp:
    if root.op is not Ops.AFTER or is_ordered(root):
        return root
    view, loop = root.src[1].src[:2]
    if not is_ordered(loop) or loop.src[0].op is not Ops.CONTIGUOUS or len(users[loop]) > 1:
        return root
    memory = loop.src[0]
    if memory.src[0] is not view or any(
        not is_ordered(user) and user.op not in _WITHIN for user in users[memory]
    ):
        return root
    base = below_movement(view)
    replace = {memory: view}
    for read in tensor_reads(loop):
        tensor = read.src[0]
        if tensor is memory:
            return root
        if base in toposort(tensor):
            replace[tensor] = UOp(Ops.CONTIGUOUS, tensor.dtype, (tensor,))
    done: UOp = loop.substitute(replace)
    return done


_WITHIN = frozenset({Ops.INDEX, Ops.AFTER})  # how a loop names its own memory


def _snapshot(sink: UOp, copies: dict[UOp, UOp]) -> UOp:
    """`sink` with every read of a buffer replaced by a read of its copy, made before any write."""
    roots = []
    for root in sink.src:
        if is_ordered(root) and root.src[0].op is not Ops.CONTIGUOUS:
            roots.append(root)  # reads its memory as its own iterations leave it
        elif root.op is Ops.AFTER and not is_ordered(root):
            target, value = root.src[1].src
            store = root.src[1].replace(src=(target, value.substitute(copies)))
            roots.append(root.replace(src=(root.src[0], store)))
        else:
            roots.append(root.substitute(copies))
    return sink.replace(src=tuple(roots))


def _computed(root: UOp) -> UOp:
    """A root that is a value to be stored: a bare constant or buffer is copied."""
    bare = root.op in (Ops.CONST, Ops.PARAM)
    return UOp(Ops.CONTIGUOUS, root.dtype, (root,)) if bare else root


def run_kernel_split_pipeline(sink: UOp) -> Schedule:
    """Tensor graph over PARAMs -> schedule.

    Before: SINK of tensor-level values and of writes `AFTER(view, STORE(view, value))`; every read
    means the contents before any write. After: kernels that compute just that, in order.
    """
    sink = seen("one device", on_one_device(sink))
    sink = early_movement_ops(sink.replace(src=tuple(_computed(root) for root in sink.src)))
    seen("early movement", sink)
    sink = partial_reductions(_in_place(sink))
    forced: frozenset[UOp] = frozenset()
    apart: frozenset[UOp] = frozenset()
    for _ in range(_ATTEMPTS):
        ranged = Values(Rangeify(sink, forced, apart).run()).build()
        torn = [o for o in (_torn(k, ranged) for k in ranged.kernels) if o is not None]
        if torn:
            values = {o.src[1].src[1] for o in torn}
            forced |= values
            apart |= values.union(torn)
            continue
        order, overwritten = fix_assign(ranged)
        if overwritten:
            copies = {b: UOp(Ops.CONTIGUOUS, b.dtype, (b,)) for b in overwritten}
            sink = _snapshot(sink, copies)
            apart |= frozenset(copies.values())
            continue
        return Schedule(
            split_all_stores(ranged, put_together(ranged, order)),
            tuple(ranged.buffers[o] for o in sink.src),
        )
    raise InvalidGraphError("writes overlap in too many ways", node=sink, stage="split store")


__all__ = [
    "LocalAddBufferContext",
    "Schedule",
    "fix_assign",
    "run_kernel_split_pipeline",
    "split_all_stores",
    "split_store",
]
