"""The `model` section: the architecture of a decoder-only language model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.presets import PRESETS
from stoker.recipe.section import Section


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
            return {**PRESETS[name].shape, **given}
        return given

    @field_validator("preset")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        return name

    @model_validator(mode="after")
    def _shape_is_possible(self) -> Model:
        if self.head_size is None and self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}; "
                "change one of them or give head_size"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.key_value_heads}")
        if self.position == "rope" and self.size_of_head % 2:
            raise ValueError(f"rope needs an even head size, but it is {self.size_of_head}")
        return self

    @property
    def size_of_head(self) -> int:
        """Width K of one head."""
        return self.head_size or self.hidden_size // self.heads

    @property
    def key_value_heads(self) -> int:
        """Number of key and value heads."""
        return self.kv_heads or self.heads
