"""What the record keeps of a step."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stoker.data.feeding import Feed
from stoker.data.feeding.sample_index import Integers
from stoker.parallel import World
from stoker.parallel.module_sums import ModuleSums
from stoker.recipe import Recipe
from stoker.training.clock import StepTimes
from stoker.training.memory import (
    allocated_memory_bytes,
    host_memory_bytes,
    peak_memory_bytes,
    reserved_memory_bytes,
)
from stoker.training.position import Position
from stoker.training.step import StepResult


def step_row(
    recipe: Recipe,
    feed: Feed,
    world: World,
    position: Position,
    step: int,
    result: StepResult,
    times: StepTimes,
) -> dict[str, Any]:
    """The row of `step`, whose time went as `times` says."""
    first, after = recipe.training.samples_of(step)
    given = stretches_of(feed.samples(step))
    return {
        "attempt": position.attempt,
        "step": step,
        "time": time.time(),
        "loss": result.loss,
        "loss_by_source": result.loss_by_source,
        "loss_by_position": result.loss_by_position,
        "tokens_by_source": result.tokens_by_source,
        "gradient_norm": result.gradient_norm,
        "gradient_norm_by_module": result.gradient_norm_by_module,
        "learning_rate": result.learning_rate,
        "tokens": result.tokens,
        "tokens_seen": position.tokens_seen,
        "first_sample": first,
        "last_sample": after,
        "given_samples": None if given == [[first, after]] else given,
        "batch_digest": feed.digest(step) if world.is_first else None,
        "accumulation": recipe.accumulation_at(step),
        "clipped": result.clipped,
        "skipped": result.skipped,
        "loss_scale": result.loss_scale,
        "dead_updates": result.dead_updates,
        "began": times.began,
        "seconds": times.seconds,
        "arrived": times.arrived,
        "waited": times.waited,
        "memory_peak_bytes": peak_memory_bytes(world.device),
        "memory_reserved_bytes": reserved_memory_bytes(world.device),
        "memory_allocated_bytes": allocated_memory_bytes(world.device),
        "host_memory_bytes": host_memory_bytes(),
        "ranks": world.layout.world_size,
    }


def bounds_of(samples: Integers) -> tuple[int, int]:
    """The lowest of sample numbers, and the highest + 1."""
    return int(samples.min()), int(samples.max()) + 1


def stretches_of(samples: Integers) -> list[list[int]]:
    """Sample numbers in their order, as stretches in which each follows the one before: first and last + 1."""
    begins = np.flatnonzero(np.diff(samples, prepend=samples[:1] - 2) != 1)
    ends = np.append(begins[1:], samples.size) - 1
    return [[int(samples[begin]), int(samples[end]) + 1] for begin, end in zip(begins, ends, strict=True)]


def weight_norm(modules: Mapping[str, ModuleSums]) -> float | None:
    """Of all parameters; None where they were not looked at. Parts of blocks are in the blocks already."""
    squares = [sums.weight_square for name, sums in modules.items() if name.count(".") < 2]
    return math.sqrt(sum(squares)) if squares else None


def module_rows(
    modules: Mapping[str, ModuleSums], activations: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """What is known of each module, but for when."""
    for name in dict.fromkeys([*modules, *activations]):
        row: dict[str, Any] = {"module": name}
        if name in modules and (count := modules[name].parameters):
            sums = modules[name]
            row["parameters"], row["weight_rms"] = count, math.sqrt(sums.weight_square / count)
            row["gradient_norm"] = math.sqrt(sums.gradient_square)
            row["gradient_rms"] = math.sqrt(sums.gradient_square / count)
            if sums.update_square is not None:
                row["update_rms"] = math.sqrt(sums.update_square / count)
                if sums.weight_square:
                    row["update_to_weight"] = math.sqrt(sums.update_square / sums.weight_square)
        yield {**row, **activations.get(name, {})}


def routing_rows(attempt: int, step: int, result: StepResult, by_expert: bool) -> Iterator[dict[str, Any]]:
    """How evenly the experts of each block were used; loads are over the mean of all experts."""
    for module, found in result.routing.items():
        counts, tokens = found.tokens_per_expert, max(int(found.tokens), 1)
        choices = max(int(counts.sum()), 1)
        row = {
            "attempt": attempt,
            "step": step,
            "time": time.time(),
            "module": module,
            "largest_load": float(counts.max()) * len(counts) / choices,
            "smallest_load": float(counts.min()) * len(counts) / choices,
            "dropped": int(found.dropped) / choices,
            "entropy": float(found.entropy) / tokens,
            "auxiliary_loss": float(found.auxiliary_loss) / tokens,
            "z_loss": float(found.z_loss) / tokens,
        }
        if by_expert:
            row["tokens_by_expert"] = {str(expert): int(count) for expert, count in enumerate(counts)}
        yield row
