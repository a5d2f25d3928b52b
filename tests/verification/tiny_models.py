"""Models small enough to be trained many times, each with what some kinds of mistakes need to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker.recipe import Model, Training

VOCABULARY = 37


@dataclass(frozen=True)
class Tiny:
    """A model, and how it is trained."""

    changes: dict[str, Any] = field(default_factory=dict)
    length: int = 13
    """Tokens of a sequence; divides by nothing."""
    optimizer: dict[str, Any] = field(default_factory=lambda: {"name": "adamw", "learning_rate": 0.01})

    @property
    def model(self) -> Model:
        """Its settings."""
        plain = {"hidden_size": 24, "layers": 2, "heads": 6, "kv_heads": 2, "ffn_hidden_size": 40}
        return Model.model_validate({**plain, **self.changes})

    @property
    def training(self) -> Training:
        """Its training."""
        return Training.model_validate(
            {
                "steps": 100,
                "sequence_length": self.length,
                "global_batch_size": 4,
                "optimizer": self.optimizer,
                "schedule": {"name": "constant"},
                "gradient_clip": None,
            }
        )


_BIASES = {"attention_bias": True, "attention_output_bias": True, "ffn_bias": True}
_EXPERTS = {
    "experts": 4,
    "experts_per_token": 2,
    "expert_ffn_hidden_size": 12,
    "shared_experts": 1,
    "auxiliary_loss": 0.1,
    "z_loss": 0.01,
    "first_dense_layers": 1,
    "gate": "sigmoid",
    "normalise_weights": True,
    "bias_update_rate": 0.01,
    "capacity_factor": 1.2,
}
_LATENT = {"kv_rank": 8, "query_rank": 10, "nope_head_size": 4, "rope_head_size": 2, "value_head_size": 5}

MODELS = {
    "plain": Tiny(),
    "even": Tiny(length=12),
    "biased": Tiny(_BIASES),
    "deep": Tiny({"layers": 4}),
    "tied": Tiny({"layers": 4, "tie_embeddings": True}),
    "normed": Tiny({"qk_norm": "full"}),
    "alibi": Tiny({"position": "alibi"}),
    "learned": Tiny({"position": "learned"}),
    "window": Tiny({"sliding_window": 4}),
    "dropout": Tiny({"dropout": 0.2}),
    "layer_drop": Tiny({"layers": 4, "layer_drop": 0.5}),
    "experts": Tiny({"moe": _EXPERTS}),
    "experts_deep": Tiny({"layers": 4, "moe": _EXPERTS}),
    "further": Tiny({"mtp_depth": 2}),
    "latent": Tiny({"kv_heads": None, "latent_attention": _LATENT}),
    "adafactor": Tiny(optimizer={"name": "adafactor", "learning_rate": 0.01}),
    "muon": Tiny(optimizer={"name": "muon"}),
    "lion": Tiny(optimizer={"name": "lion", "learning_rate": 0.001}),
}
