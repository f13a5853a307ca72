"""The verifier: what a whole graph must satisfy at each level.

`RULES` is the table. Besides its own rules every level has the local checks of `checks.py`. The
verifier runs between stages when MOROK_VERIFY=1; it neither changes nor simplifies a graph for
others, and never recurses along one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from morok import config
from morok.errors import InvalidGraphError
from morok.ir.checks import Fault, fault_error, fault_of, is_laid_out
from morok.ir.ops import AxisType, InvalidType, Ops
from morok.ir.optable import OPS, Category, GroupOp
from morok.ir.shapes import extent
from morok.ir.uop import UOp

__all__ = ["RULES", "GraphRule", "Level", "check_stage", "find_faults", "verify"]


class Level(enum.Enum):
    """How far down a graph is."""

    TENSOR = "tensor"  # movement ops and shapes, or the ranged graph before kernels are split
    KERNEL = "kernel"  # one kernel: a SINK of statements over ranges
    LOWERED = "lowered"  # the same after decompositions, whose arithmetic has wide bounds
    LINEAR = "linear"  # one kernel as a sequence of ops


@dataclass(slots=True)
class _Graph:
    """What the rules look at."""

    root: UOp
    level: Level
    nodes: list[UOp]  # sources first; of a LINEAR its ops in their order
    absent: frozenset[Ops]
    in_if: set[UOp] = field(default_factory=set)  # ops that stand within an IF of a LINEAR


_Found = Iterator[tuple[UOp, Fault]]


@dataclass(frozen=True, slots=True)
class GraphRule:
    """A row: name, levels it holds at, what it says, and the function that finds offenders."""

    name: str
    levels: frozenset[Level]
    doc: str
    find: Callable[[_Graph], _Found]


# Which ops a level has ---------------------------------------------------------------------------

_BELOW_TENSOR: Final = frozenset(
    {Ops.DEFINE_REG, Ops.DEFINE_LOCAL, Ops.UNROLL, Ops.CONTRACT, Ops.WMMA, Ops.SPECIAL, Ops.IF}
    | {Ops.ENDIF, Ops.LOAD, Ops.POINTER_INDEX, Ops.PTRCAT, Ops.CAT, Ops.GEP, Ops.VCONST, Ops.LINEAR}
)
_ABOVE_KERNEL: Final = GroupOp.Movement | frozenset(
    {Ops.BUFFER, Ops.BUFFER_VIEW, Ops.REDUCE_AXIS, Ops.ALLREDUCE, Ops.COPY, Ops.DETACH}
    | {Ops.MULTI, Ops.MSTACK, Ops.MSELECT, Ops.CALL, Ops.FUNCTION, Ops.TUPLE, Ops.GET_TUPLE}
    | {Ops.PROGRAM, Ops.LINEAR, Ops.SOURCE, Ops.PROGRAM_BINARY, Ops.IF, Ops.ENDIF, Ops.UNIQUE}
    | {Ops.LUNIQUE, Ops.DEVICE, Ops.CONTIGUOUS_BACKWARD, Ops.CUSTOM_FUNCTION}
)
_ABOVE_LINEAR: Final = (_ABOVE_KERNEL - {Ops.IF, Ops.ENDIF}) | frozenset(
    {Ops.REDUCE, Ops.BUFFERIZE, Ops.UNROLL, Ops.CONTRACT, Ops.PTRCAT, Ops.CONTIGUOUS, Ops.PRECAST}
    | {Ops.BIND}
)
_FOREIGN: Final = {
    Level.TENSOR: _BELOW_TENSOR,
    Level.KERNEL: _ABOVE_KERNEL,
    Level.LOWERED: _ABOVE_KERNEL,
    Level.LINEAR: _ABOVE_LINEAR,
}
_ROOTS: Final = {Level.KERNEL: Ops.SINK, Level.LOWERED: Ops.SINK, Level.LINEAR: Ops.LINEAR}


def _root(graph: _Graph) -> _Found:
    expected = _ROOTS[graph.level]
    if graph.root.op is not expected:
        yield graph.root, Fault("root", "", f"{expected.name} as root", graph.root.op.name)


def _level_ops(graph: _Graph) -> _Found:
    foreign = _FOREIGN[graph.level] | graph.absent
    for node in graph.nodes:
        if node.op in foreign:
            why = (
                "no such op"
                if node.op in graph.absent
                else f"an op of the {graph.level.value} level"
            )
            yield node, Fault("level-ops", "", why, node.op.name)


def _statements(graph: _Graph) -> _Found:
    expected = "statements, one or more"
    if not graph.root.src:
        yield graph.root, Fault("statements", "sources", expected, "none")
    for source in graph.root.src:
        if source.dtype.kind != "v":
            got = f"{source.op.name} of {source.dtype}"
            yield graph.root, Fault("statements", "sources", expected, got)


def _local(graph: _Graph) -> _Found:
    for node in graph.nodes:
        fault = fault_of(node)
        if fault is not None:
            yield node, fault


# Ranges ------------------------------------------------------------------------------------------


def _all_closed(graph: _Graph) -> _Found:
    for axis in graph.root.open_ranges:
        yield axis, Fault("ranges-closed", "", "every range closed", f"{axis.arg[0]} left open")


_CLOSING: Final = {Ops.END: 1, Ops.REDUCE: 1, Ops.STORE: 2}  # where the ranges begin


def _closed_once(graph: _Graph) -> _Found:
    """END closes what is open below it: a range is closed by its STORE or by an END, never both.
    STORE and REDUCE may go through a loop that nothing in them counts, but none that is closed."""
    for node in graph.nodes:
        start = _CLOSING.get(node.op)
        if start is None:
            continue
        open_below = {axis for source in node.src[:start] for axis in source.open_ranges}
        for axis in node.src[start:]:
            if axis.op is not Ops.RANGE or axis in open_below:
                continue
            if node.op is Ops.END or any(axis in s.backward_slice() for s in node.src[:start]):
                got = f"{axis.arg[0]}, which is not"
                yield node, Fault("closed-once", "ranges", "ranges open in the computation", got)


def _one_axis_one_range(graph: _Graph) -> _Found:
    seen: dict[int, UOp] = {}
    for node in graph.nodes:
        if node.op is not Ops.RANGE:
            continue
        axis = node.arg[0]
        if not axis.renumbered:
            yield node, Fault("axis-id", "axis_id", "a renumbered id", str(axis))
        if node.arg[1] is AxisType.PLACEHOLDER:
            yield node, Fault("axis-id", "axis_type", "a loop of the kernel", "Placeholder")
        if seen.setdefault(axis.number, node) is not node:
            expected = "one RANGE for each axis number"
            yield node, Fault("axis-id", "axis_id", expected, f"two different of {axis}")


def _is_thread(axis: UOp) -> bool:
    return axis.op is Ops.RANGE and axis.arg[1] is AxisType.THREAD


def _one_extent(graph: _Graph, loops: list[UOp]) -> _Found:
    """The launcher hands out parts of one range of iterations."""
    for axis in loops[1:]:
        if axis.src[0] is not loops[0].src[0]:
            yield axis, Fault("threads", "end", "one extent for all THREAD loops", "another one")


def _threads_outside(graph: _Graph) -> _Found:
    """A loop that threads share out stands in no other one: every call would run that as a whole.
    No reduction and no buffer goes through it: a call sees a part of the iterations."""
    yield from _one_extent(graph, [node for node in graph.nodes if _is_thread(node)])
    for node in graph.nodes:
        axes = node.ended_ranges
        shared = [axis for axis in axes if _is_thread(axis)]
        if not shared:
            continue
        if node.op in (Ops.REDUCE, Ops.BUFFERIZE):
            yield node, Fault("threads", "ranges", "no THREAD loop", str(shared[0].arg[0]))
        first = min(axis.arg[0].number for axis in axes if axis.op is Ops.RANGE)
        if len(shared) > 1 or shared[0].arg[0].number != first:
            expected = "one THREAD loop, the outermost"
            got = ", ".join(f"{axis.arg[0]} {axis.arg[1]}" for axis in axes)
            yield node, Fault("threads", "ranges", expected, got)


def _threads_first(graph: _Graph) -> _Found:
    yield from _one_extent(graph, [node for node in graph.nodes if _is_thread(node)])
    depth = 0
    for node in graph.nodes:
        if depth and _is_thread(node):
            yield node, Fault("threads", "", "a THREAD loop outermost", "within another block")
        if node.op in (Ops.RANGE, Ops.IF):
            depth += 1
        elif node.op in (Ops.END, Ops.ENDIF):
            depth -= len(node.src[1:]) if node.op is Ops.END else 1


# Memory ------------------------------------------------------------------------------------------

_VIEWS: Final = frozenset({Ops.AFTER, Ops.BARRIER, Ops.NOOP, Ops.INDEX, Ops.POINTER_INDEX})
_KERNEL_MEMORY: Final = frozenset({Ops.PARAM, Ops.DEFINE_LOCAL, Ops.DEFINE_REG, Ops.BUFFERIZE})
_TENSOR_VIEWS: Final = GroupOp.Movement | {Ops.AFTER, Ops.BUFFER_VIEW, Ops.NOOP, Ops.INDEX}
_TENSOR_TARGETS: Final = frozenset(
    {Ops.BUFFER, Ops.PARAM, Ops.BUFFERIZE, Ops.CONTIGUOUS, Ops.MSTACK, Ops.MSELECT, Ops.MULTI}
)


def _memory(node: UOp, views: Collection[Ops]) -> UOp:
    while node.op in views:
        node = node.src[0]
    return node


def _store_target(graph: _Graph) -> _Found:
    for node in graph.nodes:
        if node.op is not Ops.STORE:
            continue
        target = node.src[0]
        if graph.level is Level.TENSOR:
            found = _memory(target, _TENSOR_VIEWS)
            if found.op not in _TENSOR_TARGETS:
                yield node, Fault("store-target", "index", "a view of a buffer", found.op.name)
            value = node.src[1].shape
            if target.op is not Ops.INDEX and value not in (target.shape, ()):
                shown = f"shape {target.shape}"
                yield node, Fault("store-shape", "value", shown, f"shape {value}")
        elif target.op not in (Ops.INDEX, Ops.POINTER_INDEX, Ops.PTRCAT):
            yield node, Fault("store-target", "index", "an INDEX", target.op.name)


def _index_buffer(graph: _Graph) -> _Found:
    for node in graph.nodes:
        if node.op is Ops.INDEX:
            found = _memory(node.src[0], _VIEWS)
            if found.op not in _KERNEL_MEMORY:
                yield node, Fault("index-buffer", "buffer", "memory of the kernel", found.op.name)


def _params(graph: _Graph) -> _Found:
    slots: dict[int, UOp] = {}
    names: dict[str, UOp] = {}
    for node in graph.nodes:
        if node.op is Ops.PARAM:
            if not node.dtype.is_ptr:
                yield node, Fault("params", "dtype", "a pointer within a kernel", str(node.dtype))
            if slots.setdefault(node.arg[0], node) is not node:
                got = f"two different of slot {node.arg[0]}"
                yield node, Fault("params", "slot", "one PARAM for each slot", got)
        elif node.op is Ops.DEFINE_VAR and names.setdefault(node.arg[0], node) is not node:
            got = f"two different of {node.arg[0]}"
            yield node, Fault("params", "name", "one DEFINE_VAR for each name", got)


def _sizes(node: UOp) -> tuple[int, ...] | None:
    """The dims that the indices of an INDEX must stay within; None when they are not known."""
    buffer: UOp = node.src[0]
    if buffer.shape is not None:
        return tuple(map(extent, buffer.shape))
    found = _memory(buffer, _VIEWS)
    if found.op is Ops.DEFINE_REG:
        return (found.arg[0],)
    return (found.arg[1],) if found.op is Ops.DEFINE_LOCAL else None


def _guarded(index: UOp) -> bool:
    """Whether an index is Invalid somewhere, which is a gate not yet moved to the INDEX."""
    if not index.has(Ops.WHERE):
        return False
    return any(isinstance(node.arg, InvalidType) for node in index.toposort())


def _outside(index: UOp, size: int, lanes: int) -> str | None:
    """The bounds of an index that may leave 0..size-1, None when it cannot."""
    for form in (index, index.simplify()):
        low, high = form.vmin, form.vmax
        if low is not None and high is not None and low >= 0 and high + lanes <= size:
            return None
    if index.has(Ops.DEFINE_VAR) and all(
        bound.simplify().vmin for bound in (index >= 0, index <= size - lanes)
    ):
        return None  # the end of a loop and its counter are known together
    return "unknown bounds" if index.vmin is None else f"{index.vmin}..{index.vmax}"


def _bounds(graph: _Graph) -> _Found:
    """Proved by the bounds of the index, or gated."""
    for node in graph.nodes:
        if node.op is not Ops.INDEX or node.arg:
            continue
        sizes = _sizes(node)
        indices = node.src[1:]
        if sizes is None or len(indices) > len(sizes) or any(map(_guarded, indices)):
            continue
        run = node.dtype.count if node.src[0].dtype.base.count == 1 else 1
        for place, (index, size) in enumerate(zip(indices, sizes, strict=False)):
            lanes = run if place == len(indices) - 1 and index.dtype.count == 1 else 1
            got = _outside(index, size, lanes)
            if got is not None:
                yield node, Fault("index-bounds", "indices", f"within 0..{size - 1} or a gate", got)


def _never_inside(graph: _Graph) -> _Found:
    """Where bounds are wide, only what is surely wrong is refused."""
    for node in graph.nodes:
        if node.op is not Ops.INDEX or node.arg or node in graph.in_if:
            continue
        sizes = _sizes(node)
        if sizes is None or len(node.src) != 2 or len(sizes) != 1:
            continue
        low, high = node.src[1].vmin, node.src[1].vmax
        if low is None or high is None or low > high:  # unknown, or in a loop that never runs
            continue
        if low >= sizes[0] or high < 0:
            expected = f"within 0..{sizes[0] - 1} or a gate"
            yield node, Fault("index-bounds", "indices", expected, f"{low}..{high}")


# LINEAR ------------------------------------------------------------------------------------------

_EVERYWHERE: Final = frozenset(
    op for op, spec in OPS.items() if spec.category is Category.DEFINITION
) | {Ops.VCONST, Ops.AFTER, Ops.INDEX, Ops.POINTER_INDEX, Ops.SPECIAL}


def _is_scoped(user: UOp, value: UOp) -> bool:
    """Whether a value exists only in the block that computes it."""
    if user.op in (Ops.END, Ops.AFTER) or value.op in _EVERYWHERE:
        return False
    return value.dtype.kind not in "vp"


def _sequence(graph: _Graph) -> _Found:
    """Definitions before uses and within their scope; blocks nested and closed."""
    blocks: list[UOp] = []
    home: dict[UOp, tuple[UOp, ...]] = {}
    for node in graph.nodes:
        if node in home:
            yield node, Fault("sequence", "", "each op once", "a repeated op")
        needed = node.src[:1] if node.op is Ops.IF else node.src
        for source in needed:
            where = home.get(source)
            if where is None:
                yield node, Fault("sequence", "src", "sources earlier in the list", source.op.name)
            elif _is_scoped(node, source) and tuple(blocks[: len(where)]) != where:
                got = f"{source.op.name} of a block that is closed"
                yield node, Fault("sequence", "src", "sources in scope", got)
        if node.op in (Ops.RANGE, Ops.IF):
            blocks.append(node)
        elif node.op is Ops.END:
            for _ in node.src[1:]:
                inner = blocks.pop() if blocks else None
                if inner is None or inner not in node.src[1:]:
                    got = "none" if inner is None else str(inner.arg and inner.arg[0])
                    yield node, Fault("nesting", "ranges", "the innermost open RANGE", got)
        elif node.op is Ops.ENDIF:
            inner = blocks.pop() if blocks else None
            if inner is not node.src[0]:
                got = "none" if inner is None else inner.op.name
                yield node, Fault("nesting", "if_op", "the innermost open IF", got)
        home[node] = tuple(blocks)
    for left in blocks:
        yield left, Fault("nesting", "", "every block closed", f"{left.op.name} left open")


def _concrete(graph: _Graph) -> _Found:
    for node in graph.nodes:
        if isinstance(node.arg, InvalidType):
            yield node, Fault("no-invalid", "value", "a number", "Invalid")
        elif node.dtype.scalar.kind == "x":
            yield node, Fault("no-index-dtype", "dtype", "a concrete int", str(node.dtype))


def _flat(graph: _Graph) -> _Found:
    for node in graph.nodes:
        if node.op is Ops.INDEX and len(node.src) != 2 + bool(node.arg):
            got = f"{len(node.src) - 1 - bool(node.arg)} indices"
            yield node, Fault("flat-index", "indices", "one flat index", got)


# The table ---------------------------------------------------------------------------------------

_ALL: Final = frozenset(Level)
_TENSOR, _PROVABLE, _LOWERED, _LINEAR = (frozenset({level}) for level in Level)
_KERNEL = _PROVABLE | _LOWERED

# fmt: off
RULES: Final = (
    GraphRule("root", _KERNEL | _LINEAR,
              "the root is a SINK, or a LINEAR", _root),
    GraphRule("level-ops", _ALL,
              "only ops of the level, and none that the stage removed", _level_ops),
    GraphRule("local", _ALL,
              "source counts, arguments, dtypes, operands (checks.py)", _local),
    GraphRule("statements", _KERNEL,
              "a kernel does something, and has no other results", _statements),
    GraphRule("ranges-closed", _TENSOR | _KERNEL,
              "no range is open at the root", _all_closed),
    GraphRule("closed-once", _TENSOR | _KERNEL,
              "END, STORE and REDUCE close no range a second time", _closed_once),
    GraphRule("axis-id", _KERNEL,
              "one RANGE for each axis number, renumbered, no placeholder", _one_axis_one_range),
    GraphRule("threads", _KERNEL,
              "a THREAD loop is the outermost of its statements, all have one extent",
              _threads_outside),
    GraphRule("threads", _LINEAR,
              "a THREAD loop stands in no other block, all have one extent", _threads_first),
    GraphRule("store-target", _ALL,
              "STORE writes to a view of memory, of its shape", _store_target),
    GraphRule("index-buffer", _KERNEL | _LINEAR,
              "INDEX selects from memory", _index_buffer),
    GraphRule("params", _KERNEL | _LINEAR,
              "one PARAM for each slot, a pointer; one DEFINE_VAR for each name", _params),
    GraphRule("index-bounds", _TENSOR | _PROVABLE,
              "INDEX is proved within its buffer, or gated", _bounds),
    GraphRule("index-bounds", _LOWERED | _LINEAR,
              "no INDEX is surely outside of its buffer", _never_inside),
    GraphRule("sequence", _LINEAR,
              "definitions before uses and in scope, blocks nested", _sequence),
    GraphRule("concrete", _LINEAR,
              "no Invalid and no index dtype", _concrete),
    GraphRule("flat-index", _LINEAR,
              "INDEX has one flat index", _flat),
)
"""Every rule, in the order they are checked."""
# fmt: on


def _is_kernel(node: UOp) -> bool:
    return node.op is Ops.SINK and node.arg is not None


def find_faults(root: UOp, level: Level, absent: Collection[Ops] = ()) -> _Found:
    """(node, fault) pairs, in order of the rules; `absent` are ops that must be gone. Where the
    fields of a node cannot be read, only local faults are found.

    Kernels that a tensor-level graph calls are checked at their own level.
    """
    if level is Level.LINEAR:
        nodes = list(root.src) if root.op is Ops.LINEAR else [root]
    elif level is Level.TENSOR:
        nodes = root.toposort(stop=_is_kernel)
    else:
        nodes = root.toposort()
    graph = _Graph(root, level, nodes, frozenset(absent))
    if level is Level.LINEAR:
        depth = 0
        for node in nodes:
            depth += (node.op is Ops.IF) - (node.op is Ops.ENDIF)
            if depth:
                graph.in_if.add(node)
    readable = all(map(is_laid_out, nodes))
    for rule in RULES:
        if level in rule.levels and (readable or rule.find is _local):
            yield from rule.find(graph)
    if level is Level.TENSOR:
        for node in nodes:
            if _is_kernel(node):
                yield from find_faults(node, Level.KERNEL, absent)


def verify(
    root: UOp, level: Level, *, stage: str | None = None, absent: Collection[Ops] = ()
) -> UOp:
    """Return `root`; InvalidGraphError naming node, stage and rule for the first broken rule."""
    error: InvalidGraphError | None = None
    for node, fault in find_faults(root, level, absent):
        error = fault_error(node, fault, stage)
        break
    if error is not None:
        raise error
    return root


def check_stage(root: UOp, level: Level, stage: str, absent: Collection[Ops] = ()) -> UOp:
    """`verify` when MOROK_VERIFY asks for it: what a pipeline calls after each stage."""
    return verify(root, level, stage=stage, absent=absent) if config.get().verify else root
