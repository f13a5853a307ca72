"""Text and back, at every stage, of every kernel of real models. `python -m bench roundtrip` does
the same for a whole training step of each."""

from __future__ import annotations

import pytest

from bench.roundtrip import MODELS, round_trip
from morok import config
from morok.codegen import PIPELINE
from morok.rangeify.kernel import RANGE_STAGES


@pytest.mark.parametrize("name", ["resnet50 forward", "small gpt step"])
def test_every_graph_of_a_model_comes_back_from_its_text(name: str) -> None:
    with config.override(verify=False):  # other tests verify the stages
        trip = round_trip(MODELS[name]())
    assert trip.lost == []
    assert trip.kernels >= 20
    for stage in (f"{stage.number} {stage.name}" for stage in PIPELINE):
        assert trip.graphs[stage] == trip.kernels
    for stage, _ in RANGE_STAGES:
        assert trip.graphs[stage] >= trip.kernels
    assert {"tensors", "normalised", "early movement", "ranges", "schedule", "optimised"} <= set(
        trip.graphs
    )
