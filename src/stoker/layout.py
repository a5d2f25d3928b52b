"""A layout: how ranks are arranged. One frozen value, made once, asked by everyone.

Whether a layout is valid is decided here and nowhere else.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from stoker.errors import BadInput


class Layout(BaseModel):
    """How the ranks of a run divide the work.

    The world size is the product of all dimensions. Ranks are numbered with
    `dp_shard` fastest, so that the ranks that share one sharded copy of the model
    are neighbours.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dp_replicate: int = Field(
        default=1, ge=1, description="Copies of the model, each trained on its own part of the batch."
    )
    dp_shard: int = Field(
        default=1,
        ge=1,
        description="Ranks over which one copy's parameters, gradients and optimizer state are sharded (FSDP).",
    )

    @property
    def world_size(self) -> int:
        """Number of ranks (processes)."""
        return self.dp_replicate * self.dp_shard

    @property
    def data_parallel_size(self) -> int:
        """Number of ranks that see different samples."""
        return self.dp_replicate * self.dp_shard

    def __str__(self) -> str:
        dimensions = [f"{name}={size}" for name, size in self.model_dump().items() if size > 1]
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

    def require_world_size(self, world_size: int) -> None:
        """Raise `BadInput` unless exactly `world_size` processes were started."""
        if world_size != self.world_size:
            raise BadInput(
                f"layout {self} needs {self.world_size} processes, but {world_size} were started; "
                f"set layout.dp_replicate or layout.dp_shard so that their product is {world_size}"
            )
