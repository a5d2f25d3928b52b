"""The `model.latent_attention` section: keys and values from a small latent."""

from __future__ import annotations

from pydantic import Field, model_validator

from stoker.recipe.section import Section


class LatentAttention(Section):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Keys and values of all heads are projected up from one latent per token. Positions are in a part of
    each query and key of its own, whose key all heads share.
    """

    kv_rank: int = Field(ge=1)
    """Width of the latent of keys and values."""
    query_rank: int | None = Field(default=None, ge=1)
    """Width of the latent of queries; by default queries are projected directly."""
    nope_head_size: int = Field(ge=1)
    """Width of the part of a head's query and key without position."""
    rope_head_size: int = Field(ge=2)
    """Width of the part with rotary position, which all heads share in the key."""
    value_head_size: int = Field(ge=1)
    """Width of a head's value."""

    @model_validator(mode="after")
    def _sizes_are_possible(self) -> LatentAttention:
        if self.rope_head_size % 2:
            raise ValueError(
                f"rope_head_size {self.rope_head_size} is odd, but rotary angles turn pairs; "
                f"use {self.rope_head_size + 1}"
            )
        if self.value_head_size > self.query_head_size:
            raise ValueError(
                f"value_head_size {self.value_head_size} is more than nope_head_size + rope_head_size "
                f"{self.query_head_size}; use at most that"
            )
        return self

    @property
    def query_head_size(self) -> int:
        """Width of a head's query and key, both parts together."""
        return self.nope_head_size + self.rope_head_size
