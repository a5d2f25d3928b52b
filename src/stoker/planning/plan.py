"""The plan: what a run will need and how long it will take, with the reasons, before it is started."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.model import flops_per_token, parameter_count
from stoker.planning.explanation import as_text, reasons_of, remedy_of, warnings_of
from stoker.planning.host_memory import HostMemory, copied_bytes, host_memory, missing_on_host, offloaded_bytes
from stoker.planning.machine import Hardware, Machine
from stoker.planning.memory import MemoryBytes, allocator_bytes, pass_of, peak_memory
from stoker.planning.parts import parts_of_rank, ranks_that_differ
from stoker.planning.remedies import Remedy, remedies
from stoker.planning.time import (
    communication_seconds,
    exposed_seconds,
    offload_seconds,
    partial_seconds,
    pass_seconds,
    update_seconds,
)
from stoker.recipe import Recipe
from stoker.recipe.memory import Recompute
from stoker.wording import size

_GIB = 2**30
_LAYERS_COUNTED = 50_000
_MARGIN = 1.1
"""A run is refused when it needs this many times what is free: the account of memory is good to a tenth."""


class PeakMemory(BaseModel):
    """GiB on the rank that holds most, each category at its own highest; `total` at a step's highest moment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    """Copies and gathered weights, what the optimizer needs for a moment, and on a processor the libraries."""
    total: float


class StepSeconds(BaseModel):
    """Seconds of one step on the rank that computes longest, and what it waits for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compute: float
    """Forward and backward."""
    recompute: float
    """What backward computes again in place of keeping it."""
    tp: float
    cp: float
    ep: float
    dp: float
    """Gradients and weights that it waits for; what goes on behind the computation does not count."""
    pp_bubble: float
    """Waiting for others of its pipeline."""
    offload: float
    """Copies to host memory and back that it waits for."""
    optimizer: float
    total: float
    """Their sum."""


class Plan(BaseModel):
    """What was predicted for a recipe on a machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: str
    layout: Layout
    global_batch_size: int
    """Sequences per step, at the largest batch of the ramp; the figures of a step are for this size."""
    micro_batch_size: int
    accumulation: int
    sequence_length: int
    steps: int
    parameters: int
    peak_memory_gib: PeakMemory
    available_memory_gib: float
    """Free memory that the ranks of this machine share (processor), or that each has (accelerator)."""
    needed_memory_gib: float
    """What all ranks that share `available_memory_gib` need of it together."""
    host_memory_gib: HostMemory
    """What they need of the node's own memory; on processors part of `needed_memory_gib`."""
    step_seconds: StepSeconds
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    """Per rank."""
    model_flops_per_step: float
    """Of all ranks; a multiply-add is two, attention as if nothing were masked, recomputation not counted."""
    mfu: float | None
    """Model FLOPs over the peak of all ranks; None for an accelerator whose peak is not in the table."""
    total_hours: float
    """All steps, without evaluation and checkpoints."""
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    def explain(self) -> str:
        """Why the figures are what they are, a line each."""
        return "\n".join(self.reasons)

    def __str__(self) -> str:
        return as_text(self.model_dump(), str(self.layout))


@dataclass(frozen=True)
class _Stage:
    """A stretch of steps with one batch size."""

    first_step: int
    steps: int
    global_batch_size: int


