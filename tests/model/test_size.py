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
}


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
        digits = len(str(published).replace(".", "").lstrip("0"))
        assert total / 1e9 == pytest.approx(published, rel=0.5 * 10 ** (1 - digits))
    else:
        size = float(name[:-1]) * (1e9 if name.endswith("b") else 1e6)
        assert total == pytest.approx(size, rel=0.15)


def test_every_published_preset_is_checked() -> None:
    assert {name for name in PRESETS if "-" in name} == set(PUBLISHED_BILLIONS)


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
