"""A plan in words: the reasons behind its figures, its warnings, and its table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stoker.layout.validity import remarks
from stoker.model import flops_per_token, parameter_count
from stoker.planning.host_memory import HostMemory, parts_of
from stoker.planning.machine import Machine
from stoker.planning.memory import MemoryBytes, allocator_bytes, host_bytes_of_rank, recomputation_of_rank
from stoker.planning.operations import DOCUMENTS_PER_SEQUENCE
from stoker.planning.remedies import Remedy
from stoker.plural import counted
from stoker.recipe import Recipe
from stoker.recipe.stages import stage_layers
from stoker.wording import size

_GIB = 2**30


def reasons_of(
    recipe: Recipe,
    vocabulary_size: int,
    global_batch_size: int,
    machine: Machine,
    memory: MemoryBytes,
    without: MemoryBytes,
    repeating: float,
) -> tuple[str, ...]:
    """Why the figures are what they are, a line each.

    `without` is `memory` if nothing were computed again, `repeating` the seconds of a step that this takes.
    """
    training, layout = recipe.training, recipe.layout
    count = parameter_count(recipe.model, vocabulary_size, training.sequence_length)
    flops = flops_per_token(recipe.model, vocabulary_size, training.sequence_length)
    per_rank = layout.sequences_per_rank(global_batch_size)
    rates = machine.rates
    lines = [
        f"{counted(count.total, 'parameters')}, {count.matrix - count.idle:,} of them in matrix products with "
        "every token",
        f"{flops.full:,} FLOPs per token: {flops.matrix:,} in matrices and {flops.attention_full:,} in attention, "
        "as if nothing were masked",
        f"{counted(global_batch_size, 'sequences')} over {counted(layout.data_parallel_size, 'ranks')}: "
        f"{per_rank} each",
        f"measured with {counted(machine.threads, 'threads')}: "
        f"{rates.matmul_flops_per_second / 1e9:,.0f} GFLOP/s in large {machine.precision or training.precision} "
        "products, "
        f"{rates.attention_flops_per_second / 1e9:,.0f} in attention, "
        f"{rates.copy_bytes_per_second / 1e9:,.1f} GB/s in copies",
    ]
    lines += _of_layout(recipe, vocabulary_size)
    lines += _of_memory(recipe, vocabulary_size, machine, memory, without, repeating)
    parts = memory.parameters + memory.gradients + memory.optimizer + memory.activations + memory.buffers
    if memory.total < parts:
        lines.append(
            f"the categories are not at their highest at the same time: {size(parts)} together, "
            f"{size(memory.total)} at most at once"
        )
    if recipe.training.document_mask:
        lines.append(
            f"time of attention is for {DOCUMENTS_PER_SEQUENCE} documents in each sequence; fewer take longer"
        )
    if machine.runtime_bytes:
        lines.append(
            f"buffers and total hold {size(machine.runtime_bytes)} of Python and its libraries, and "
            f"{size(allocator_bytes(memory, machine.device))} that the allocator cannot use between blocks"
        )
    if machine.device == "cpu":
        lines.append("model FLOPs utilisation is over the measured matrix-multiply rate")
    elif (peak := machine.peak_flops_per_second(training.precision)) is not None:
        assert machine.accelerator is not None
        lines.append(f"peak {peak / 1e12:,.0f} TFLOP/s as published ({machine.accelerator.source})")
    return tuple(lines)


_SHARDED = {
    1: "optimizer state is sharded over {ranks} by rows, rounded up; weights are gathered for the step, and "
    "gradients are whole until its last micro-batch",
    2: "gradients and optimizer state are sharded over {ranks} by rows, rounded up; weights are gathered for the "
    "step",
    3: "parameters, gradients and optimizer state are sharded over {ranks} by rows, rounded up; whole weights of a "
    "block are gathered while it computes",
}


def _of_layout(recipe: Recipe, vocabulary_size: int) -> Iterator[str]:
    """What each dimension of the layout divides."""
    layout, model = recipe.layout, recipe.model
    if layout.dp_shard > 1:
        yield _SHARDED[layout.zero_stage].format(ranks=counted(layout.shard_size, "ranks"))
    if layout.tp > 1:
        yield (
            f"heads, inner columns, vocabulary and the residual stream are divided over {layout.tp} ranks; each "
            "half of a block gathers the tokens and sums its outputs"
        )
    if layout.cp > 1:
        yield f"each sequence is divided over {layout.cp} ranks; attention reaches the others by {layout.cp_method}"
    if layout.ep > 1 and model.moe is not None:
        own, all_of_them = model.moe.experts // layout.ep, model.moe.experts
        yield f"each rank has {own} of {all_of_them} experts; load is taken to be even"
    if layout.pp > 1:
        stages = stage_layers(model, vocabulary_size, recipe.training.sequence_length, layout)
        sizes = sorted({len(layers) for layers in stages})
        each = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        passes = counted(recipe.accumulation_at(recipe.training.steps), "micro-batches")
        yield (
            f"{len(stages)} pipeline stages of {each} layers; {layout.pipeline_schedule} takes {passes} through "
            "them in a step"
        )


def _of_memory(
    recipe: Recipe,
    vocabulary_size: int,
    machine: Machine,
    memory: MemoryBytes,
    without: MemoryBytes,
    repeating: float,
) -> Iterator[str]:
    """What each technique saves and costs."""
    wanted = recipe.training.memory
    if wanted.recompute.name != "none":
        found = recomputation_of_rank(recipe, vocabulary_size, machine.device, 0)
        layers = len(found.layers) + len(found.shares)
        saved = without.total - memory.total
        again = sorted({operation for choice in found.layers.values() for operation in choice})
        if recipe.model.moe is None and "experts" in again:
            again.remove("experts")
        what = ", ".join(one.replace("_", " ") for one in again) if again else "norms and activations alone"
        if found.shares:
            what = "what the compiler chooses"
        yield (
            f"{counted(layers, 'layers')} of the first rank compute again in backward ({what}): {size(saved)} "
            f"less at the highest moment for {_duration(repeating)} more a step"
        )
    where = "in host memory"
    if machine.device == "cpu":
        where += ", which is this device's own: nothing is saved"
    if wanted.offload_activations:
        yield f"activations rest {where}"
    if wanted.offload_parameters:
        yield f"parameters, gradients and optimizer state rest {where}"
    if wanted.offload_optimizer:
        yield f"optimizer state rests {where}"
    if wanted.offloads and machine.device != "cpu":
        resting = host_bytes_of_rank(recipe, vocabulary_size, recipe.micro_batch_size_at(1), 0)
        yield f"the first rank needs {size(resting)} of host memory for that"
    if wanted.release_gradients:
        yield "gradients that no sum over ranks follows are used and let go of while backward goes on"


def warnings_of(
    recipe: Recipe, machine: Machine, needed: float, fitting: Sequence[Remedy] | None
) -> tuple[str, ...]:
    """What the user should look at before starting."""
    lines = []
    if needed > machine.available_bytes:
        lines.append(
            f"needs {size(needed)}, but {size(machine.available_bytes)} of "
            f"{size(machine.memory_bytes)} are free; {remedy_of(fitting)}"
        )
    lines += remarks(recipe.layout, recipe.shape)
    if machine.precision not in (None, recipe.training.precision):
        lines.append(
            f"the machine was measured for {machine.precision}, but the recipe computes in "
            f"{recipe.training.precision}: measure again with this recipe (`stoker plan calibrate RECIPE`)"
        )
    ranks = recipe.layout.world_size
    if machine.device == "cpu" and machine.threads * machine.ranks_here(ranks) > machine.cores:
        lines.append(
            f"{counted(ranks, 'ranks')} with {counted(machine.threads, 'threads')} each "
            f"on {counted(machine.cores, 'processor cores')}: the threads slow each other down"
        )
    if machine.device == "cuda" and machine.peak_flops_per_second(recipe.training.precision) is None:
        lines.append(
            f"no published {recipe.training.precision} peak is known for {machine.name}: no model FLOPs utilisation"
        )
    return tuple(lines)


def remedy_of(fitting: Sequence[Remedy] | None) -> str:
    """What to do about a run that does not fit, from `what_fits`."""
    if not fitting:
        return "no smaller micro-batch, recomputation or sharding fits either"
    return "this would fit: " + "; or ".join(map(str, fitting))


def as_text(plan: dict[str, Any], layout: str) -> str:
    """A plan as lines for the terminal."""
    memory, seconds = plan["peak_memory_gib"], plan["step_seconds"]
    parts = ", ".join(f"{name} {size(value * _GIB)}" for name, value in memory.items() if name != "total")
    mfu = "" if plan["mfu"] is None else f", {plan['mfu']:.0%} of peak"
    lines = [
        f"machine   {plan['machine']}",
        f"model     {counted(plan['parameters'], 'parameters')}, sequences of "
        f"{counted(plan['sequence_length'], 'tokens')}",
        f"layout    {layout}",
        f"batch     {counted(plan['global_batch_size'], 'sequences')}: micro-batches of "
        f"{plan['micro_batch_size']}, accumulation {plan['accumulation']}",
        f"memory    {size(memory['total'] * _GIB)} per rank at most ({parts}); "
        f"{size(plan['available_memory_gib'] * _GIB)} free",
        f"host      {parts_of(HostMemory.model_validate(plan['host_memory_gib']))} of a node's memory; "
        f"{size(plan['host_memory_gib']['available'] * _GIB)} free",
        f"step      {_duration(seconds['total'])} ({_parts_of_step(seconds)})",
        f"speed     {plan['tokens_per_second']:,.0f} tokens/s{mfu}",
        f"in all    {counted(plan['steps'], 'steps')} in {_duration(plan['total_hours'] * 3600)}",
    ]
    lines += [f"reason    {line}" for line in plan["reasons"]]
    lines += [f"warning   {line}" for line in plan["warnings"]]
    return "\n".join(lines) + "\n"


_PARTS_OF_STEP = {
    "compute": "forward and backward",
    "recompute": "computing again",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "rows to experts and back",
    "dp": "sums of gradients",
    "pp_bubble": "waiting in the pipeline",
    "offload": "waiting for host memory",
    "optimizer": "optimizer",
}


def _parts_of_step(seconds: dict[str, float]) -> str:
    always = ("compute", "optimizer")
    shown = [name for name in _PARTS_OF_STEP if seconds[name] or name in always]
    return ", ".join(f"{_PARTS_OF_STEP[name]} {_duration(seconds[name])}" for name in shown)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
