"""Tiny models that between them use every feature of the architecture, and weights that hide nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stoker.model import Decoder
from stoker.recipe import Model

VOCABULARY, LENGTH = 23, 16

_BASE: dict[str, Any] = {"hidden_size": 12, "layers": 2, "heads": 3, "ffn_hidden_size": 20}
_LATENT = {"kv_rank": 5, "query_rank": 7, "nope_head_size": 4, "rope_head_size": 2, "value_head_size": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "grouped": {"heads": 6, "kv_heads": 2, "head_size": 4},
    "multi-query": {"heads": 6, "kv_heads": 1, "head_size": 2, "tie_embeddings": True},
    "geglu-both": {"activation": "geglu", "norm_position": "both", "logit_softcap": 2.0, "attention_softcap": 1.5},
    "post-full": {"norm_position": "post", "qk_norm": "full", "kv_heads": 1},
    "qk-head": {"qk_norm": "head", "rope_theta": 100.0, "head_size": 6, "kv_heads": 1},
    "gpt": {
        "norm": "layer",
        "activation": "gelu",
        "position": "learned",
        "attention_bias": True,
        "attention_output_bias": True,
        "ffn_bias": True,
        "tie_embeddings": True,
    },
    "alibi": {"position": "alibi", "heads": 3, "norm": "layer", "norm_position": "both"},
    "alibi-window": {"position": "alibi", "heads": 6, "kv_heads": 3, "sliding_window": 4},
    "window": {"sliding_window": 5, "attention_bias": True, "ffn_bias": True},
    "window-softcap": {"sliding_window": 3, "attention_softcap": 1.0, "kv_heads": 1},
    "alibi-softcap": {"position": "alibi", "attention_softcap": 1.0, "activation": "gelu"},
    "switch": {"moe": {"experts": 4, "experts_per_token": 1, "auxiliary_loss": 0.01}},
    "mixtral": {
        "activation": "geglu",
        "moe": {"experts": 5, "experts_per_token": 2, "normalise_weights": True, "z_loss": 0.001},
    },
    "deepseek-v3": {
        "moe": {
            "experts": 8,
            "experts_per_token": 3,
            "expert_ffn_hidden_size": 6,
            "shared_experts": 2,
            "first_dense_layers": 1,
            "gate": "sigmoid",
            "normalise_weights": True,
            "weight_scale": 2.5,
            "groups": 4,
            "groups_per_token": 2,
            "auxiliary_loss": 0.02,
            "bias_update_rate": 0.1,
        },
    },
    "deepseek-v2": {
        "moe": {
            "experts": 6,
            "experts_per_token": 2,
            "shared_experts": 1,
            "groups": 3,
            "groups_per_token": 2,
            "group_score": "best",
            "auxiliary_loss": 0.01,
        },
        "tie_embeddings": True,
    },
    "latent": {"latent_attention": _LATENT},
    "latent-direct": {
        "latent_attention": {**_LATENT, "query_rank": None, "value_head_size": 6},
        "attention_output_bias": True,
    },
    "latent-window": {"latent_attention": _LATENT, "sliding_window": 5, "norm_position": "both"},
    "latent-softcap": {"latent_attention": _LATENT, "attention_softcap": 1.5, "norm": "layer"},
    "mtp": {"mtp_depth": 2, "norm_position": "both"},
    "mtp-tied": {"mtp_depth": 1, "tie_embeddings": True, "norm": "layer", "logit_softcap": 2.0},
    "mtp-experts": {
        "mtp_depth": 1,
        "moe": {"experts": 4, "experts_per_token": 2, "first_dense_layers": 1, "auxiliary_loss": 0.02},
    },
}
WITH_EXPERTS = [name for name, shape in SHAPES.items() if "moe" in shape]
DENSE = [name for name in SHAPES if name not in WITH_EXPERTS]


def config_of(name: str, **changes: Any) -> Model:
    """One of `SHAPES`, with changes."""
    return Model(**{**_BASE, **SHAPES[name], **changes})


def model_of(config: Model, dtype: torch.dtype = torch.float64, seed: int = 0, length: int = LENGTH) -> Decoder:
    """A model whose every parameter, norms and biases too, is drawn widely enough to matter."""
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(config, VOCABULARY, length).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.3 * drawn if parameter.dim() == 1 else 0.5 * drawn)
        for buffer in model.buffers():
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64))
    return model


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def pack(lengths: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Positions and documents [B, L] of sequences whose documents have the given lengths."""
    positions = torch.tensor([[p for size in row for p in range(size)] for row in lengths])
    documents = torch.tensor([[d for d, size in enumerate(row) for _ in range(size)] for row in lengths])
    return positions, documents.int()
