"""Where a run stands: all that training state holds besides weights and optimizer moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker.recipe import Recipe
from stoker.training.precision import DynamicLossScale


@dataclass
class Position:
    """After `step` steps. Data position and random state are functions of step and seed, and are stored
    only so that a checkpoint explains itself."""

    step: int = 0
    tokens_seen: int = 0
    attempt: int = 1
    loss_scale: dict[str, float] | None = None
    held_out_loss: float | None = None
    """Mean over the held-out tokens of all sources, nats, where this step was evaluated."""

    def advance(self, step: int, tokens: int, loss_scale: DynamicLossScale | None) -> None:
        """Note that `step` is done."""
        self.step = step
        self.tokens_seen += tokens
        self.loss_scale = loss_scale.state_dict() if loss_scale else None
        self.held_out_loss = None

    def as_progress(self, recipe: Recipe) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "step": self.step,
            "tokens_seen": self.tokens_seen,
            "next_sample": recipe.training.samples_before(self.step + 1),
            "seed": recipe.seed,
            "loss_scale": self.loss_scale,
            "held_out_loss": self.held_out_loss,
            "layout": recipe.layout.model_dump(mode="json"),
        }

    @classmethod
    def from_progress(cls, progress: dict[str, Any], attempt: int) -> Position:
        """The position a checkpoint was saved at."""
        return cls(progress["step"], progress["tokens_seen"], attempt, progress["loss_scale"])
