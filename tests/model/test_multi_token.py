"""Multi-token prediction against the plain formulation, within documents and across their borders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from stoker.model import Decoder, initial_values, initialise
from stoker.model.loss import IGNORED
from stoker.model.multi_token import shifted
from tests.model.plain_decoder import cross_entropies, document_logits, further_logits
from tests.model.shapes import LENGTH, VOCABULARY, config_of, draw_tokens, model_of, pack

SHAPES = ["mtp", "mtp-tied", "mtp-experts"]


def plain_losses(model: Decoder, state: dict[str, Tensor], documents: list[list[int]], weight: float) -> Tensor:
    """Sum of the losses of documents, each of which also has the token that follows it as its last."""
    total, terms = torch.zeros((), dtype=torch.float64), []
    for document in documents:
        tokens, targets = document[:-1], document[1:]
        total = total + cross_entropies(document_logits(state, model.config, tokens, terms), targets).sum()
        further = further_logits(state, model.config, tokens, terms)
        for depth, logits in enumerate(further, start=1):
            entropies = cross_entropies(logits, targets[depth:])
            total = total + weight / model.config.mtp_depth * entropies.sum()
    return total


@pytest.mark.parametrize("documents_given", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients_equal_the_plain_formulation(shape: str, documents_given: bool) -> None:
    """Without document masks the places after a border see what is before it, so one document stands alone."""
    config = config_of(shape, mtp_loss_weight=0.7)
    if config.moe is not None:
        config = config.model_copy(update={"moe": config.moe.model_copy(update={"auxiliary_loss": 0.0})})
    model = model_of(config)
    sizes = [[5, 1, 2, 8], [16]] if documents_given else [[16], [16]]
    positions, documents = pack(sizes)
    tokens, targets = draw_tokens(2, LENGTH), torch.full((2, LENGTH), IGNORED)
    plain = []
    for row, lengths in enumerate(sizes):
        start = 0
        for size in lengths:
            plain.append([*tokens[row, start : start + size].tolist(), 3])
            targets[row, start : start + size] = torch.tensor(plain[-1][1:])
            start += size
    losses = model(tokens, targets, positions, documents if documents_given else None)
    losses.loss_sum.backward()
    state = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    wanted = plain_losses(model, state, plain, 0.7)
    wanted.backward()
    assert losses.loss_sum.item() == pytest.approx(wanted.item(), rel=1e-12)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.allclose(parameter.grad, state[name].grad, rtol=1e-9, atol=1e-10), name


def test_the_future_ends_with_the_document() -> None:
    tokens = torch.tensor([[10, 11, 12, 20, 21, 22, 23]])
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    targets = torch.tensor([[11, 12, IGNORED, 21, 22, 23, 24]])
    i = IGNORED
    wanted_targets = [[[12, i, i, 22, 23, 24, i]], [[i, i, i, 23, 24, i, i]], [[i, i, i, 24, i, i, i]]]
    wanted_tokens = [[[11, 12, 0, 21, 22, 23, 0]], [[12, 0, 0, 22, 23, 0, 0]], [[0, 0, 0, 23, 0, 0, 0]]]
    future = shifted(tokens, targets, documents, 3)
    assert future.targets.tolist() == wanted_targets
    assert future.tokens.tolist() == wanted_tokens


def test_the_future_stays_in_the_document_by_its_targets_alone() -> None:
    """Without document masks a border is where nothing is predicted."""
    tokens = torch.tensor([[10, 11, 12, 20, 21, 22, 23]])
    targets = torch.tensor([[11, 12, IGNORED, 21, 22, 23, 24]])
    i = IGNORED
    future = shifted(tokens, targets, None, 2)
    assert future.targets.tolist() == [[[12, i, i, 22, 23, 24, i]], [[i, i, i, 23, 24, i, i]]]


def test_a_sequence_shorter_than_the_depth_has_no_future() -> None:
    tokens = torch.tensor([[1, 2]])
    future = shifted(tokens, tokens, None, 4)
    assert future.targets.shape == (4, 1, 2)
    assert future.targets.tolist() == [[[2, IGNORED]], *[[[IGNORED] * 2]] * 3]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_gradient_crosses_documents(shape: str) -> None:
    model = model_of(config_of(shape, tie_embeddings=False, moe=None))
    positions, documents = pack([[7, 9]])
    tokens = torch.arange(LENGTH)[None]
    targets = tokens.roll(-1, 1).masked_fill(documents == 0, IGNORED)
    model(tokens, targets, positions, documents).loss_sum.backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    # Token 0 stands where there is no future; its embedding has no influence on what is counted.
    assert not gradient[:7].any()
    assert gradient[7:LENGTH].any(dim=1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_losses_of_the_next_token_and_logits_are_as_without(shape: str) -> None:
    with_further, without = model_of(config_of(shape)), model_of(config_of(shape, mtp_depth=0))
    without.load_state_dict({n: t for n, t in with_further.state_dict().items() if not n.startswith("mtp.")})
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    got, wanted = with_further(tokens, targets), without(tokens, targets)
    assert torch.equal(got.token_losses, wanted.token_losses)
    assert got.loss_sum > wanted.loss_sum
    assert torch.equal(with_further(tokens), without(tokens))
    assert torch.equal(with_further.eval()(tokens, targets).loss_sum, without.eval()(tokens, targets).loss_sum)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_part_that_ends_the_model_has_the_modules_and_the_embedding(shape: str) -> None:
    config = config_of(shape)
    whole, first, last = (model_of(config) for _ in range(3))
    first.keep(0, 1)
    last.keep(1, 2)
    assert not any(name.startswith("mtp.") for name, _ in first.named_parameters())
    assert last.embedding is not None
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    losses = whole(tokens, targets, loss_scale=0.1)
    losses.loss_sum.backward()
    between = first(tokens, loss_scale=0.1)
    in_parts = last(tokens, targets, hidden=between, loss_scale=0.1)
    in_parts.loss_sum.backward()
    assert in_parts.loss_sum.item() == pytest.approx(losses.loss_sum.item(), rel=1e-12)
    found: dict[str, Any] = {}
    for part in (first, last):
        for name, parameter in part.named_parameters():
            found[name] = found.get(name, 0) + parameter.grad
    for name, parameter in whole.named_parameters():
        assert torch.allclose(found[name], parameter.grad, rtol=1e-10, atol=1e-12), name


def test_a_future_that_is_given_is_used() -> None:
    model = model_of(config_of("mtp"))
    tokens, targets = draw_tokens(2, LENGTH), draw_tokens(2, LENGTH, seed=1)
    documents = pack([[3, 13], [16]])[1]
    given = shifted(tokens, targets, documents, 2)
    wanted = model(tokens, targets, documents=documents).loss_sum
    assert torch.equal(model(tokens, targets, documents=documents, future=given).loss_sum, wanted)
    none = given._replace(targets=torch.full_like(given.targets, IGNORED))
    assert model(tokens, targets, documents=documents, future=none).loss_sum < wanted


def test_initial_values_follow_the_name() -> None:
    config = config_of("mtp-experts", initialisation="depth_scaled", layers=8)
    model = Decoder(config, VOCABULARY, LENGTH)
    initialise(model, config, 3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.flatten(), initial_values(name, parameter.shape, config, 3)), name
    down = model.mtp["0"].block.feed_forward.experts.down
    assert down.std().item() == pytest.approx(0.02 / 4, rel=0.15)
    assert model.mtp["0"].projection.weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert (model.mtp["0"].hidden_norm.weight == 1).all()
