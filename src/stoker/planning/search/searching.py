"""The best configuration for a recipe on a described cluster, and those that lost against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.planning.cluster import Cluster, Parallelism, Prediction, Workload, parallelism_of, predict, workload_of
from stoker.planning.cluster.memory import MemoryBytes, memory_bytes
from stoker.planning.cluster.parameters import Parameters, shipped_parameters
from stoker.planning.cluster.sizes import stage_sizes
from stoker.planning.search.space import (
    LADDER,
    LAST_RESORTS,
    Choices,
    as_recipe,
    divisors,
    is_possible,
    layouts,
    micro_batch_sizes,
    schedules,
    typed_memory,
)
from stoker.recipe import AdamW, Lion, Recipe
from stoker.recipe.memory import Memory

Goal = Literal["time", "cost"]
USABLE = 0.95
"""Share of an accelerator's memory that may be needed: predictions of memory are good to a few percent."""
_WITHIN = 1.35
"""Layouts that take up to so many times the best one's time by 1F1B are tried with other schedules too."""
_TRIED = 16
"""Numbers of nodes looked at between one that is too small and twice as many."""
_HOPELESS = 1.15
_MOST_REFINED = 300
_FIXED = "say layout and training.memory yourself and see what `stoker recipe check` says"
_AS_GOOD = 1.003
"""Of configurations this close the simplest is taken: predictions do not tell them apart."""


@dataclass(frozen=True)
class Candidate:
    """One configuration and what is predicted of it."""

    layout: Layout
    micro_batch_size: int
    memory: Memory
    prediction: Prediction

    @cached_property
    def seconds(self) -> float:
        """Of a step."""
        return self.prediction.seconds.total

    @property
    def accelerator_hours(self) -> float:
        """Of a step."""
        return self.seconds * self.layout.world_size / 3600

    def price(self, goal: Goal) -> float:
        """What is to be little: seconds of a step, or accelerator-hours."""
        return self.accelerator_hours if goal == "cost" else self.seconds

    def overrides(self) -> list[str]:
        """The configuration as one would type it behind a recipe."""
        defaults, found = Layout().model_dump(), []
        for name, value in self.layout.model_dump().items():
            if value != defaults[name]:
                found.append(f"layout.{name}={value}".replace("=False", "=false"))
        found.append(f"training.micro_batch_size={self.micro_batch_size}")
        found += typed_memory(self.memory)
        return found


@dataclass(frozen=True)
class Found:
    """What a search has found, the best first."""

    recipe: Recipe
    vocabulary_size: int
    cluster: Cluster
    goal: Goal
    candidates: Sequence[Candidate]
    """The best of each layout."""
    looked_at: int
    """Configurations whose time was predicted."""
    too_large: int
    """Layouts that no memory technique makes fit."""
    choices: Choices = field(default_factory=Choices)

    @property
    def best(self) -> Candidate:
        """The one to take."""
        return self.candidates[0]

    def price(self, one: Candidate) -> float:
        """Of the search's own goal."""
        return one.price(self.goal)

    def as_recipe(self) -> Recipe:
        """The recipe with the best configuration put in."""
        best = self.best
        return as_recipe(self.recipe, best.layout, best.micro_batch_size, best.memory)


def search(
    recipe: Recipe,
    vocabulary_size: int,
    cluster: Cluster,
    goal: Goal = "time",
    choices: Choices | None = None,
    ranks: int | None = None,
    parameters: Parameters | None = None,
    memory: Memory | None = None,
) -> Found:
    """The configuration with which a step of `recipe` takes least time, or fewest accelerator-hours, on `cluster`.

    All accelerators are used for `time`; for `cost` fewer nodes are tried as well. `ranks` says how many
    accelerators to use instead. Layouts that the trainer refuses are never looked at. Raises `BadInput`
    when nothing fits, with the smallest cluster of such accelerators that would do, or when the choices that are
    fixed exclude each other.
    """
    choices = choices or Choices.fixed_by(recipe)
    memories = list(_memories()) if memory is None else [memory]
    searching = _Search(recipe, vocabulary_size, cluster, choices, parameters or shipped_parameters(), memories)
    sizes = [ranks or cluster.accelerators]
    if goal == "cost" and ranks is None:
        sizes = [nodes * cluster.accelerators_per_node for nodes in divisors(cluster.nodes)]
    best = [one for size in sizes for one in searching.best_of(size)]
    if not best:
        raise BadInput(_nothing_fits(searching, sizes[-1]))
    best.sort(key=lambda one: one.price(goal))
    ordered = _simplest_first(best, goal)
    while not is_possible(as_recipe(recipe, ordered[0].layout, ordered[0].micro_batch_size, ordered[0].memory)):
        best.remove(ordered[0])
        if not best:
            raise BadInput(f"what fits on {sizes[-1]:,} ranks is refused by the recipe's own rules; {_FIXED}")
        ordered = _simplest_first(best, goal)
    return Found(
        recipe,
        vocabulary_size,
        cluster,
        goal,
        ordered,
        searching.looked_at,
        searching.too_large,
        choices,
    )


