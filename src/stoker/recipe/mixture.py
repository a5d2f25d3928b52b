"""The `model.moe` section: feed-forward blocks of many experts, of which each token uses a few."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from pydantic import Field, model_validator

from stoker.recipe.section import Section


class MixtureOfExperts(Section):
    """A router sends each token to a few of many gated feed-forward blocks (Shazeer et al. 2017).

    `experts_per_token` 1 with a softmax gate is the Switch Transformer (Fedus et al. 2021); 2 with
    `normalise_weights` is Mixtral; a sigmoid gate with groups and a bias is DeepSeek-V3.
    """

    experts: int = Field(ge=2)
    """Experts E of a layer that are routed to."""
    experts_per_token: int = Field(ge=1)
    """Experts k that each token uses."""
    expert_ffn_hidden_size: int | None = Field(default=None, ge=1)
    """Inner width of one expert; by default `ffn_hidden_size`."""
    shared_experts: int = Field(default=0, ge=0)
    """Experts that every token uses besides, computed as one block of so many times the width (DeepSeek)."""
    first_dense_layers: int = Field(default=0, ge=0)
    """Leading layers that keep the plain feed-forward block."""

    gate: Literal["softmax", "sigmoid"] = "softmax"
    """How the router's logits become the weights of experts: over all experts together, or each by itself."""
    normalise_weights: bool = False
    """The weights of a token's chosen experts are divided by their sum."""
    weight_scale: float = Field(default=1.0, gt=0)
    """Multiplies the weights at last (DeepSeek's routed_scaling_factor)."""
    groups: int = Field(default=1, ge=1)
    """Groups of neighbouring experts; a token chooses groups first, then experts in them."""
    groups_per_token: int | None = Field(default=None, ge=1)
    """Groups that a token may choose experts from; by default all."""
    group_score: Literal["best", "best_two"] = "best_two"
    """What a group is chosen by: its best expert (DeepSeek-V2), or the sum of its best two (DeepSeek-V3)."""

    auxiliary_loss: float = Field(default=0.0, ge=0)
    """Coefficient of the load-balancing loss of each sequence (Switch Transformer; DeepSeek-V3, eq. 17)."""
    z_loss: float = Field(default=0.0, ge=0)
    """Coefficient of the mean squared log-partition of the router's logits (ST-MoE)."""
    bias_update_rate: float = Field(default=0.0, ge=0)
    """Step by which each expert's selection bias moves towards even load after a step (DeepSeek-V3); 0: no bias."""
    capacity_factor: float | None = Field(default=None, gt=0)
    """An expert takes at most ceil(factor × k × length / experts) tokens of a sequence; by default all."""

    @model_validator(mode="after")
    def _choice_is_possible(self) -> MixtureOfExperts:
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} is more than the {self.experts} experts; "
                f"use at most {self.experts}"
            )
        if self.experts % self.groups:
            raise ValueError(
                f"experts {self.experts} do not fall into {self.groups} groups of equal size; "
                f"use one of {', '.join(str(d) for d in _divisors(self.experts)[:12])} groups"
            )
        if self.chosen_groups > self.groups:
            raise ValueError(
                f"groups_per_token {self.groups_per_token} is more than the {self.groups} groups; "
                f"use at most {self.groups}, or raise groups"
            )
        reachable = self.chosen_groups * self.experts // self.groups
        if self.experts_per_token > reachable:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} cannot be chosen from {self.chosen_groups} groups "
                f"with {reachable} experts; raise groups_per_token or lower groups"
            )
        if self.normalise_weights and self.experts_per_token == 1:
            raise ValueError(
                "normalise_weights makes the weight of a token's only expert 1, so that the router learns nothing; "
                "leave it out or raise experts_per_token"
            )
        return self

    @property
    def chosen_groups(self) -> int:
        """Groups that a token may choose experts from."""
        return self.groups_per_token or self.groups

    def capacity(self, length: int) -> int | None:
        """Most tokens of a sequence of `length` tokens that one expert takes; None where it takes all."""
        if self.capacity_factor is None:
            return None
        # An exact fraction: a product that floats make a hair too large would round up to one more.
        return math.ceil(Fraction(str(self.capacity_factor)) * self.experts_per_token * length / self.experts)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
