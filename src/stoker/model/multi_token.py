"""Multi-token prediction: tokens beyond the next one, each by a module of its own (DeepSeek-V3, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stoker.model.loss import IGNORED
from stoker.model.normalisation import build_norm
from stoker.recipe import Model


class Future(NamedTuple):
    """What the modules need of each place's future."""

    tokens: Tensor
    """int64 [depth, B, L]: the token 1, 2, … places on; 0 where there is none in the same document."""
    targets: Tensor
    """int64 [depth, B, L]: the token after that; -100 where there is none in the same document."""


def shifted(tokens: Tensor, targets: Tensor, documents: Tensor | None, depth: int) -> Future:
    """The future of whole sequences [B, L], as `Decoder.forward` takes it.

    A place whose document ends before its target, or which has a target of -100 on the way there, gets
    -100: so no prediction crosses from one document to the next, where attention does not tell them
    apart either.
    """
    counted = targets != IGNORED
    following, wanted = [], []
    for step in range(1, depth + 1):
        here = torch.zeros_like(counted)
        length = max(tokens.shape[1] - step, 0)
        here[:, :length] = counted[:, :length]
        for between in range(1, step):
            here[:, :length] &= counted[:, between : between + length]
        if documents is not None:
            here[:, :length] &= documents[:, :length] == documents[:, step:]
        following.append(_ahead(tokens, step).where(here, 0))
        wanted.append(_ahead(targets, step).where(here, IGNORED))
    return Future(torch.stack(following), torch.stack(wanted))


def _ahead(x: Tensor, step: int) -> Tensor:
    return torch.roll(x, -step, dims=1)


class FurtherToken(nn.Module):
    """From the residual stream of the model, or of the module before it, to one that predicts a token further."""

    def __init__(self, config: Model, block: nn.Module) -> None:
        super().__init__()
        D = config.hidden_size
        self.hidden_norm = build_norm(config.norm, D, config.norm_epsilon)
        self.embedding_norm = build_norm(config.norm, D, config.norm_epsilon)
        self.projection = nn.Linear(2 * D, D, bias=False)
        self.block = block
        self.norm = build_norm(config.norm, D, config.norm_epsilon)

    def forward(self, x_BLD: Tensor, embedded_BLD: Tensor, shared: Any, run_block: Callable[..., Tensor]) -> Tensor:
        """The residual stream [B, L, D], before this module's own norm.

        `embedded` is the token before the one that is predicted, at each place; `shared` is what the
        model's blocks share, `run_block` how they are run. Nothing is dropped in here.
        """
        both = torch.cat((self.hidden_norm(x_BLD), self.embedding_norm(embedded_BLD)), dim=-1)
        return run_block(self.block, self.projection(both), shared)
