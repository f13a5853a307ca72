"""The stages from an optimised kernel to its LINEAR, in order, as a list one can read.

`MOROK_DEBUG`, the verifier, the viewer and the benchmarks look at the pipeline here: `run` checks
the graph after every stage when MOROK_VERIFY asks for it, and calls the watchers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from morok import config
from morok._core import toposort
from morok.codegen.branches import branch_around, skip_sums
from morok.codegen.decompositions import decompose
from morok.codegen.devectorizer import add_loads, devectorize, remove_reduce
from morok.codegen.expander import add_local_buffers, expander, post_opt_symbolic
from morok.codegen.linearize import add_ifs, control_flow, final_rewrite, linearize
from morok.codegen.lower_index import lower_index_dtype, post_index_symbolic
from morok.errors import InvalidGraphError
from morok.ir import Level, Ops, Renderer, UOp, check_stage, graph_rewrite

__all__ = ["PIPELINE", "Stage", "run_pipeline", "watch_stages"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A row of the pipeline: a function from graph to graph, told what the target can do."""

    number: int
    name: str
    run: Callable[[UOp, Renderer], UOp]
    level: Level = Level.KERNEL  # of the result
    absent: frozenset[Ops] = frozenset()  # ops that must be gone from it


def _pre_matcher(sink: UOp, renderer: Renderer) -> UOp:
    """Stage 17. The target's own rules."""
    rules = renderer.pre_matcher
    return sink if rules is None else graph_rewrite(sink, rules, name="pre-matcher")


def _decompose(sink: UOp, renderer: Renderer) -> UOp:
    """Stage 18, and again the widths of the target: some functions compute in wider dtypes."""
    capability = renderer.capability
    done = decompose(sink, capability)
    if done is sink:
        return sink
    vectors = {node.dtype for node in toposort(done) if node.dtype.count > 1}
    fits = all(v.count in capability.widths(v.scalar) for v in vectors if v.kind != "b")
    return done if fits else devectorize(done, capability)


def _linearize(sink: UOp, renderer: Renderer) -> UOp:
    """Stage 21, after branches around rare arms and loops around sums that are left out, whose IFs
    and ends exist in graphs only in between."""
    return linearize(branch_around(skip_sums(sink), renderer.capability))


_EXPANDED = frozenset({Ops.UNROLL, Ops.CONTRACT})
_LOCAL = _EXPANDED | {Ops.BUFFERIZE}
_REDUCED = _LOCAL | {Ops.REDUCE}

PIPELINE = (
    Stage(8, "post-opt symbolic", lambda s, r: post_opt_symbolic(s)),
    Stage(9, "expander", lambda s, r: expander(s, r.capability), absent=_EXPANDED),
    Stage(10, "local buffers", lambda s, r: add_local_buffers(s), absent=_LOCAL),
    Stage(11, "remove reduce", lambda s, r: remove_reduce(s), absent=_REDUCED),
    Stage(13, "add loads", lambda s, r: add_loads(s), absent=_REDUCED),
    Stage(14, "devectorize", lambda s, r: devectorize(s, r.capability), absent=_REDUCED),
    Stage(15, "lower index dtype", lambda s, r: lower_index_dtype(s), absent=_REDUCED),
    Stage(16, "post-index symbolic", lambda s, r: post_index_symbolic(s), absent=_REDUCED),
    Stage(17, "pre-matcher", _pre_matcher, absent=_REDUCED),
    Stage(18, "decompositions", _decompose, Level.LOWERED, _REDUCED),
    Stage(
        19, "final rewrite", lambda s, r: final_rewrite(s, r.capability), Level.LOWERED, _REDUCED
    ),
    Stage(20, "control flow", lambda s, r: control_flow(s), Level.LOWERED, _REDUCED),
    Stage(21, "linearize", _linearize, Level.LINEAR),
    Stage(22, "if/endif", lambda s, r: add_ifs(s, r.capability), Level.LINEAR),
)
"""Stages 8 to 22. Stage 12 gives ranges to work-items: no target here has any."""

Watcher = Callable[[Stage, UOp], None]
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("morok_stage_watchers", default=())


@contextmanager
def watch_stages(watcher: Watcher) -> Iterator[None]:
    """Calls `watcher(stage, graph)` after every stage that runs in the block, in this thread."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def run_pipeline(sink: UOp, renderer: Renderer) -> UOp:
    """The LINEAR of a kernel. InvalidGraphError names the stage at fault."""
    watchers = _watchers.get()
    verbose = config.get().debug >= 4
    for stage in PIPELINE:
        try:
            sink = stage.run(sink, renderer)
        except InvalidGraphError as error:
            error.stage = error.stage or stage.name
            raise
        check_stage(sink, stage.level, stage.name, stage.absent)
        for watcher in watchers:
            watcher(stage, sink)
        if verbose:
            print(f"-- stage {stage.number}, {stage.name}\n{sink.tree()}", file=sys.stderr)
    return sink
