"""The sections that say how a run is kept, watched and evaluated: `checkpoint`, `telemetry`, `evaluation`."""

from __future__ import annotations

from pydantic import Field, field_validator

from stoker.recipe.section import Section


class Checkpoint(Section):
    """When state is saved, and which checkpoints are kept."""

    every: int = Field(default=100, ge=1)
    """Steps between checkpoints; the last step is always saved."""
    folder: str | None = None
    """Where they are kept, if not in the run's own folder: a path, relative to the recipe, or the URL of a folder
    in an object store (`s3://bucket/run`), for which the store's fsspec package must be installed. No two runs may
    share one. The run's own copy of the recipe has the whole path."""
    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""
    keep_every: int | None = Field(default=None, ge=1)
    """Checkpoints at multiples of this step are kept for good."""
    keep_best: int = Field(default=0, ge=0)
    """Checkpoints with the smallest loss on held-out documents, of those whose step was evaluated, that are kept
    besides."""

    @field_validator("folder")
    @classmethod
    def _is_path_or_url(cls, folder: str | None) -> str | None:
        if folder is None or "://" in folder:
            return folder
        if not folder.strip():
            raise ValueError(f"expected a path or a URL such as s3://bucket/run, got {folder!r}")
        if ":" in folder.split("/")[0]:
            raise ValueError(
                f"expected a path or a URL such as s3://bucket/run, got {folder!r}; write ./{folder} if that is "
                "the name of a folder"
            )
        return folder


class Telemetry(Section):
    """What is recorded besides the figures of every step."""

    modules_every: int = Field(default=10, ge=1)
    """Steps between records of each module's weights, gradients, updates, activations and attention, and of the
    tokens of each expert."""
    worst_documents: int = Field(default=4, ge=0)
    """Documents of each step, of each rank's samples, whose loss is recorded: those with the largest. 0 records
    none."""
    machine_seconds: float = Field(default=10.0, ge=0)
    """Seconds between records of the machine's state: memory, processors, network; of an accelerator its use,
    clock, temperature, power and errors. 0 records none."""
    timeline_every: int = Field(default=100, ge=0)
    """Steps between records of when each phase of a step began and ended on each rank. 0 records none."""
    flush_seconds: float = Field(default=1.0, ge=0)
    """Longest time a recorded row may wait in memory."""


class Evaluation(Section):
    """Evaluation on held-out documents during training, and samples of generated text."""

    every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0 evaluates only after the last step."""
    sequences: int = Field(default=32, ge=1)
    """Most sequences per source that one evaluation reads."""
    micro_batch_size: int = Field(default=8, ge=1)
    prompts: tuple[str, ...] = ()
    """Texts that are continued at every evaluation, to be shown in the report."""
    sample_tokens: int = Field(default=48, ge=1)
    """Tokens generated for each prompt."""
    temperature: float = Field(default=0.8, ge=0)
    """0 takes the likeliest token."""
