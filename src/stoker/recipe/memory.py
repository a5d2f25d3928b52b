"""The `training.memory` section: what is traded for memory, and for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import Field, model_validator

from stoker.recipe.section import Section

Operation = Literal["attention_projections", "attention", "attention_output", "feed_forward", "experts"]
"""What of a layer can be kept or computed again: what comes into attention, attention itself, its output
projection with the sum over ranks, the matrices of a dense feed-forward (shared experts too), and routed experts
with the exchange of rows."""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Recomputed = frozenset[Operation]
"""The operations of a layer that backward computes again. All of them: nothing but the layer's input is kept."""


@dataclass(frozen=True)
class Recomputation:
    """What becomes of the layers of one rank, by their numbers in the whole model."""

    layers: Mapping[int, Recomputed] = field(default_factory=dict)
    """Those that are not named recompute nothing."""
    shares: Mapping[int, float] = field(default_factory=dict)
    """Of compiled layers, whose compiler chooses: the part that it may keep of what it could leave out."""


class Recompute(Section):
    """What backward computes again instead of finding it kept; gradients stay the same to the bit."""

    name: Literal["none", "full", "operations", "budget"] = "none"
    """`full`: a layer keeps its input alone. `operations`: it keeps what its matrix products, attention and experts
    gave too, except those named. `budget`: what to keep is solved for the given memory."""
    every: int = Field(default=1, ge=1)
    """With `full`: one layer of so many is computed again."""
    operations: tuple[Operation, ...] = ()
    """With `operations`: what is computed again besides all that is cheap: norms, activations, rotations."""
    budget_mib: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """With `budget`: MiB that the layers of a rank may keep for backward, all passes in flight together."""

    @model_validator(mode="after")
    def _says_what_it_means(self) -> Recompute:
        if (self.budget_mib is not None) != (self.name == "budget"):
            raise ValueError(
                "name: budget needs budget_mib, the MiB that the layers of a rank may keep"
                if self.name == "budget"
                else f"budget_mib needs name: budget, but name is {self.name}"
            )
        for given, owner in (("every", "full"), ("operations", "operations")):
            if self.name != owner and getattr(self, given) != type(self).model_fields[given].default:
                raise ValueError(f"{given} needs name: {owner}, but name is {self.name}")
        if len(set(self.operations)) < len(self.operations):
            raise ValueError("operations must name each one once")
        return self

    @property
    def said(self) -> str:
        """In a few words."""
        match self.name:
            case "full" if self.every > 1:
                return f"full, every {self.every}"
            case "operations":
                return ", ".join(("cheap", *self.operations))
            case "budget":
                return f"budget of {self.budget_mib:g} MiB"
        return self.name

    def of_layer(self, layer: int) -> Recomputed | None:
        """What the layer numbered `layer` in the whole model computes again, None: nothing. Not for `budget`."""
        match self.name:
            case "full" if layer % self.every == 0:
                return frozenset(OPERATIONS)
            case "operations":
                return frozenset(self.operations)
        return None


class Memory(Section):
    """What is done to need less memory. Nothing of it changes what is computed."""

    recompute: Recompute = Recompute()
    offload_activations: bool = False
    """What layers keep for backward rests in host memory, and comes back a layer ahead of its use."""
    offload_parameters: bool = False
    """Weights rest in host memory and come to the device for their block, ahead of it where they are sharded;
    gradients and optimizer state stay there as well, where the processor makes the update."""
    offload_optimizer: bool = False
    """Optimizer state stays in host memory, where the processor makes the update; of adamw and lion."""
    release_gradients: bool = False
    """Update a weight as soon as its gradient is complete, and let go of the gradient; of adamw and lion."""

    @property
    def offloads(self) -> tuple[str, ...]:
        """The fields that let something rest in host memory, as far as they are on."""
        return tuple(
            name for name in type(self).model_fields if name.startswith("offload_") and getattr(self, name)
        )

    @model_validator(mode="after")
    def _says_each_thing_once(self) -> Memory:
        if self.offload_parameters and self.offload_optimizer:
            raise ValueError("offload_optimizer is part of offload_parameters: leave it out")
        if self.offload_parameters and self.release_gradients:
            raise ValueError(
                "release_gradients frees memory of the device, where offload_parameters leaves no gradients: leave "
                "one of them out"
            )
        return self
