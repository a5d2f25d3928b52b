"""The recipe: one YAML file that says everything about a run, typed and frozen."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, model_validator

from stoker.layout import Layout
from stoker.layout.validity import ModelShape, problems, suggestion
from stoker.recipe.cleaning import Cleaning
from stoker.recipe.data import Data
from stoker.recipe.deduplication import Deduplication
from stoker.recipe.latent import LatentAttention
from stoker.recipe.mixing import DocumentLimits, Mixing, Stage
from stoker.recipe.mixture import MixtureOfExperts
from stoker.recipe.model import Model
from stoker.recipe.monitoring import Alerts, Exporters
from stoker.recipe.operation import Checkpoint, Evaluation, Telemetry
from stoker.recipe.recovery import Recovery
from stoker.recipe.section import Section
from stoker.recipe.source import Kind, PackageFiles, Source
from stoker.recipe.tokenizer import Tokenizer
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
    "Alerts",
    "BatchRamp",
    "Checkpoint",
    "Cleaning",
    "Data",
    "Deduplication",
    "DocumentLimits",
    "Evaluation",
    "Exporters",
    "Kind",
    "LatentAttention",
    "Layout",
    "Lion",
    "LossScale",
    "Mixing",
    "MixtureOfExperts",
    "Model",
    "Muon",
    "Optimizer",
    "PackageFiles",
    "Precision",
    "Recipe",
    "Recovery",
    "Schedule",
    "Section",
    "Source",
    "Stage",
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
    recovery: Recovery = Recovery()
    telemetry: Telemetry = Telemetry()
    evaluation: Evaluation = Evaluation()
    alerts: Alerts = Alerts()
    exporters: Exporters = Exporters()

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
        found = problems(self.layout, replace(self.shape, batch_sizes=()))
        if found:
            raise ValueError(f"layout: {'; '.join(found)}. {suggestion(self.layout, self.shape)}")
        steps = [1, *(ramp.step for ramp in self.training.batch_ramp)]
        if self.training.memory.release_gradients and (most := max(map(self.accumulation_at, steps))) > 1:
            remedy = f"set training.micro_batch_size={self.micro_batch_size_at(1) * most}, or a smaller batch"
            if self.training.batch_ramp:
                remedy = "use a smaller batch, more data-parallel ranks, or no batch_ramp"
            raise ValueError(
                f"training.memory.release_gradients uses a gradient after one micro-batch, but a rank has {most} "
                f"in a step; {remedy}"
            )
        if self.training.memory.offload_parameters and self.layout.zero_stage != 3:
            raise ValueError(
                "training.memory.offload_parameters lets a block's weights go after its forward pass, as "
                f"layout.zero_stage=3 says, but it is {self.layout.zero_stage}"
            )
        divided = [name for name in ("pp", "cp", "tp", "ep") if getattr(self.layout, name) > 1]
        if self.training.deterministic == "across_layouts" and divided:
            raise ValueError(
                f"training.deterministic: across_layouts holds for dp_replicate and dp_shard, but "
                f"layout.{divided[0]} is {getattr(self.layout, divided[0])}; set it to 1, or deterministic to "
                "same_layout"
            )
        return self

    @model_validator(mode="after")
    def _stages_are_in_order(self) -> Recipe:
        self.data.mixture.last_steps(self.training.steps)
        return self

    @model_validator(mode="after")
    def _gradients_can_be_copied(self) -> Recipe:
        if not self.recovery.copy_gradients_every:
            return self
        layout, training = self.layout, self.training
        for wrong, remedy in (
            (self.recovery.copy_every != 1, "recovery.copy_every=1: they belong to the state before their step"),
            (layout.pp > 1, "layout.pp=1: in a pipeline several micro-batches are under way at once"),
            (
                layout.dp_shard > 1 and (layout.dp_replicate > 1 or layout.zero_stage == 1),
                "layout.dp_replicate=1 and zero_stage 2 or 3 beside dp_shard: FSDP holds other sums back until the "
                "end of the step",
            ),
            (
                training.deterministic == "across_layouts",
                "training.deterministic=same_layout: a fixed order adds gradients up at the end of the step",
            ),
            (
                training.memory.release_gradients,
                "training.memory.release_gradients=false: it leaves no gradients",
            ),
        ):
            if wrong:
                raise ValueError(f"recovery.copy_gradients_every needs {remedy}")
        return self

    @model_validator(mode="after")
    def _rules_are_about_its_sources(self) -> Recipe:
        sources = [source.name for source in self.data.sources]
        for position, rule in enumerate(self.alerts.own):
            field, _, name = rule.figure.partition(".")
            if field.endswith("_by_source") and name not in sources:
                raise ValueError(
                    f"alerts.own[{position}]: no source is called {name!r}; there are {', '.join(sources)}"
                )
        return self

    @property
    def shape(self) -> ModelShape:
        """What decides which layouts are possible."""
        model, training = self.model, self.training
        sizes = [training.global_batch_size, *(ramp.global_batch_size for ramp in training.batch_ramp)]
        return ModelShape(
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.heads if model.latent_attention else model.key_value_heads,
            ffn_hidden_size=model.ffn_hidden_size,
            sequence_length=training.sequence_length,
            experts=model.moe.experts if model.moe else None,
            sliding_window=model.sliding_window,
            batch_sizes=tuple(sizes),
        )

    def micro_batch_size_at(self, step: int) -> int:
        """Sequences per forward pass on one rank at `step`: as given, or the largest divisor that keeps
        a forward pass at or below 8,192 tokens; 1 where bits must not depend on the layout."""
        if self.training.micro_batch_size is not None:
            return self.training.micro_batch_size
        if self.training.deterministic == "across_layouts":
            return 1  # any other size would depend on the layout
        per_rank = self.layout.sequences_per_rank(self.training.batch_size_at(step))
        most = max(1, _LARGEST_DERIVED_MICRO_BATCH_TOKENS // self.training.sequence_length)
        return max(d for d in range(1, per_rank + 1) if per_rank % d == 0 and d <= most)

    def accumulation_at(self, step: int) -> int:
        """Forward passes per rank that add up to one optimizer step."""
        per_rank = self.layout.sequences_per_rank(self.training.batch_size_at(step))
        return per_rank // self.micro_batch_size_at(step)
