"""Which layouts are drawn."""

from __future__ import annotations

import pytest

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.layout.validity import problems
from stoker.recipe import MixtureOfExperts, Model
from stoker.verification import Subject
from stoker.verification.drawing import draw, features, parse

DENSE = Model(hidden_size=16, layers=4, heads=4, kv_heads=2, ffn_hidden_size=24)
MIXED = DENSE.model_copy(update={"moe": MixtureOfExperts(experts=4, experts_per_token=2)})


@pytest.mark.parametrize("model", [DENSE, MIXED], ids=["dense", "experts"])
@pytest.mark.parametrize("seed", range(5))
def test_24_layouts_cover_every_pair_and_choice_that_is_possible(model: Model, seed: int) -> None:
    subject = Subject(model)
    drawn = draw(subject, 24, ranks=8, seed=seed)
    everything = frozenset().union(*(features(one) for one in draw(subject, 10**6, ranks=8, seed=seed)))
    assert frozenset().union(*map(features, drawn)) == everything
    assert {("pp", "zbv"), ("cp", "ulysses"), ("dp_shard", "1"), ("cp", "tp")} <= everything
    if model is MIXED:
        assert {("tp", "ep"), ("ep", "whole"), ("pp", "ep")} <= everything


def test_draws_are_different_possible_and_the_same_again() -> None:
    subject = Subject(MIXED)
    drawn = draw(subject, 60, ranks=8, seed=3)
    assert len(set(drawn)) == 60
    assert all(2 <= one.world_size <= 8 and not problems(one, subject.shape) for one in drawn)
    assert draw(subject, 60, ranks=8, seed=3) == drawn
    assert draw(subject, 60, ranks=8, seed=4) != drawn


def test_a_layout_is_written_as_names_and_values() -> None:
    assert parse("tp=2, pp=2,pipeline_schedule=zbv,expert_tp=false,zero_stage=1") == Layout(
        tp=2, pp=2, pipeline_schedule="zbv", expert_tp=False, zero_stage=1
    )
    for text, told in (("tp", "expected NAME=VALUE"), ("tq=2", "got 'tq=2'"), ("tp=0", "tp: "), ("tp=two", "tp: ")):
        with pytest.raises(BadInput, match=told):
            parse(text)
