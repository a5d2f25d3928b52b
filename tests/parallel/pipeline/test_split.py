"""Layers become stages of about equal cost."""

from __future__ import annotations

import pytest
import torch

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel.pipeline import stage_layers, stages_of_rank
from tests.parallel.pipeline.pipelines import LENGTH, VOCABULARY, config_of

LAYOUTS = [
    Layout(),
    Layout(pp=2),
    Layout(pp=3, pipeline_schedule="gpipe"),
    Layout(pp=4),
    Layout(pp=2, pipeline_schedule="zbv"),
    Layout(pp=2, pipeline_schedule="interleaved_1f1b"),
]


@pytest.mark.parametrize("layers", range(3, 10))
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layer_is_in_one_stage(layout: Layout, layers: int) -> None:
    config = config_of(layers=layers)
    if layers < layout.stages:
        with pytest.raises(BadInput, match="stages"):
            stage_layers(config, VOCABULARY, LENGTH, layout)
        return
    split = stage_layers(config, VOCABULARY, LENGTH, layout)
    assert len(split) == layout.stages
    assert [layer for stage in split for layer in stage] == list(range(layers))
    with torch.device("meta"):
        decoder = Decoder(config, VOCABULARY, LENGTH)
    names: list[str] = []
    for rank in range(layout.world_size):
        for stage, part in stages_of_rank(decoder, layout, rank).items():
            assert list(part.blocks) == [str(layer) for layer in split[stage]]
            names += [name for name, _ in part.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in decoder.named_parameters())


def test_a_large_vocabulary_takes_layers_from_the_last_stage() -> None:
    config = config_of(layers=8)
    small = stage_layers(config, 10, LENGTH, Layout(pp=2))
    large = stage_layers(config, 1000, LENGTH, Layout(pp=2))
    assert len(small[-1]) == 4
    assert len(large[-1]) < 4


def test_dense_layers_weigh_less_than_those_with_experts() -> None:
    moe = {"experts": 8, "experts_per_token": 4, "expert_ffn_hidden_size": 100, "first_dense_layers": 4}
    split = stage_layers(config_of(layers=8, moe=moe), 10, LENGTH, Layout(pp=2))
    assert len(split[0]) > len(split[1])
