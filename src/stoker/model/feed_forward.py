"""The feed-forward sub-block: gated (SwiGLU, GeGLU) or plain (GELU)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from stoker.model.lean_autograd import gated
from stoker.recipe import Model


class GatedFeedForward(nn.Module):
    """down(activation(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        D, inner, bias = config.hidden_size, config.ffn_hidden_size, config.ffn_bias
        self.gate = nn.Linear(D, inner, bias=bias)
        self.up = nn.Linear(D, inner, bias=bias)
        self.down = nn.Linear(inner, D, bias=bias)
        self.swish = config.activation == "swiglu"

    def forward(self, x_BLD: Tensor) -> Tensor:
        """[B, L, D] to [B, L, D]."""
        return self.down(gated(self.gate(x_BLD), self.up(x_BLD), self.swish))  # type: ignore[no-any-return]


class PlainFeedForward(nn.Module):
    """down(gelu(up(x))), with the tanh form of GELU that GPT-2 and GPT-3 use."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        D, inner, bias = config.hidden_size, config.ffn_hidden_size, config.ffn_bias
        self.up = nn.Linear(D, inner, bias=bias)
        self.down = nn.Linear(inner, D, bias=bias)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """[B, L, D] to [B, L, D]."""
        return self.down(F.gelu(self.up(x_BLD), approximate="tanh"))  # type: ignore[no-any-return]


def build_feed_forward(config: Model) -> GatedFeedForward | PlainFeedForward:
    """The feed-forward sub-block that `config.activation` names."""
    return PlainFeedForward(config) if config.activation == "gelu" else GatedFeedForward(config)
