from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.model import Decoder, TokenLosses, initialise
from stoker.model.position import alibi_slopes
from stoker.recipe import Model
from tests.model.plain_decoder import cross_entropies, document_logits
from tests.model.shapes import LENGTH, SHAPES, VOCABULARY, config_of, draw_tokens, model_of, pack


def relative_error(got: torch.Tensor, wanted: torch.Tensor, floor: float = 0.0) -> float:
    """Norm of the difference over that of `wanted`, or over `floor` where that is larger."""
    return float((got - wanted).detach().norm()) / max(float(wanted.detach().norm()), floor)


def norm_of(gradients: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_the_plain_formulation(shape: str) -> None:
    config = config_of(shape)
    model = model_of(config)
    tokens = draw_tokens(2, LENGTH)
    logits = model(tokens)
    for row in range(2):
        wanted = document_logits(model.state_dict(), config, tokens[row].tolist())
        assert relative_error(logits[row], wanted) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients_equal_the_plain_formulation(shape: str) -> None:
    config = config_of(shape, z_loss=0.01, mtp_depth=0)
    if config.moe is not None:  # of whole sequences; see test_mixture_of_experts.py
        config = config.model_copy(
            update={"moe": config.moe.model_copy(update={"auxiliary_loss": 0.0, "z_loss": 0.0})}
        )
    model = model_of(config)
    lengths = [[5, 1, 10], [16]]
    positions, documents = pack(lengths)
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    targets[0, 5] = -100
    losses = model(tokens, targets, positions, documents, loss_scale=3.0, chunk=7)
    losses.loss_sum.backward()

    state = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    state |= dict(model.named_buffers())
    plain, total = [], torch.zeros((), dtype=torch.float64)
    for row, sizes in enumerate(lengths):
        start = 0
        for size in sizes:
            logits = document_logits(state, config, tokens[row, start : start + size].tolist())
            wanted = targets[row, start : start + size]
            valid = (wanted != -100).double()
            entropies = cross_entropies(logits, wanted.clamp(min=0).tolist()) * valid
            plain.append(entropies)
            total = total + 3.0 * (entropies + 0.01 * logits.logsumexp(-1) ** 2 * valid).sum()
            start += size
    total.backward()

    assert losses.loss_sum.item() == pytest.approx(total.item(), rel=1e-12)
    assert torch.allclose(losses.token_losses.flatten().double(), torch.cat(plain).detach(), atol=1e-5)
    # A key bias without rotation has no influence: its gradient is rounding alone, hence the floor.
    floor = 1e-4 * norm_of(tensor.grad for tensor in state.values() if tensor.grad is not None)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert relative_error(parameter.grad, state[name].grad, floor) < 1e-10, name


@given(st.data())
@settings(max_examples=25)
def test_any_drawn_architecture_equals_the_plain_formulation(data: st.DataObject) -> None:
    one_of = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    groups = one_of(1, 2, 3)
    config = Model(
        hidden_size=one_of(6, 8),
        layers=one_of(1, 2),
        heads=groups * one_of(1, 2),
        kv_heads=groups,
        head_size=one_of(2, 4),
        ffn_hidden_size=one_of(5, 8),
        activation=one_of("swiglu", "geglu", "gelu"),
        norm=one_of("rms", "layer"),
        norm_position=one_of("pre", "post", "both"),
        qk_norm=one_of("none", "head", "full"),
        position=one_of("rope", "alibi", "learned"),
        sliding_window=one_of(None, 1, 3),
        attention_bias=one_of(True, False),
        attention_output_bias=one_of(True, False),
        ffn_bias=one_of(True, False),
        attention_softcap=one_of(None, 2.0),
        logit_softcap=one_of(None, 2.0),
        tie_embeddings=one_of(True, False),
    )
    model = model_of(config)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    positions, documents = pack([sizes])
    tokens = draw_tokens(1, sum(sizes))
    logits = model(tokens, None, positions[:, : tokens.shape[1]], documents)[0].split(sizes)
    for part, of_document in zip(tokens[0].split(sizes), logits, strict=True):
        wanted = document_logits(model.state_dict(), config, part.tolist())
        assert relative_error(of_document, wanted) < 1e-11


def test_uniform_logits_over_eight_tokens_cost_log_8() -> None:
    config = config_of("llama")
    model = Decoder(config, 8, LENGTH).double()
    torch.nn.init.zeros_(model.head.weight)
    tokens = draw_tokens(1, LENGTH) % 8
    losses = model(tokens, tokens)
    assert losses.token_losses.tolist()[0] == pytest.approx([math.log(8)] * LENGTH, rel=1e-6)
    assert losses.loss_sum.item() == pytest.approx(LENGTH * math.log(8), rel=1e-12)


def test_slopes_of_alibi_are_the_published_ones() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    # Of 12 heads: those of 8, then every other one of 16 (2^-0.5, 2^-1.5, …).
    assert alibi_slopes(12) == [2.0**-i for i in range(1, 9)] + [2.0 ** -(i + 0.5) for i in range(4)]


@pytest.mark.parametrize("shape", ["window", "alibi-window", "window-softcap"])
def test_a_window_as_long_as_the_sequence_changes_nothing(shape: str) -> None:
    whole, windowed = config_of(shape, sliding_window=None), config_of(shape, sliding_window=LENGTH)
    tokens = draw_tokens(2, LENGTH)
    assert torch.equal(model_of(whole)(tokens), model_of(windowed)(tokens))


def test_a_sequence_longer_than_learned_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="learned positions end at 16, but a sequence has 17"):
        model_of(config_of("gpt"))(draw_tokens(1, 17))


