"""The recipe: one YAML file that says everything about a run, typed and frozen."""

from __future__ import annotations

from pydantic import Field, model_validator

from stoker.layout import Layout
from stoker.recipe.data import Cleaning, Data, Deduplication, Kind, PackageFiles, Source, Tokenizer
from stoker.recipe.latent import LatentAttention
from stoker.recipe.mixture import MixtureOfExperts
from stoker.recipe.model import Model
from stoker.recipe.operation import Checkpoint, Evaluation, Telemetry
from stoker.recipe.section import Section
from stoker.recipe.training import (
    Adafactor,
    AdamW,
    BatchRamp,
    Lion,
    LossScale,
    Muon,
    Optimizer,
    Precision,
    Schedule,
    Training,
)

__all__ = [
    "Adafactor",
    "AdamW",
    "BatchRamp",
    "Checkpoint",
    "Cleaning",
    "Data",
    "Deduplication",
    "Evaluation",
    "Kind",
    "LatentAttention",
    "Layout",
    "Lion",
    "LossScale",
    "MixtureOfExperts",
    "Model",
    "Muon",
    "Optimizer",
    "PackageFiles",
    "Precision",
    "Recipe",
    "Schedule",
    "Section",
    "Source",
    "Telemetry",
    "Tokenizer",
    "Training",
]

_LARGEST_DERIVED_MICRO_BATCH_TOKENS = 8192


class Recipe(Section):
    """Everything that decides what a run trains."""

    name: str = Field(pattern=r"^\.*[\w-][\w.-]*$", max_length=128)
    """Names the run; its folder is `runs/<name>` beside the recipe unless told otherwise."""
    run: str | None = Field(default=None, min_length=1)
    """Folder of the run, relative to the recipe; by default `runs/<name>`."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Every random draw follows from this."""
    data: Data
    tokenizer: Tokenizer = Tokenizer()
    model: Model
    training: Training
    layout: Layout = Layout()
    checkpoint: Checkpoint = Checkpoint()
    telemetry: Telemetry = Telemetry()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _batch_fits_layout(self) -> Recipe:
        from stoker.errors import BadInput

        sizes = [("global_batch_size", self.training.global_batch_size)]
        sizes += [(f"batch_ramp[{i}]", ramp.global_batch_size) for i, ramp in enumerate(self.training.batch_ramp)]
        for where, size in sizes:
            try:
                per_rank = self.layout.sequences_per_rank(size)
            except BadInput as error:
                raise ValueError(f"training.{where}: {error}") from None
            micro = self.training.micro_batch_size
            if micro is not None and per_rank % micro:
                divisors = [d for d in range(1, per_rank + 1) if per_rank % d == 0]
                raise ValueError(
                    f"training.{where}: {per_rank} sequences per rank are not a multiple of "
                    f"micro_batch_size {micro}; use one of {', '.join(map(str, divisors[:12]))}"
                )
        return self

    def micro_batch_size_at(self, step: int) -> int:
        """Sequences per forward pass on one rank at `step`: as given, or the largest divisor that keeps
        a forward pass at or below 8,192 tokens."""
        if self.training.micro_batch_size is not None:
            return self.training.micro_batch_size
        per_rank = self.layout.sequences_per_rank(self.training.batch_size_at(step))
        most = max(1, _LARGEST_DERIVED_MICRO_BATCH_TOKENS // self.training.sequence_length)
        return max(d for d in range(1, per_rank + 1) if per_rank % d == 0 and d <= most)

    def accumulation_at(self, step: int) -> int:
        """Forward passes per rank that add up to one optimizer step."""
        per_rank = self.layout.sequences_per_rank(self.training.batch_size_at(step))
        return per_rank // self.micro_batch_size_at(step)
