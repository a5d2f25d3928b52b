"""A whole model on parts of sequences computes the losses and gradients of one process."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from stoker.layout import ContextParallelMethod
from stoker.model import Decoder
from stoker.parallel.context_parallel import SequenceSplit, context_parallel
from tests.distributed import run_ranks
from tests.model.shapes import config_of, draw_tokens, model_of, pack
from tests.parallel.context_parallel.cases import ALL_METHODS
from tests.parallel.context_parallel.ranks import group_of

pytestmark = pytest.mark.slow

LENGTHS = {
    16: [[16], [5, 4, 7]],
    11: [[3, 1, 7], [1, 9, 1]],
    3: [[2, 1], [3]],
}
"""Lengths of sequences, with those of their documents."""
NAMES = ["llama", "grouped", "multi-query", "geglu-both", "post-full", "qk-head", "gpt"]
NAMES += ["alibi", "alibi-window", "window", "window-softcap", "alibi-softcap"]
"""Models in which only attention reaches across tokens."""


def _batch(length: int, packed: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Tokens, targets, positions and documents."""
    tokens, targets = draw_tokens(2, length), draw_tokens(2, length, seed=1)
    targets[:, 1] = -100
    positions, documents = pack(LENGTHS[length])
    if not packed:
        return tokens, targets, torch.arange(length).expand(2, length), None
    return tokens, targets, positions, documents


def _whole(model: Decoder, length: int, packed: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss, losses of tokens, gradients."""
    tokens, targets, positions, documents = _batch(length, packed)
    losses = model(tokens, targets, positions, documents)
    gradients = torch.autograd.grad(losses.loss_sum, list(model.parameters()))
    return losses.loss_sum.detach(), losses.token_losses, list(gradients)


def _parts(model: Decoder, split: SequenceSplit, length: int, packed: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The same, gathered or summed over ranks."""
    tokens, targets, positions, documents = _batch(length, packed)
    places = split.places(length, tokens.device)
    tokens, targets, positions = (split.cut(x, 1) for x in (tokens, targets, positions))
    losses = model(tokens, targets, positions if packed else None, documents, places=places)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(losses.loss_sum, parameters)
    flat = torch.cat([losses.loss_sum.detach().view(1).double(), *(x.flatten() for x in gradients)])
    dist.all_reduce(flat)
    loss, *flat_gradients = flat.split([1, *(x.numel() for x in parameters)])
    summed = [x.view(like.shape) for x, like in zip(flat_gradients, parameters, strict=True)]
    return loss[0], split.gather(losses.token_losses, 1, length), summed


def _compare(rank: int, ranks: int, store: Any, names: list[str]) -> dict[tuple[object, ...], float]:
    group, errors = group_of(rank, ranks, store).group, {}
    for index, name in enumerate(names):
        alone = model_of(config_of(name))
        for length in LENGTHS:
            packed = bool((index + length) % 2)
            loss, token_losses, gradients = _whole(alone, length, packed)
            # The gradient of keys' biases is naught but for rounding: softmax does not see what all keys share.
            smallest = 1e-3 * float(torch.cat([x.flatten() for x in gradients]).norm())
            for method in ALL_METHODS:
                model = model_of(config_of(name))
                split = context_parallel(model, group, method)
                own_loss, own_token_losses, own_gradients = _parts(model, split, length, packed)
                torch.testing.assert_close(own_token_losses, token_losses)
                worst = float(abs(own_loss - loss) / loss)
                for own, expected in zip(own_gradients, gradients, strict=True):
                    worst = max(worst, float((own - expected).norm()) / max(float(expected.norm()), smallest))
                errors[name, length, packed, method] = worst
    return errors


@pytest.mark.parametrize("ranks", [2, 3])
def test_losses_and_gradients_equal_one_process(ranks: int) -> None:
    for errors in run_ranks(_compare, ranks, NAMES, timeout=200):
        for case, value in errors.items():
            assert value <= 1e-12, case


def _compare_changed(rank: int, ranks: int, store: Any) -> None:
    """Blocks whose activations are computed again, and blocks traced by the compiler."""
    group = group_of(rank, ranks, store).group
    for method in ALL_METHODS:
        expected, recomputed, traced = (_model_of(group, method) for _ in range(3))
        for block in recomputed.blocks.values():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
        for block in traced.blocks.values():
            block.compile(dynamic=False, fullgraph=True, backend="aot_eager")
        *_, gradients = _parts(expected, SequenceSplit(group), 11, True)
        for model in (recomputed, traced):
            *_, own_gradients = _parts(model, SequenceSplit(group), 11, True)
            torch.testing.assert_close(own_gradients, gradients, rtol=1e-12, atol=1e-12)


def _model_of(group: dist.ProcessGroup, method: ContextParallelMethod) -> Decoder:
    model = model_of(config_of("grouped", sliding_window=7, layers=1))
    context_parallel(model, group, method)
    return model


def test_recomputed_and_traced_blocks_have_the_same_gradients() -> None:
    run_ranks(_compare_changed, 2, timeout=200)
