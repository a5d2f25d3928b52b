"""A cache of keys and values changes no logit, whatever the architecture and however sequences grow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stoker.model import CachedLogits, Decoder, generate
from stoker.model.attention import attend
from tests.model.shapes import LENGTH, SHAPES, config_of, draw_tokens, model_of


def plain(model: Decoder, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        logits = model(tokens, last_only=True)
    assert isinstance(logits, Tensor)
    return logits[:, -1]


def counted(model: Decoder) -> list[int]:
    """The numbers of tokens that later passes through `model` embed."""
    passed: list[int] = []
    assert model.embedding is not None
    model.embedding.register_forward_hook(lambda module, given, found: passed.append(given[0].shape[1]))
    return passed


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_whole_sequence(shape: str) -> None:
    model = model_of(config_of(shape)).eval()
    tokens, cached = draw_tokens(2, LENGTH), CachedLogits(model)
    passed = counted(model)
    for length in (3, 4, 5, 9, 10, LENGTH):
        torch.testing.assert_close(cached(tokens[:, :length]), plain(model, tokens[:, :length]))
    assert passed[::2] == [3, 1, 1, 4, 1, LENGTH - 10], "only new tokens are computed"


@given(st.sampled_from(sorted(SHAPES)), st.lists(st.tuples(st.integers(0, 2), st.integers(1, LENGTH)), max_size=6))
@settings(max_examples=30)
def test_sequences_may_come_in_any_order(shape: str, asked: list[tuple[int, int]]) -> None:
    model = model_of(config_of(shape)).eval()
    cached, sequences = CachedLogits(model), [draw_tokens(1 + seed, LENGTH, seed=seed) for seed in range(3)]
    for number, length in asked:
        tokens = sequences[number][:, :length]
        torch.testing.assert_close(cached(tokens), plain(model, tokens))


@pytest.mark.parametrize("shape", ["llama", "gpt", "latent", "mixtral", "alibi-window"])
def test_text_is_the_same_with_a_cache_and_goes_on_beyond_the_sequence_length(shape: str) -> None:
    model = model_of(config_of(shape)).eval()
    texts = [
        generate(logits, [3, 1, 4], LENGTH + 6, LENGTH, temperature=2.0, seed=5)
        for logits in (lambda seen: plain(model, seen), CachedLogits(model))
    ]
    assert texts[0] == texts[1]


def test_nothing_is_kept_for_experts_of_bounded_capacity() -> None:
    moe = {"experts": 4, "experts_per_token": 1, "capacity_factor": 0.5}
    model = model_of(config_of("switch", moe=moe)).eval()
    tokens, cached, passed = draw_tokens(2, LENGTH), CachedLogits(model), counted(model)
    for length in (6, 7, LENGTH):
        torch.testing.assert_close(cached(tokens[:, :length]), plain(model, tokens[:, :length]))
    assert passed[::2] == [6, 7, LENGTH]


def test_the_model_itself_stays_as_it_was_even_after_an_error() -> None:
    model = model_of(config_of("gpt")).eval()
    rule, cached = model.mask_rule, CachedLogits(model)
    with pytest.raises(ValueError, match="learned positions end"):
        cached(draw_tokens(1, LENGTH + 1))
    assert model.mask_rule is rule
    assert all(block.attention.attend is attend for block in model.blocks.values())
    tokens = draw_tokens(1, 5)
    torch.testing.assert_close(cached(tokens), plain(model, tokens))


def test_a_part_of_a_model_and_one_in_training_are_refused() -> None:
    with pytest.raises(ValueError, match="whole model in evaluation mode"):
        CachedLogits(model_of(config_of("llama")))
    part = model_of(config_of("llama")).eval()
    part.keep(0, 1)
    with pytest.raises(ValueError, match="whole model in evaluation mode"):
        CachedLogits(part)