def judge(recipe: Recipe, vocabulary_size: int, cluster: Cluster) -> Candidate:
    """The recipe's own configuration on `cluster`."""
    workload = workload_of(recipe, vocabulary_size)
    return Candidate(recipe.layout, workload.micro_batch_size, recipe.training.memory, predict(workload, cluster))


class _Search:
    def __init__(
        self,
        recipe: Recipe,
        vocabulary_size: int,
        cluster: Cluster,
        choices: Choices,
        values: Parameters,
        memories: Sequence[Memory],
    ) -> None:
        self.recipe = recipe
        self.cluster, self.choices, self.shape = cluster, choices, recipe.shape
        self.rungs = [
            (memory, workload_of(as_recipe(recipe, Layout(), 1, memory), vocabulary_size)) for memory in memories
        ]
        """What memory can be bought with, the cheapest first, each with a workload that says so."""
        self.looked_at = self.too_large = 0
        self.limit = USABLE * (cluster.accelerator.memory_gb or 0.0) * 1e9
        self.host_limit = USABLE * cluster.host_memory_gb * 1e9 / cluster.accelerators_per_node
        self.values = values

    def best_of(self, ranks: int) -> list[Candidate]:
        """The best micro-batch, recomputation and schedule of each layout of `ranks`, quickest first."""
        found = {}
        for layout in self._layouts(ranks):
            best = self._best(layout)
            if best is None:
                self.too_large += 1
            else:
                found[layout] = best
        order = sorted(found, key=lambda layout: found[layout].seconds)
        if not order:
            return []
        quickest = found[order[0]].seconds
        for layout in order[:_MOST_REFINED]:
            if found[layout].seconds > _WITHIN * quickest:
                break
            for other in schedules(layout, self.shape):
                best = self._best(other)
                if best is not None and best.seconds < found[layout].seconds:
                    found[layout] = best
        return sorted(found.values(), key=lambda one: one.seconds)

    def _best(self, layout: Layout) -> Candidate | None:
        best: Candidate | None = None
        parallelism = parallelism_of(layout)
        for size in micro_batch_sizes(layout, self.shape, self.choices.micro_batch_size):
            fitting = self._fitting(parallelism, size)
            if fitting is None:
                break  # a larger micro-batch needs more
            memory, workload = fitting
            self.looked_at += 1
            candidate = Candidate(layout, size, memory, predict(workload, self.cluster, parameters=self.values))
            if best is None or candidate.seconds < best.seconds:
                best = candidate
            elif candidate.seconds > _HOPELESS * best.seconds:
                break  # fewer micro-batches, or more computed again: larger ones are slower still
        return best

    def _layouts(self, ranks: int) -> Iterator[Layout]:
        split = self.recipe.training.deterministic == "across_layouts"
        for layout in layouts(self.shape, ranks, self.cluster.link_domain, self.choices):
            if not split or layout.data_parallel_size == layout.world_size:
                yield layout

    def _allowed(self, memory: Memory, parallelism: Parallelism) -> bool:
        """Whether recipes may say both."""
        if memory.offload_optimizer and not isinstance(self.recipe.training.optimizer, AdamW | Lion):
            return False
        return not memory.offload_parameters or parallelism.zero_stage in (0, 3)

    def _fitting(self, parallelism: Parallelism, micro_batch_size: int) -> tuple[Memory, Workload] | None:
        """With the least recomputation that fits; None when nothing does."""
        sizes = None
        for memory, workload in self.rungs:
            if not self._allowed(memory, parallelism):
                continue
            trial = replace(workload, parallelism=parallelism, micro_batch_size=micro_batch_size)
            sizes = sizes or stage_sizes(trial)
            if self.wanting(memory_bytes(trial, sizes, self.values)) <= 1:
                return memory, trial
        return None

    def wanting(self, needed: MemoryBytes) -> float:
        """How many times what there is would have to be there, of the accelerator's memory or the host's."""
        return max(needed.total / self.limit, needed.host / self.host_limit)

    def least(self, ranks: int) -> MemoryBytes | None:
        """Of the layout that comes nearest to fitting, with all that saves memory; None when none is possible."""
        found = []
        for layout in self._layouts(ranks):
            sizes = micro_batch_sizes(layout, self.shape, self.choices.micro_batch_size)
            if sizes:
                parallelism = parallelism_of(layout)
                for memory, lean in self.rungs[len(LADDER) - 1 :] or self.rungs:
                    if self._allowed(memory, parallelism):
                        workload = replace(lean, parallelism=parallelism, micro_batch_size=sizes[0])
                        found.append(memory_bytes(workload, stage_sizes(workload), self.values))
        return min(found, key=self.wanting, default=None)


