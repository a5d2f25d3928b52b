"""Whether `verify` finds nothing where nothing is wrong, and finds what is wrong where it is."""

from __future__ import annotations

import pytest

from stoker.layout import Layout
from stoker.recipe import Adafactor, AdamW, Model, Training
from stoker.verification import Subject, verify
from tests.verification import plants

MODEL = Model(hidden_size=16, layers=2, heads=4, kv_heads=2, ffn_hidden_size=24)
TP = Layout(tp=2)


@pytest.mark.slow
def test_a_fault_is_named_by_the_first_module_that_shows_it() -> None:
    (sound,) = verify(MODEL, [TP], steps=2)
    assert sound.agrees
    assert set(sound.worst["fp64"]) >= {"loss", "gradient", "norm", "weight", "state", "evaluation", "checkpoint"}
    (loud,) = verify(MODEL, [TP], steps=1, plant=(plants.louder_output, (1.0 + 1e-9,)))
    assert loud.first is not None
    assert (loud.first.kind, loud.first.name) == ("activation", "blocks.0.attention.output")
    assert 4e-10 < loud.first.error < 1.1e-9
    (unsummed,) = verify(MODEL, [TP], steps=1, plant=plants.unsummed_gather)
    assert unsummed.first is not None
    assert (unsummed.first.kind, unsummed.first.name) == ("activation gradient", "norm")


@pytest.mark.slow
def test_a_fault_that_no_module_shows_is_named_by_parameter_or_update() -> None:
    (partial,) = verify(MODEL, [TP], steps=1, plant=plants.unsummed_partial_gradients)
    assert partial.first is not None
    assert (partial.first.kind, partial.first.name) == ("gradient", "blocks.0.attention_norm.weight")
    (forgotten,) = verify(MODEL, [TP], steps=2, plant=(plants.forgotten_update, (1,)))
    assert forgotten.first is not None
    assert (forgotten.first.kind, forgotten.first.step, forgotten.first.rank) == ("weight", 2, 1)


@pytest.mark.slow
def test_a_rank_that_dies_or_hangs_fails_its_layout_and_no_other() -> None:
    (dead,) = verify(MODEL, [TP], steps=1, plant=(plants.death, (1,)), timeout_seconds=10)
    assert not dead.agrees
    assert "rank 1" in (dead.error or "")
    late, _ = verify(MODEL, [TP, Layout(dp_shard=2)], steps=1, plant=(plants.stall, (20.0,)), timeout_seconds=5)
    assert not late.agrees


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [AdamW(), Adafactor(name="adafactor")], ids=lambda one: one.name)
def test_a_rank_without_heads_takes_part_in_updates_and_checkpoints(optimizer: AdamW | Adafactor) -> None:
    training = Training(steps=1, sequence_length=22, global_batch_size=24, optimizer=optimizer)
    subject = Subject(MODEL.model_copy(update={"kv_heads": 4}), training)
    (result,) = verify(subject, [Layout(tp=3)], steps=1)
    assert result.agrees, result
