"""A layout: how ranks are arranged. One frozen value, made once, asked by everyone.

Whether a layout is valid is decided here (`stoker.layout.validity`) and nowhere else.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stoker.errors import BadInput

ContextParallelMethod = Literal["ring", "all_gather", "ulysses"]
PipelineScheduleName = Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipe_v"]
DIMENSIONS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Dimensions of the world, slowest first: neighbouring ranks are tensor-parallel."""
_TWO_STAGES = ("interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipe_v")


class Coordinate(NamedTuple):
    """Where one rank stands on each dimension."""

    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int


class Layout(BaseModel):
    """How the ranks of a run divide the work.

    The world size is the product of pp, dp_replicate, dp_shard, cp and tp; `ep` borrows ranks of
    dp_replicate, dp_shard and cp (and of tp without `expert_tp`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dp_replicate: int = Field(
        default=1, ge=1, description="Copies of the model, each trained on its own part of the batch."
    )
    dp_shard: int = Field(
        default=1,
        ge=1,
        description="Ranks over which one copy's parameters, gradients and optimizer state are sharded (FSDP).",
    )
    tp: int = Field(
        default=1,
        ge=1,
        description="Ranks that divide matrices, vocabulary and residual stream (tensor and sequence parallel).",
    )
    pp: int = Field(default=1, ge=1, description="Ranks that divide the layers (pipeline parallel).")
    cp: int = Field(default=1, ge=1, description="Ranks that divide each sequence (context parallel).")
    ep: int = Field(default=1, ge=1, description="Ranks that divide the experts of a mixture (expert parallel).")
    zero_stage: Literal[1, 2, 3] = Field(
        default=3,
        description="What dp_shard spreads between a step's passes: 1 the optimizer state, 2 gradients too, "
        "3 weights too.",
    )
    cp_method: ContextParallelMethod = Field(
        default="ring", description="How attention reaches the other parts of a sequence divided over cp."
    )
    expert_tp: bool = Field(
        default=True,
        description="Divide each expert over tp too; otherwise experts are whole and ep takes tp's ranks as well.",
    )
    pipeline_schedule: PipelineScheduleName = Field(
        default="1f1b", description="Order of forward and backward passes over pipeline stages."
    )
    stages_per_rank: int | None = Field(
        default=None,
        ge=1,
        description="Pipeline stages on each rank; by default 2 for schedules that need it, else 1.",
    )
    gradient_bucket_mib: float = Field(
        default=25.0, gt=0, description="Gradients of dp_replicate are summed in buckets of about this many MiB."
    )

    @model_validator(mode="after")
    def _schedule_has_its_stages(self) -> Layout:
        several = self.pipeline_schedule in _TWO_STAGES
        if self.stages_per_rank is not None and self.pp > 1:
            if self.pipeline_schedule in ("zbv", "dualpipe_v") and self.stages_per_rank != 2:
                raise ValueError(f"pipeline_schedule {self.pipeline_schedule} has 2 stages per rank")
            if several != (self.stages_per_rank > 1):
                wanted = "2 or more" if several else "1"
                raise ValueError(
                    f"pipeline_schedule {self.pipeline_schedule} has {wanted} stages per rank, "
                    f"but stages_per_rank is {self.stages_per_rank}"
                )
        return self

    @property
    def world_size(self) -> int:
        """Number of ranks (processes)."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    @property
    def data_parallel_size(self) -> int:
        """Number of parts of the batch: ranks with different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def shard_size(self) -> int:
        """Ranks over which parameters are sharded (FSDP): context-parallel ranks take part when there are any."""
        return self.dp_shard * self.cp if self.dp_shard > 1 else 1

    @property
    def replicate_size(self) -> int:
        """Ranks that hold the same parameters and see other tokens."""
        return self.dp_replicate * self.dp_shard * self.cp // self.shard_size

    @property
    def stages(self) -> int:
        """Pipeline stages of all ranks."""
        if self.pp == 1:
            return 1
        return self.pp * (self.stages_per_rank or (2 if self.pipeline_schedule in _TWO_STAGES else 1))

    @property
    def expert_tp_size(self) -> int:
        """Ranks over which each expert's matrices are divided."""
        return self.tp if self.expert_tp else 1

    @property
    def expert_ranks(self) -> int:
        """Ranks of one pipeline stage that `ep` may borrow."""
        return self.dp_replicate * self.dp_shard * self.cp * (1 if self.expert_tp else self.tp)

    def coordinate(self, rank: int) -> Coordinate:
        """Where `rank` stands."""
        rest, places = rank, []
        for size in (self.tp, self.cp, self.dp_shard, self.dp_replicate, self.pp):
            rest, place = divmod(rest, size)
            places.append(place)
        return Coordinate(*reversed(places))

    def data_parallel_rank(self, rank: int) -> int:
        """Which part of the batch `rank` has."""
        at = self.coordinate(rank)
        return at.dp_replicate * self.dp_shard + at.dp_shard

    def __str__(self) -> str:
        dimensions = [f"{name}={getattr(self, name)}" for name in (*DIMENSIONS, "ep") if getattr(self, name) > 1]
        if self.pp > 1:
            dimensions.append(self.pipeline_schedule)
        if self.cp > 1:
            dimensions.append(self.cp_method)
        if self.dp_shard > 1 and self.zero_stage != 3:
            dimensions.append(f"zero_stage={self.zero_stage}")
        if self.ep > 1 and self.tp > 1 and not self.expert_tp:
            dimensions.append("whole experts")
        return " × ".join(dimensions) if dimensions else "one process"

    def sequences_per_rank(self, global_batch_size: int) -> int:
        """Sequences each data-parallel rank sees in one step of `global_batch_size` sequences.

        Raises `BadInput` when the batch does not divide, naming the nearest batches that do.
        """
        ranks = self.data_parallel_size
        if global_batch_size % ranks:
            below, above = global_batch_size // ranks * ranks, -(-global_batch_size // ranks) * ranks
            nearest = " or ".join(str(size) for size in dict.fromkeys((below, above)) if size > 0)
            raise BadInput(
                f"global_batch_size {global_batch_size} cannot be split evenly over {ranks} "
                f"data-parallel ranks ({self}); use {nearest}, or another layout"
            )
        return global_batch_size // ranks