def _memories() -> Iterator[Memory]:
    for recompute in LADDER:
        yield Memory(recompute=recompute)
    yield from LAST_RESORTS


def _simplest_first(candidates: list[Candidate], goal: Goal) -> list[Candidate]:
    """The simplest of those that are as good as the first, then the others in order."""
    as_good = [one for one in candidates if one.price(goal) <= _AS_GOOD * candidates[0].price(goal)]
    simplest = min(as_good, key=lambda one: (_dimensions(one), one.price(goal)))
    return [simplest, *(one for one in candidates if one is not simplest)]


def _dimensions(one: Candidate) -> int:
    layout = one.layout
    divided = sum(size > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep, layout.dp_replicate))
    return divided + (layout.pipeline_schedule not in ("1f1b", "interleaved_1f1b")) + (one.memory != Memory())


def _nothing_fits(searching: _Search, ranks: int) -> str:
    cluster, shape = searching.cluster, searching.shape
    batches = ", ".join(map(str, sorted(set(shape.batch_sizes))))
    least = searching.least(ranks)
    if least is None:
        fixed = [f"{name}={value}" for name, value in vars(searching.choices).items() if value is not None]
        said = f" with {', '.join(fixed)}" if fixed else ""
        return (
            f"no layout of {ranks:,} ranks can train this model{said}: {batches} sequences a batch, "
            f"{shape.layers} layers and {shape.heads} heads do not divide that way; use another number of ranks "
            "or another batch"
        )

    def would_do(nodes: int) -> bool:
        needed = searching.least(nodes * cluster.accelerators_per_node)
        return needed is not None and searching.wanting(needed) <= 1

    nodes, larger = cluster.nodes, None
    while nodes < 2**17 and larger is None:
        step, nodes = max(1, nodes // _TRIED), nodes * 2
        if would_do(nodes):
            larger = next((fewer for fewer in range(nodes // 2 + step, nodes, step) if would_do(fewer)), nodes)
    remedy = (
        f"the smallest such cluster that would do has about {larger:,} nodes "
        f"({larger * cluster.accelerators_per_node:,} accelerators)"
        if larger
        else "no number of such accelerators would do for this batch; use ones with more memory or a larger batch"
    )
    host = ""
    if least.host:
        each = cluster.host_memory_gb / cluster.accelerators_per_node
        host = f" and {least.host / 1e9:,.1f} of {each:,.0f} GB of host memory for what it offloads"
    return (
        f"this model does not fit {ranks:,} × {cluster.accelerator.name}: the leanest layout, with everything "
        f"computed again, needs {least.total / 1e9:,.1f} of {cluster.accelerator.memory_gb:,.0f} GB each{host}, of "
        f"which {USABLE:.0%} may be planned for; {remedy}"
    )
