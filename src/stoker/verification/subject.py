"""What is verified: a recipe's model and training, without its text."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.layout.validity import ModelShape, problems
from stoker.model import Decoder
from stoker.recipe import Data, Model, Recipe, Schedule, Training
from stoker.recipe.memory import Memory, Recompute
from stoker.recipe.training import Precision

VerifiedPrecision = Literal["fp64", "fp32", "bf16", "fp16", "pure_bf16"]

_LENGTH, _VOCABULARY = 22, 61
_NO_TEXT = Data.model_construct(sources=())
_RECOMPUTED = (
    Recompute(),
    Recompute(name="full"),
    Recompute(name="full", every=2),
    Recompute(name="operations"),
    Recompute(name="operations", operations=("attention", "experts")),
)
_SEQUENCES = 24
"""Of a global batch: what most numbers of data-parallel ranks divide, with several left to each."""


@dataclass(frozen=True)
class Subject:
    """A model with its training; picklable, so that every process builds the same one."""

    model: Model
    training: Training = field(
        default_factory=lambda: Training(steps=1, sequence_length=_LENGTH, global_batch_size=_SEQUENCES)
    )
    vocabulary_size: int = _VOCABULARY
    seed: int = 0
    name: str = "model"
    smaller: tuple[str, ...] = ()
    """What was made smaller than the recipe says, in words."""

    @property
    def shape(self) -> ModelShape:
        """What decides which layouts are possible."""
        model = self.model
        return ModelShape(
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.key_value_heads,
            ffn_hidden_size=model.ffn_hidden_size,
            sequence_length=self.training.sequence_length,
            experts=None if model.moe is None else model.moe.experts,
            sliding_window=model.sliding_window,
        )

    def require_possible(self, layout: Layout) -> None:
        """Raise `BadInput` when `layout` cannot train the model."""
        if found := problems(layout, self.shape):
            raise BadInput(f"layout {layout}: {'; '.join(found)}")

    @cached_property
    def names(self) -> list[str]:
        """Parameters and buffers of the model, in order of execution."""
        return list(self.build("fp32").state_dict())

    def sequences(self, layout: Layout) -> int:
        """Of a global batch for `layout`: at least two for each part of the batch."""
        parts = layout.data_parallel_size
        fits = _SEQUENCES % parts == 0 and _SEQUENCES // parts >= 2
        return _SEQUENCES if fits else 2 * parts

    def micro_batches(self, layout: Layout) -> int:
        """On each rank of `layout`: several, and not the same number for all layouts."""
        own = self.sequences(layout) // layout.data_parallel_size
        choices = [count for count in range(2, 5) if own % count == 0]
        return choices[len(str(layout)) % len(choices)] if choices else own

    def recompute(self, layout: Layout) -> Recompute:
        """What is computed again: as the recipe says, or else drawn with the layout; nothing on one process."""
        wanted = self.training.memory.recompute
        if wanted.name != "none" or layout.world_size == 1:
            return wanted
        return _RECOMPUTED[zlib.crc32(str(layout).encode()) % len(_RECOMPUTED)]

    def recipe(self, layout: Layout, precision: VerifiedPrecision, steps: int) -> Recipe:
        """The recipe that training's own step reads; a constant learning rate, so that every step counts."""
        computed: Precision = "fp32" if precision == "fp64" else precision
        sequences = self.sequences(layout)
        training = self.training.model_copy(
            update={
                "steps": steps,
                "global_batch_size": sequences,
                "micro_batch_size": sequences // layout.data_parallel_size // self.micro_batches(layout),
                "batch_ramp": (),
                "schedule": Schedule(name="constant"),
                "precision": computed,
                "memory": Memory(recompute=self.recompute(layout)),
            }
        )
        return Recipe.model_construct(
            name=self.name, seed=self.seed, data=_NO_TEXT, model=self.model, training=training, layout=layout
        )

    def build(self, precision: VerifiedPrecision) -> Decoder:
        """The model on `meta`."""
        with torch.device("meta"):
            decoder = Decoder(self.model, self.vocabulary_size, self.training.sequence_length)
        kept: dict[str, torch.dtype] = {"fp64": torch.float64, "pure_bf16": torch.bfloat16}
        return decoder.to(kept.get(precision, torch.float32))
