"""How large models are made small."""

from __future__ import annotations

from stoker.layout import Layout
from stoker.recipe import Model, Training
from stoker.verification import Subject
from stoker.verification.shrinking import smaller

TRAINING = Training(steps=1, sequence_length=4099, global_batch_size=8)
LARGE = Model(
    hidden_size=4096,
    layers=61,
    heads=64,
    kv_heads=8,
    ffn_hidden_size=14339,
    moe={
        "experts": 256,
        "experts_per_token": 8,
        "expert_ffn_hidden_size": 2048,
        "groups": 8,
        "groups_per_token": 4,
        "first_dense_layers": 3,
    },
)


def test_what_is_small_stays_as_it_is() -> None:
    model = Model(hidden_size=16, layers=4, heads=5, kv_heads=1, head_size=6, ffn_hidden_size=24)
    subject = Subject(model)
    assert smaller(subject, [Layout(tp=2, pp=2)]).model == model
    assert smaller(subject, [Layout(tp=2, pp=2)]).smaller == ()


def test_what_divides_unevenly_still_does() -> None:
    layout = Layout(tp=4, pp=2, cp=2, dp_shard=4, ep=4)
    subject = Subject(LARGE, TRAINING, vocabulary_size=128_257)
    small = smaller(subject, [layout])
    small.require_possible(layout)
    model, moe = small.model, small.model.moe
    assert moe is not None
    assert model.layers <= 8
    assert model.layers % 2 == LARGE.layers % 2
    assert model.ffn_hidden_size % 4 == LARGE.ffn_hidden_size % 4
    assert small.training.sequence_length % 16 == TRAINING.sequence_length % 16
    assert small.vocabulary_size % 4 == 128_257 % 4
    assert model.key_value_heads % 4 == 0
    assert model.heads > model.key_value_heads
    assert moe.experts % 4 == moe.experts % moe.groups == 0
    assert model.hidden_size <= 64
    assert any(one.startswith("layers 61 → ") for one in small.smaller)
    assert any(one.startswith("moe.experts 256 → ") for one in small.smaller)
