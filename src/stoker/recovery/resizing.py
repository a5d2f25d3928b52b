"""Layouts with fewer data-parallel ranks: what a run goes on with while nodes are missing."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from stoker.recipe import Recipe


def largest(recipe: Recipe, ranks: int) -> Recipe | None:
    """`recipe` with as many data-parallel ranks as `ranks` allow; None when not even the fewest fit.

    Everything else stays as it is, the global batch and the order of samples too. Copies of the model
    (`dp_replicate`) are given up before shards (`dp_shard`), whose loss leaves more to hold for each of the others.
    """
    return next(_fitting(recipe, ranks), None)


def fewest_ranks(recipe: Recipe) -> int:
    """Ranks of the smallest layout that `largest` can come down to."""
    return min(smaller.layout.world_size for smaller in _fitting(recipe, recipe.layout.world_size))


def _fitting(recipe: Recipe, ranks: int) -> Iterator[Recipe]:
    """Every recipe that fits, the best first."""
    layout = recipe.layout
    sizes = [
        (replicate, shard)
        for replicate in range(1, layout.dp_replicate + 1)
        for shard in range(1, layout.dp_shard + 1)
    ]
    rest = layout.world_size // layout.data_parallel_size
    for replicate, shard in sorted(sizes, key=lambda size: (-size[0] * size[1], -size[1])):
        if replicate * shard * rest > ranks:
            continue
        if (replicate, shard) == (layout.dp_replicate, layout.dp_shard):
            yield recipe
            continue
        fewer = layout.model_copy(update={"dp_replicate": replicate, "dp_shard": shard})
        try:
            yield Recipe.model_validate({**recipe.model_dump(), "layout": fewer.model_dump()})
        except ValidationError:
            continue
