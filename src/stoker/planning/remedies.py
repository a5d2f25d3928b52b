"""What to change so that a run fits, the cheapest first, each with its price in speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from stoker.planning.cluster import Accelerator, predict, workload_of
from stoker.planning.search.automatic import cluster_here
from stoker.planning.search.space import LADDER, divisors, is_possible, typed_memory
from stoker.recipe import Recipe
from stoker.recipe.memory import Memory
from stoker.wording import size

_WANTED = 3
_MOST_TOGETHER = 3
"""Changes that are tried at once."""


@dataclass(frozen=True)
class Change:
    """One thing to change, or several together."""

    overrides: tuple[str, ...]
    recipe: Recipe
    kinds: frozenset[str]


@dataclass(frozen=True)
class Remedy:
    """A change with which a run fits."""

    overrides: str
    """As one would type it behind the recipe."""
    needed_bytes: float
    """What the run needs then."""
    slowdown: float
    """Seconds of a step over those of the recipe as it is, less one; about, from the model of clusters."""

    def __str__(self) -> str:
        price = "as fast" if abs(self.slowdown) < 0.005 else f"about {abs(self.slowdown):.0%} "
        if abs(self.slowdown) >= 0.005:
            price += "slower" if self.slowdown > 0 else "faster"
        return f"{self.overrides} ({size(self.needed_bytes)}, {price})"


def remedies(
    recipe: Recipe,
    vocabulary_size: int,
    needed: Callable[[Recipe], float],
    available: float,
    accelerator: Accelerator | None,
    on_accelerators: bool,
) -> list[Remedy]:
    """The three cheapest changes with which `needed`, bytes of a recipe, is at most `available`; fewer if there are
    no more. Single changes come before combinations; the same model is trained with all of them.
    """
    cluster = cluster_here(recipe.layout.world_size, accelerator)
    before = predict(workload_of(recipe, vocabulary_size), cluster).seconds.total
    single = list(_changes(recipe, on_accelerators))
    found: list[Remedy] = []
    for together in range(1, _MOST_TOGETHER + 1):
        for parts in combinations(single, together):
            change = _together(parts)
            if change is None:
                continue
            bytes_then = needed(change.recipe)
            if bytes_then <= available:
                after = predict(workload_of(change.recipe, vocabulary_size), cluster).seconds.total
                found.append(Remedy(" ".join(change.overrides), bytes_then, after / before - 1))
        if found:
            break
    return sorted(found, key=lambda one: (one.slowdown, one.needed_bytes))[:_WANTED]


def _changes(recipe: Recipe, on_accelerators: bool) -> Iterator[Change]:
    """Every single one."""
    memory, layout = recipe.training.memory, recipe.layout
    steps = [1, *(ramp.step for ramp in recipe.training.batch_ramp)]
    size = recipe.micro_batch_size_at(1)
    shared = math.gcd(*(layout.sequences_per_rank(recipe.training.batch_size_at(step)) for step in steps))
    for smaller in reversed([one for one in divisors(shared) if one < size]):
        yield _of_training(recipe, "micro-batch", {"micro_batch_size": smaller})
    rung = next((place for place, one in enumerate(LADDER) if one == memory.recompute), 0)
    if not memory.release_gradients or memory.recompute.name == "none":
        for recompute in LADDER[rung + 1 :]:
            yield _of_memory(recipe, "recompute", {"recompute": recompute})
    if on_accelerators:  # a processor's memory is the host's
        for name in ("offload_optimizer", "offload_parameters", "offload_activations"):
            if not getattr(memory, name):
                yield _of_memory(recipe, name, {name: True})
    for shards in divisors(layout.data_parallel_size):
        if shards > layout.dp_shard and shards % layout.dp_shard == 0:
            sizes = {"dp_shard": shards, "dp_replicate": layout.data_parallel_size // shards}
            changed = recipe.model_copy(update={"layout": layout.model_copy(update=sizes)})
            typed = tuple(f"layout.{name}={value}" for name, value in sizes.items())
            yield Change(typed, changed, frozenset({"shards"}))


def _of_training(recipe: Recipe, kind: str, values: dict[str, object]) -> Change:
    training = recipe.training.model_copy(update=values)
    typed = tuple(f"training.{name}={value}" for name, value in values.items())
    return Change(typed, recipe.model_copy(update={"training": training}), frozenset({kind}))


def _of_memory(recipe: Recipe, kind: str, values: dict[str, object]) -> Change:
    memory = recipe.training.memory.model_copy(update=values)
    training = recipe.training.model_copy(update={"memory": memory})
    return Change(
        typed_memory(Memory.model_validate(values)),
        recipe.model_copy(update={"training": training}),
        frozenset({kind}),
    )


def _together(parts: tuple[Change, ...]) -> Change | None:
    """All of `parts` at once; None for two of a kind, and for what the recipe's own rules forbid."""
    kinds = [kind for part in parts for kind in part.kinds]
    if len(set(kinds)) < len(kinds):
        return None
    recipe = parts[0].recipe
    for part in parts[1:]:
        recipe = _merged(recipe, part)
    if not is_possible(recipe):
        return None
    return Change(tuple(one for part in parts for one in part.overrides), recipe, frozenset(kinds))


def _merged(recipe: Recipe, part: Change) -> Recipe:
    if "shards" in part.kinds:
        return recipe.model_copy(update={"layout": part.recipe.layout})
    training, other = recipe.training, part.recipe.training
    if "micro-batch" in part.kinds:
        changed = training.model_copy(update={"micro_batch_size": other.micro_batch_size})
    else:
        [kind] = part.kinds
        memory = training.memory.model_copy(update={kind: getattr(other.memory, kind)})
        changed = training.model_copy(update={"memory": memory})
    return recipe.model_copy(update={"training": changed})
