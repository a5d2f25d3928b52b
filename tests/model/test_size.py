"""Counts of parameters and arithmetic against real modules, counted products and published totals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from stoker.model import Decoder, flops_per_token, parameter_count
from stoker.recipe import Model
from stoker.recipe.presets import PRESETS
from tests.model.shapes import LENGTH, SHAPES, VOCABULARY, config_of, draw_tokens, model_of

PUBLISHED_BILLIONS = {
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.6,
    "llama-3-405b": 405.9,
    "qwen-3-0.6b": 0.6,
    "qwen-3-1.7b": 1.7,
    "qwen-3-4b": 4.0,
    "qwen-3-8b": 8.2,
    "qwen-3-14b": 14.8,
    "qwen-3-32b": 32.8,
    "gpt-3-125m": 0.125,
    "gpt-3-350m": 0.356,
    "gpt-3-760m": 0.760,
    "gpt-3-1.3b": 1.3,
    "gpt-3-2.7b": 2.65,
    "gpt-3-6.7b": 6.7,
    "gpt-3-13b": 12.85,
    "gpt-3-175b": 174.6,
    "mixtral-8x7b": 46.7,
    "qwen-3-30b-a3b": 30.5,
    "qwen-3-235b-a22b": 235.0,
    "deepseek-v2-lite": 15.7,
    "deepseek-v3": 671.0,
}
PUBLISHED_ACTIVE_BILLIONS = {
    "mixtral-8x7b": 12.9,
    "qwen-3-30b-a3b": 3.3,
    "qwen-3-235b-a22b": 22.0,
    "deepseek-v2-lite": 2.4,
    "deepseek-v3": 37.0,
}
WITHOUT_LOOKED_UP = ("deepseek-v2-lite", "deepseek-v3")
"""Whose publishers leave the embedding out of what is active."""


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_equal_those_of_the_module(shape: str) -> None:
    config = config_of(shape)
    model = Decoder(config, VOCABULARY, LENGTH)
    count = parameter_count(config, VOCABULARY, LENGTH)
    assert count.total == sum(p.numel() for p in model.parameters())
    assert count.vector == sum(p.numel() for p in model.parameters() if p.dim() == 1)
    assert count.total == count.embedding + count.matrix + count.vector


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_and_have_their_published_size(name: str) -> None:
    config, vocabulary = Model(preset=name), PRESETS[name].published_vocabulary
    with torch.device("meta"):
        model = Decoder(config, vocabulary, 2048)
    total = sum(p.numel() for p in model.parameters())
    assert total == parameter_count(config, vocabulary, 2048).total
    if name in PUBLISHED_BILLIONS:
        published = PUBLISHED_BILLIONS[name]
        # Published totals leave the modules for further tokens out.
        total = parameter_count(config.model_copy(update={"mtp_depth": 0}), vocabulary, 2048).total
        digits = len(str(published).replace(".", "").lstrip("0"))
        assert total / 1e9 == pytest.approx(published, rel=0.5 * 10 ** (1 - digits))
    else:
        count = parameter_count(config, vocabulary, 2048)
        for size, counted in zip(name.split("-"), (count.total, count.active), strict=False):
            wanted = float(size[:-1].removeprefix("a")) * (1e9 if size.endswith("b") else 1e6)
            assert counted == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if "moe" in preset.shape])
def test_presets_with_experts_have_their_published_active_size(name: str) -> None:
    config = Model(preset=name, mtp_depth=0)
    count = parameter_count(config, PRESETS[name].published_vocabulary, 2048)
    assert count.active < count.total
    if name in PUBLISHED_BILLIONS:
        active = count.active - (count.embedding if name in WITHOUT_LOOKED_UP else 0)
        assert active / 1e9 == pytest.approx(PUBLISHED_ACTIVE_BILLIONS[name], rel=0.025)
        forward = flops_per_token(config, PRESETS[name].published_vocabulary, 2048).matrix / 3
        assert forward == 2 * (count.active - count.embedding - count.vector)


def test_every_published_preset_is_checked() -> None:
    published = {name for name, preset in PRESETS.items() if not preset.source.startswith("Stoker:")}
    assert published == set(PUBLISHED_BILLIONS)


def test_a_value_of_a_nested_section_is_put_over_the_presets() -> None:
    config = Model.model_validate({"preset": "deepseek-v3", "moe": {"experts": 64, "capacity_factor": 2.0}})
    assert config.moe is not None
    assert (config.moe.experts, config.moe.capacity_factor, config.moe.weight_scale) == (64, 2.0, 2.5)
    assert Model.model_validate({"preset": "deepseek-v3", "moe": None}).moe is None


@pytest.mark.parametrize(
    "shape", ["llama", "grouped", "gpt", "geglu-both", "window", "mixtral", "deepseek-v3", "mtp", "mtp-experts"]
)
def test_arithmetic_equals_the_counted_products(shape: str) -> None:
    """Soft-capped attention is computed in full, so that its products can be counted."""
    config = config_of(shape, attention_softcap=3.0, sliding_window=None)
    model = model_of(config)
    tokens = draw_tokens(2, LENGTH)

    def added(total: Any, a: Any, b: Any, out_val: Any = None, **_: Any) -> int:
        return 2 * math.prod(a.shape) * b.shape[1]

    added._get_raw = True  # type: ignore[attr-defined]  # shapes are not enough for FlopCounterMode's own
    in_place = {torch.ops.aten.addmm_: added}
    with FlopCounterMode(display=False, custom_mapping=in_place) as counter:
        model(tokens, tokens).loss_sum.backward()
    assert flops_per_token(config, VOCABULARY, LENGTH).full * tokens.numel() == counter.get_total_flops()


@pytest.mark.parametrize("window", [None, 1, 5, 100])
def test_causal_arithmetic_counts_the_pairs_that_are_seen(window: int | None) -> None:
    config = config_of("llama", sliding_window=window)
    flops = flops_per_token(config, VOCABULARY, LENGTH)
    pairs = sum(min(i + 1, window or LENGTH) for i in range(LENGTH))
    each = 12 * config.heads * config.size_of_head * config.layers
    assert flops.attention_full == each * LENGTH
    assert flops.attention_causal == pytest.approx(each * pairs / LENGTH, abs=1)
