"""`python -m bench roundtrip`: text -> graph -> text is the identity, for every distinct kernel of
ResNet50 (a forward pass) and of a training step of GPT, at every stage.

The graphs are those of the `compile` benchmark: the tensor graph, its steps on the way to kernels,
the CALLs of the schedule, and the stages of code generation up to the LINEAR.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

import morok as mk
from bench import _compile_models as compiled
from bench import models
from bench._compile_morok import captured
from morok import engine
from morok.codegen import Stage, run_pipeline, watch_stages
from morok.ir import UOp, parse
from morok.optimizer import apply_opts
from morok.rangeify import run_kernel_split_pipeline, watch_range_stages
from morok.runtime import Device


@dataclass
class Trip:
    """What came back from its text, counted by stage, and what did not."""

    kernels: int = 0
    characters: int = 0
    graphs: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def take(self, stage: str, graph: UOp) -> None:
        """One graph to text and back: the same node, which has the same text."""
        text = graph.tree()
        self.graphs[stage] += 1
        self.characters += len(text)
        if parse(text) is not graph:
            self.lost.append(f"{stage}: {text.splitlines()[0]}")


def round_trip(roots: Sequence[UOp]) -> Trip:
    """Schedules and lowers what computes `roots`, watching every stage of each distinct kernel."""
    trip = Trip()
    renderer = Device["CPU"].renderer
    sink = engine.sink_of(roots)
    trip.take("tensors", sink)
    normal = engine.Normal(sink).graph
    trip.take("normalised", normal)
    with watch_range_stages(trip.take):
        schedule = run_kernel_split_pipeline(normal)
    for call in schedule.calls:
        trip.take("schedule", call)
    distinct = dict.fromkeys(call.src[0] for call in schedule.calls)
    trip.kernels = len(distinct)

    def take(stage: Stage, graph: UOp) -> None:
        trip.take(f"{stage.number} {stage.name}", graph)

    for kernel in distinct:
        optimised = apply_opts(kernel, renderer)
        trip.take("optimised", optimised)
        with watch_stages(take):
            run_pipeline(optimised, renderer)
    return trip


def step_of(model: models.ResNet | models.GPT) -> list[UOp]:
    """The roots of a training step of a model of `bench.models`."""
    batch = model.make_batch(0)
    optimizer = mk.optim.AdamW(mk.nn.state.get_parameters(model))
    with captured() as roots:
        model.loss(batch).backward()
        optimizer.step()
    return roots


def resnet50() -> list[UOp]:
    net = compiled.ResNet50(mk.Tensor)
    with mk.no_grad():
        return [net(mk.Tensor.empty(64, 3, 224, 224)).uop]


def gpt() -> list[UOp]:
    network, shape, _ = compiled.TRAINED["gpt step"]
    net = network(mk.Tensor)
    labels = mk.Tensor(np.zeros(compiled.label_count(shape), np.int32))
    optimizer = mk.optim.AdamW(net.params)
    with captured() as roots:
        compiled.loss_of(net, mk.Tensor, shape, labels).backward()
        optimizer.step()
    return roots


MODELS: dict[str, Callable[[], list[UOp]]] = {
    "resnet50 forward": resnet50,
    "gpt step": gpt,
    "small resnet50 step": lambda: step_of(models.ResNet50(**models.ResNet50.small)),
    "small gpt step": lambda: step_of(models.GPT(**models.GPT.small)),
}


def main(argv: Sequence[str]) -> int:
    """1 if a graph did not come back."""
    parser = argparse.ArgumentParser(prog="python -m bench roundtrip", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default=",".join(MODELS), help="comma separated models")
    code = 0
    for name in parser.parse_args(argv).only.split(","):
        began = perf_counter()
        trip = round_trip(MODELS[name]())
        print(
            f"{name}: {trip.kernels} kernels, {trip.graphs.total()} graphs at "
            f"{len(trip.graphs)} stages, {trip.characters / 1e6:.1f} MB of text, "
            f"{len(trip.lost)} lost, {perf_counter() - began:.0f} s",
            flush=True,
        )
        for line in trip.lost[:20]:
            print("  lost:", line)
        code |= bool(trip.lost)
    return code
