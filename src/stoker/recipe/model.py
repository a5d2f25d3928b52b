"""The `model` section: the architecture of a decoder-only language model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.latent import LatentAttention
from stoker.recipe.mixture import MixtureOfExperts
from stoker.recipe.presets import PRESETS
from stoker.recipe.section import Section

_PLAIN_ATTENTION: dict[str, Any] = {"kv_heads": None, "head_size": None, "qk_norm": "none", "attention_bias": False}
"""What latent attention has no use for, at the values that ask for nothing."""


class Model(Section):
    """A decoder-only transformer. `preset` fills in a published shape; any field given besides overrides it."""

    preset: str | None = None
    """Name of a published or ready-made shape; `stoker recipe presets` lists them."""

    hidden_size: int = Field(ge=1)
    """Width D of the residual stream."""
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    """Query heads H."""
    kv_heads: int | None = Field(default=None, ge=1)
    """Key and value heads: equal to `heads` is MHA (the default), 1 is MQA, between is GQA."""
    head_size: int | None = Field(default=None, ge=1)
    """Width K of one head; by default hidden_size / heads."""
    ffn_hidden_size: int = Field(ge=1)
    """Inner width F of the feed-forward block."""
    activation: Literal["swiglu", "geglu", "gelu"] = "swiglu"
    moe: MixtureOfExperts | None = None
    """Mixture of experts in place of the feed-forward block; by default every layer is dense."""
    latent_attention: LatentAttention | None = None
    """Multi-head latent attention in place of the plain one (DeepSeek-V2)."""

    norm: Literal["rms", "layer"] = "rms"
    norm_position: Literal["pre", "post", "both"] = "pre"
    """`pre`: before each sub-block; `post`: on its output, before the residual sum (OLMo 2); `both` (Gemma 2)."""
    norm_epsilon: float = Field(default=1e-5, gt=0)
    qk_norm: Literal["none", "head", "full"] = "none"
    """RMS norm of queries and keys per head (Qwen 3) or over the full projected width (OLMo 2)."""

    position: Literal["rope", "alibi", "learned"] = "rope"
    rope_theta: float = Field(default=10000.0, gt=0)
    sliding_window: int | None = Field(default=None, ge=1)
    """A token sees itself and the window - 1 tokens before it."""
    attention_bias: bool = False
    """Biases on the query, key and value projections."""
    attention_output_bias: bool = False
    ffn_bias: bool = False
    attention_softcap: float | None = Field(default=None, gt=0)
    """Attention logits become cap * tanh(logits / cap)."""
    logit_softcap: float | None = Field(default=None, gt=0)
    """Output logits become cap * tanh(logits / cap)."""
    tie_embeddings: bool = False
    """The output projection is the embedding matrix."""

    z_loss: float = Field(default=0.0, ge=0)
    """Coefficient of the mean squared log-partition of the output softmax (PaLM)."""
    mtp_depth: int = Field(default=0, ge=0)
    """How many tokens beyond the next one are predicted too, each by a module of its own (DeepSeek-V3)."""
    mtp_loss_weight: float = Field(default=0.3, gt=0)
    """Weight of the mean loss of those predictions."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of zeroing an element of each sub-block's output."""
    layer_drop: float = Field(default=0.0, ge=0, lt=1)
    """Probability of skipping a layer for a sample, rising linearly with depth to this value (stochastic depth)."""

    initialisation: Literal["normal", "depth_scaled", "fan_in"] = "depth_scaled"
    """`normal`: N(0, std). `depth_scaled`: output projections of sub-blocks by 1/sqrt(2 layers) too (GPT-2).
    `fan_in`: std 1/sqrt(fan in), output projections scaled by depth as well; embeddings keep `initial_std`."""
    initial_std: float = Field(default=0.02, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("preset"), str):
            name = given["preset"]
            if name not in PRESETS:
                from difflib import get_close_matches

                near = get_close_matches(name, PRESETS, n=3, cutoff=0.3)
                hint = f"; near: {', '.join(near)}" if near else ""
                raise ValueError(f"preset: none is named {name!r}{hint}; `stoker recipe presets` lists them")
            return _over(PRESETS[name].shape, given)
        return given

    @field_validator("preset")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        return name

    @model_validator(mode="after")
    def _shape_is_possible(self) -> Model:
        if self.latent_attention is not None:
            self._require_latent_attention_possible()
        elif self.head_size is None and self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}; "
                "change one of them or give head_size"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.key_value_heads}")
        if self.position == "rope" and self.rotary_size % 2:
            raise ValueError(f"rope needs an even head size, but it is {self.size_of_head}")
        if self.moe is not None:
            self._require_experts_possible(self.moe)
        return self

    def _require_experts_possible(self, moe: MixtureOfExperts) -> None:
        if moe.first_dense_layers >= self.layers:
            raise ValueError(
                f"moe.first_dense_layers {moe.first_dense_layers} leaves none of the {self.layers} layers to "
                "experts; lower it, or take moe out"
            )
        if self.activation == "gelu":
            raise ValueError(
                "activation gelu is not known to experts, which are gated; use swiglu or geglu, or no moe"
            )
        if self.ffn_bias:
            raise ValueError("ffn_bias is not known to experts; leave it out, or use no moe")

    def _require_latent_attention_possible(self) -> None:
        for name, wanted in _PLAIN_ATTENTION.items():
            if getattr(self, name) != wanted:
                raise ValueError(f"{name} has no meaning with latent_attention; leave one of the two out")
        if self.position != "rope":
            raise ValueError(
                f"position {self.position} does not go with latent_attention, which turns keys; use rope"
            )

    def has_experts(self, layer: int) -> bool:
        """Whether `layer`, counted from 0, has a mixture of experts; those of `mtp_depth` follow the layers."""
        return self.moe is not None and layer >= self.moe.first_dense_layers

    @property
    def expert_width(self) -> int:
        """Inner width of one expert."""
        return (self.moe.expert_ffn_hidden_size if self.moe else None) or self.ffn_hidden_size

    @property
    def size_of_head(self) -> int:
        """Width K of one head's query and key."""
        if self.latent_attention is not None:
            return self.latent_attention.query_head_size
        return self.head_size or self.hidden_size // self.heads

    @property
    def rotary_size(self) -> int:
        """Elements of a head's query and key that carry its position."""
        return self.latent_attention.rope_head_size if self.latent_attention else self.size_of_head

    @property
    def value_size(self) -> int:
        """Width of one head's value."""
        return self.latent_attention.value_head_size if self.latent_attention else self.size_of_head

    @property
    def key_value_heads(self) -> int:
        """Number of key and value heads."""
        return self.kv_heads or self.heads


def _over(shape: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`shape` with what is given in its place; a section that is in both is filled in by the same rule."""
    inner = {
        key: _over(shape[key], value)
        for key, value in given.items()
        if isinstance(value, dict) and isinstance(shape.get(key), dict)
    }
    return {**shape, **given, **inner}