@pytest.mark.parametrize("shape", SHAPES)
def test_construction_on_meta_gives_the_same_model(shape: str) -> None:
    config = config_of(shape)
    here = Decoder(config, VOCABULARY, LENGTH)
    with torch.device("meta"):
        there = Decoder(config, VOCABULARY, LENGTH)
    there.to_empty(device="cpu")
    for model in (here, there):
        initialise(model, config, seed=5)
    assert all(not buffer.any() for buffer in there.buffers())
    tokens = draw_tokens(1, LENGTH)
    assert torch.equal(here(tokens), there(tokens))
    assert here.state_dict().keys() == there.state_dict().keys()


def test_a_tied_model_names_its_matrix_once() -> None:
    assert "head.weight" not in Decoder(config_of("gpt"), VOCABULARY, LENGTH).state_dict()
    assert "head.weight" in Decoder(config_of("llama"), VOCABULARY, LENGTH).state_dict()


def test_last_logits_alone_equal_the_last_of_all() -> None:
    model = model_of(config_of("llama"))
    tokens = draw_tokens(2, LENGTH)
    assert torch.allclose(model(tokens, last_only=True), model(tokens)[:, -1:], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", ["grouped", "geglu-both", "post-full", "qk-head", "alibi-window", "gpt"])
def test_autocast_computes_in_16_bits_and_stays_near(shape: str, dtype: torch.dtype) -> None:
    model = model_of(config_of(shape), torch.float32)
    positions, documents = pack([[6, 10], [16]])
    arguments = (draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1), positions, documents)
    exact = model(*arguments)
    exact.loss_sum.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    with torch.autocast("cpu", dtype):
        losses: TokenLosses = model(*arguments)
    losses.loss_sum.backward()
    assert losses.loss_sum.dtype == losses.token_losses.dtype == torch.float32
    assert not torch.equal(losses.token_losses, exact.token_losses)
    assert losses.loss_sum.item() == pytest.approx(exact.loss_sum.item(), rel=0.02)
    floor = 0.05 * norm_of(gradients.values())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert relative_error(parameter.grad, gradients[name], floor) < 0.25, name