def make_plan(recipe: Recipe, vocabulary_size: int, machine: Machine) -> Plan:
    """Predict memory and time of training `recipe` on `machine`.

    Ranks are taken to be alike. A recipe that does not fit is planned all the same, with a warning that
    says what would fit; `require_fits` refuses it.
    """
    stages = list(_stages(recipe))
    seconds = [_step_seconds(recipe, vocabulary_size, stage.first_step, machine) for stage in stages]
    total_seconds = sum(stage.steps * one.total for stage, one in zip(stages, seconds, strict=True))
    largest = max(range(len(stages)), key=lambda i: stages[i].global_batch_size)
    stage, step_seconds = stages[largest], seconds[largest]
    memory = max(
        (_memory(recipe, vocabulary_size, s.first_step, machine) for s in stages),
        key=lambda m: m.total + beside_bytes(m, machine),
    )
    training, ranks = recipe.training, recipe.layout.world_size
    tokens = stage.global_batch_size * training.sequence_length
    flops = float(flops_per_token(recipe.model, vocabulary_size, training.sequence_length).full * tokens)
    peak = machine.peak_flops_per_second(training.precision)
    needed = needed_bytes(recipe, vocabulary_size, machine)
    on_host = host_memory(recipe, vocabulary_size, machine)
    fitting = None
    if needed > machine.available_bytes:
        fitting = what_fits(recipe, vocabulary_size, machine)
    return Plan(
        machine=machine.name,
        layout=recipe.layout,
        global_batch_size=stage.global_batch_size,
        micro_batch_size=recipe.micro_batch_size_at(stage.first_step),
        accumulation=recipe.accumulation_at(stage.first_step),
        sequence_length=training.sequence_length,
        steps=training.steps,
        parameters=parameter_count(recipe.model, vocabulary_size, training.sequence_length).total,
        peak_memory_gib=_in_gib(memory, beside_bytes(memory, machine)),
        available_memory_gib=machine.available_bytes / _GIB,
        needed_memory_gib=needed / _GIB,
        host_memory_gib=on_host,
        step_seconds=step_seconds,
        tokens_per_second=tokens / step_seconds.total,
        tokens_per_second_per_gpu=tokens / step_seconds.total / ranks,
        model_flops_per_step=flops,
        mfu=None if peak is None else flops / step_seconds.total / (peak * ranks),
        total_hours=total_seconds / 3600,
        reasons=reasons_of(
            recipe,
            vocabulary_size,
            stage.global_batch_size,
            machine,
            memory,
            _memory(_without_recompute(recipe), vocabulary_size, stage.first_step, machine),
            step_seconds.recompute,
        ),
        warnings=(
            *warnings_of(recipe, machine, needed, fitting),
            *missing_on_host(on_host, recipe, machine.device, _MARGIN),
        ),
    )


