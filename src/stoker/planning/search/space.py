"""Which configurations a search looks at: every way to divide the ranks that the layout's own rules allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from stoker.layout import Layout, PipelineScheduleName
from stoker.layout.validity import ModelShape, problems
from stoker.recipe import Recipe
from stoker.recipe.memory import Memory
from stoker.recipe.memory import Recompute as RecomputeSection

_LEAST_CHUNK_TOKENS = 128
"""Fewer tokens of a sequence on a context-parallel rank are not worth their messages."""
_LARGEST_MICRO_BATCH = 64
_MOST_STAGES_PER_RANK = 8
_DOMAINS_OF_A_SHARD = (4, 16)
_FURTHER_TP = 2
"""How many link domains a tensor-parallel group may span: across the network it never pays."""


@dataclass(frozen=True)
class Choices:
    """What a recipe fixes, and a search leaves as it is; None: open."""

    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    micro_batch_size: int | None = None

    @classmethod
    def fixed_by(cls, recipe: Recipe) -> Choices:
        """The micro-batch, where the recipe gives one."""
        return cls(micro_batch_size=recipe.training.micro_batch_size)


LADDER: tuple[RecomputeSection, ...] = (
    RecomputeSection(),
    RecomputeSection(name="operations"),
    RecomputeSection(name="operations", operations=("attention",)),
    RecomputeSection(name="operations", operations=("attention", "feed_forward")),
    RecomputeSection(name="full", every=2),
    RecomputeSection(name="full"),
)
"""What may be computed again, the cheapest first: the first rung that fits is the one to stand on."""
LAST_RESORTS = (
    Memory(recompute=LADDER[-1], offload_optimizer=True),
    Memory(recompute=LADDER[-1], offload_activations=True, offload_optimizer=True),
    Memory(recompute=LADDER[-1], offload_activations=True, offload_parameters=True),
)
"""Where not even full recomputation fits."""


def is_possible(recipe: Recipe) -> bool:
    """Whether the recipe's own rules allow what has been put into it."""
    try:
        Recipe.model_validate(recipe.model_dump())
    except ValidationError:
        return False
    return True


def divisors(number: int) -> list[int]:
    """All, smallest first."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def layouts(shape: ModelShape, ranks: int, link_domain: int, choices: Choices) -> Iterator[Layout]:
    """Every way to divide `ranks` that can train a model of `shape`, pipelines by 1F1B."""
    largest_tp = min(shape.heads, _FURTHER_TP * link_domain)
    for tp in _among(divisors(ranks), choices.tp, largest_tp):
        for pp in _among(divisors(ranks // tp), choices.pp, shape.layers):
            most = shape.sequence_length // (2 * _LEAST_CHUNK_TOKENS)
            for cp in _among(divisors(ranks // tp // pp), choices.cp, most):
                dp = ranks // tp // pp // cp
                if any(size % dp for size in shape.batch_sizes):
                    continue
                for one in _data_parallel(Layout(tp=tp, pp=pp, cp=cp), dp, link_domain):
                    for found in _with_experts(one, shape, choices.ep):
                        if not problems(found, shape):
                            yield found


def _among(sizes: list[int], fixed: int | None, most: int) -> list[int]:
    if fixed is not None:
        return [size for size in sizes if size == fixed]
    return [size for size in sizes if size <= max(1, most)]


def _data_parallel(layout: Layout, dp: int, link_domain: int) -> Iterator[Layout]:
    """Copies and shards: nothing sharded, all sharded, sharded within a link domain or over a few of them."""
    near = max((d for d in divisors(dp) if d * layout.tp * layout.cp <= link_domain), default=1)
    several = {near * factor for factor in _DOMAINS_OF_A_SHARD if dp % (near * factor) == 0}
    for shard in sorted({1, near, *several, dp}):
        sizes = {"dp_shard": shard, "dp_replicate": dp // shard}
        if shard == 1:
            yield layout.model_copy(update=sizes)
            continue
        for stage in (1, 2, 3):
            yield layout.model_copy(update={**sizes, "zero_stage": stage})


def _with_experts(layout: Layout, shape: ModelShape, fixed: int | None) -> Iterator[Layout]:
    if shape.experts is None:
        if fixed in (None, 1):
            yield layout
        return
    for divided in (True, False) if layout.tp > 1 else (True,):
        one = layout.model_copy(update={"expert_tp": divided})
        for ep in _among(divisors(math.gcd(shape.experts, one.expert_ranks)), fixed, shape.experts):
            yield one.model_copy(update={"ep": ep})


def schedules(layout: Layout, shape: ModelShape) -> Iterator[Layout]:
    """`layout` with every schedule that may be better than 1F1B and that the model has layers for."""
    if layout.pp == 1:
        return
    wanted: list[tuple[PipelineScheduleName, int]] = [("zbv", 2), ("dualpipe_v", 2), ("interleaved_zero_bubble", 2)]
    wanted += [("interleaved_1f1b", v) for v in range(2, _MOST_STAGES_PER_RANK + 1)]
    for name, stages in wanted:
        one = layout.model_copy(update={"pipeline_schedule": name, "stages_per_rank": stages})
        if not problems(one, shape):
            yield one


def micro_batch_sizes(layout: Layout, shape: ModelShape, fixed: int | None) -> list[int]:
    """Sizes that divide what a rank has of every batch."""
    each = math.gcd(*(size // layout.data_parallel_size for size in shape.batch_sizes))
    if fixed is not None:
        return [fixed] if each % fixed == 0 else []
    return [size for size in divisors(each) if size <= _LARGEST_MICRO_BATCH]


def typed_memory(memory: Memory) -> tuple[str, ...]:
    """What `training.memory` says, as overrides."""
    typed = []
    for name, value in memory.model_dump(exclude_defaults=True).items():
        for field, one in value.items() if isinstance(value, dict) else [("", value)]:
            shown = f"[{','.join(one)}]" if isinstance(one, (list, tuple)) else str(one).lower()
            typed.append(f"training.memory.{name}{f'.{field}' if field else ''}={shown}")
    return tuple(typed)


def as_recipe(recipe: Recipe, layout: Layout, micro_batch_size: int, memory: Memory) -> Recipe:
    """`recipe` with a configuration put in."""
    training = recipe.training.model_copy(update={"micro_batch_size": micro_batch_size, "memory": memory})
    return recipe.model_copy(update={"layout": layout, "training": training})