def require_fits(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> None:
    """Raise `BadInput`, with what would fit, when `recipe` needs clearly more memory than is free.

    Worked out without allocating or measuring anything, however large the model is.
    """
    limit = hardware.available_bytes * _MARGIN
    needed = _least_bytes(recipe, vocabulary_size, hardware)
    remedy = "Weights and gradients alone, each held once, do not fit: use a smaller model"
    if needed <= limit:
        needed = needed_bytes(recipe, vocabulary_size, hardware)
        if needed <= limit:
            on_host = host_memory(recipe, vocabulary_size, hardware)
            if missing := list(missing_on_host(on_host, recipe, hardware.device, _MARGIN)):
                raise BadInput(f"this run would not fit: {missing[0]}")
            return
        remedy = remedy_of(what_fits(recipe, vocabulary_size, hardware))
    raise BadInput(
        f"this run would not fit: it needs {size(needed)}, but {hardware.name} has "
        f"{size(hardware.available_bytes)} free. {remedy}"
    )


def _least_bytes(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> int:
    """Less than any layout needs: known at once for a model whose parts are too many to look at."""
    # Layers are counted one by one; beyond so many the mean of these stands for the others.
    layers = min(recipe.model.layers, _LAYERS_COUNTED)
    part = recipe.model.model_copy(update={"layers": layers})
    parameters = parameter_count(part, vocabulary_size, recipe.training.sequence_length).total
    parameters = parameters * recipe.model.layers // layers
    ranks = recipe.layout.world_size
    if hardware.device == "cuda" and recipe.training.memory.offload_parameters:
        return 0
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    each = 1 if recipe.training.memory.release_gradients else 2
    return each * width * parameters * hardware.ranks_here(ranks) // ranks


def needed_bytes(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> int:
    """What all ranks that share one memory need of it together, at the highest moment of the run."""
    moments = [_memory(recipe, vocabulary_size, stage.first_step, hardware) for stage in _stages(recipe)]
    highest = max(moment.total + beside_bytes(moment, hardware) for moment in moments)
    copied = copied_bytes(recipe, vocabulary_size, hardware) if hardware.device == "cpu" else 0
    return highest * hardware.ranks_here(recipe.layout.world_size) + copied


def beside_bytes(memory: MemoryBytes, hardware: Hardware) -> int:
    """What a rank holds besides tensors: Python, its libraries, and what the allocator cannot use."""
    return hardware.runtime_bytes + allocator_bytes(memory, hardware.device)


def what_fits(recipe: Recipe, vocabulary_size: int, machine: Hardware, beyond: float = 1.0) -> list[Remedy]:
    """The cheapest changes with which `recipe` fits, where runs need `beyond` times what is predicted."""

    def needed(changed: Recipe) -> float:
        if machine.device != "cpu":  # a processor's memory is the host's, and all is counted there
            on_host = offloaded_bytes(changed, vocabulary_size, machine)
            on_host += copied_bytes(changed, vocabulary_size, machine)
            if on_host > machine.host_available_bytes:
                return math.inf
        return beyond * needed_bytes(changed, vocabulary_size, machine)

    return remedies(
        recipe,
        vocabulary_size,
        needed,
        machine.available_bytes,
        machine.accelerator,
        machine.device == "cuda",
    )


def _stages(recipe: Recipe) -> Iterator[_Stage]:
    training = recipe.training
    firsts = [1, *(ramp.step for ramp in training.batch_ramp if ramp.step <= training.steps)]
    for first, following in zip(firsts, [*firsts[1:], training.steps + 1], strict=True):
        yield _Stage(first, following - first, training.batch_size_at(first))


def _without_recompute(recipe: Recipe) -> Recipe:
    memory = recipe.training.memory.model_copy(update={"recompute": Recompute()})
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"memory": memory})})


def _memory(recipe: Recipe, vocabulary_size: int, step: int, machine: Hardware) -> MemoryBytes:
    micro, accumulation = recipe.micro_batch_size_at(step), recipe.accumulation_at(step)
    return peak_memory(recipe, vocabulary_size, micro, accumulation, machine.device)


def _step_seconds(recipe: Recipe, vocabulary_size: int, step: int, machine: Machine) -> StepSeconds:
    micro, accumulation = recipe.micro_batch_size_at(step), recipe.accumulation_at(step)
    pass_ = pass_of(recipe, vocabulary_size, micro, machine.device)
    passes = pass_seconds(recipe, vocabulary_size, pass_, accumulation, machine)
    ranks = {rank: parts_of_rank(recipe, vocabulary_size, rank) for rank in ranks_that_differ(recipe)}
    communication = max(communication_seconds(recipe, parts, machine, accumulation) for parts in ranks.values())
    busy = passes.compute + passes.recompute
    seconds = {
        "compute": passes.compute,
        "recompute": passes.recompute,
        "tp": passes.tp + max(partial_seconds(recipe, parts, machine) for parts in ranks.values()),
        "cp": passes.cp,
        "ep": passes.ep,
        "dp": exposed_seconds(communication, busy, machine, recipe.layout.world_size),
        "pp_bubble": passes.pp_bubble,
        "offload": max(
            offload_seconds(recipe, vocabulary_size, rank, parts, machine, (micro, accumulation), busy)
            for rank, parts in ranks.items()
        ),
        "optimizer": max(update_seconds(recipe, parts, machine) for parts in ranks.values()),
    }
    return StepSeconds(**seconds, total=sum(seconds.values()))


def _in_gib(memory: MemoryBytes, beside: int) -> PeakMemory:
    figures = {name: getattr(memory, name) / _GIB for name in PeakMemory.model_fields}
    figures["buffers"] += beside / _GIB
    figures["total"] += beside / _GIB
    assert all(math.isfinite(value) for value in figures.values())
    return PeakMemory(**figures)
