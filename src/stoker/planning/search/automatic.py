"""`layout: auto`: the best layout for the processes and accelerators that there are."""

from __future__ import annotations

import os
from dataclasses import replace

import psutil
import torch

from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.planning.cluster import Accelerator, Cluster
from stoker.planning.cluster.accelerators import accelerators
from stoker.planning.cluster.parameters import shipped_parameters
from stoker.planning.search.searching import search
from stoker.planning.search.space import is_possible
from stoker.recipe import Recipe
from stoker.recipe.fields import dotted, leaves
from stoker.recipe.loading import AUTO, LoadedRecipe, load_recipe
from stoker.recipe.memory import Memory

_PROCESSOR = {"bf16_tflops": 0.05, "fp16_tflops": 0.05, "memory_gbps": 10.0, "link_gbps_per_direction": 1.0}
"""A rank on a processor, roughly. Every process has to choose alike, so nothing is measured."""

_NOTHING = 1e-9
_MOST_RANKS = 1_000_000
_OF_PROCESSORS = {
    "host_seconds_per_layer": 0.0,
    "host_seconds_per_expert": 0.0,
    "host_seconds_per_collective": 0.0,
    "step_seconds": 0.0,
    "link_latency": 1e-3,
    "network_latency": 1e-3,
}
"""Nobody issues kernels for a processor, and a collective of gloo waits for a core in each of its rounds."""


def with_chosen_layout(loaded: LoadedRecipe) -> LoadedRecipe:
    """`loaded` with the layout that it leaves to the planner; unchanged when it says one.

    The ranks are those that a launcher started (`WORLD_SIZE`), otherwise one for each accelerator here. A run that
    exists keeps its layout as long as there are as many ranks. Micro-batch and memory techniques are chosen as well
    where the recipe says nothing of them. The same on every rank.
    """
    if not loaded.layout_is_open:
        return loaded
    on_accelerators = loaded.recipe.training.device != "cpu" and torch.cuda.is_available()
    ranks = _number("WORLD_SIZE") or (torch.cuda.device_count() if on_accelerators else 1)
    if loaded.run.recipe.is_file():
        before = load_recipe(loaded.run.recipe).recipe
        like = _like(before, loaded.recipe) if before.layout.world_size == ranks else None
        if like is not None:
            return _settled(loaded, like)
    cluster = cluster_here(ranks, _accelerator_here() if on_accelerators else None)
    vocabulary = loaded.recipe.tokenizer.vocabulary_size
    parameters = None if on_accelerators else {**shipped_parameters(), **_OF_PROCESSORS}
    given = loaded.recipe.training.memory
    memory = None if given == Memory() else given
    if memory is not None:  # a recipe may offload on a processor too, where it changes nothing
        cluster = cluster.model_copy(update={"host_memory_gb": psutil.virtual_memory().total / 1e9})
    found = search(loaded.recipe, vocabulary, cluster, ranks=ranks, parameters=parameters, memory=memory)
    return _settled(loaded, found.as_recipe())


def _settled(loaded: LoadedRecipe, recipe: Recipe) -> LoadedRecipe:
    before = dict(_values(loaded.recipe))
    changed = {name for name, value in _values(recipe) if before.get(name) != value}
    chosen = dict.fromkeys(changed | {f"layout.{name}" for name in Layout.model_fields}, f"layout: {AUTO}")
    return replace(loaded, recipe=recipe, layout_is_open=False, origins={**loaded.origins, **chosen})


def _values(recipe: Recipe) -> list[tuple[str, object]]:
    return [(dotted(place), value) for place, value in leaves(recipe.model_dump())]


def _like(before: Recipe, now: Recipe) -> Recipe | None:
    """`now` laid out as `before`, with its micro-batch where none is said; None where that cannot be any more."""
    training = now.training
    if training.micro_batch_size is None:
        training = training.model_copy(update={"micro_batch_size": before.training.micro_batch_size})
    if training.memory == Memory():
        training = training.model_copy(update={"memory": before.training.memory})
    like = now.model_copy(update={"layout": before.layout, "training": training})
    return like if is_possible(like) else None


def cluster_here(ranks: int, accelerator: Accelerator | None) -> Cluster:
    """What `ranks` processes run on: `accelerator`, or something nominal with this machine's memory."""
    if ranks > _MOST_RANKS:
        raise BadInput(f"WORLD_SIZE says {ranks:,} processes; a layout is chosen for {_MOST_RANKS:,} at most")
    here = min(ranks, _number("LOCAL_WORLD_SIZE") or ranks)
    host = memory = psutil.virtual_memory().total / 1e9
    if accelerator is None:
        accelerator = Accelerator(name="a rank on a processor", memory_gb=memory / here, **_PROCESSOR)
        host = _NOTHING  # its memory is the host's: nothing can be taken elsewhere
    described = {"accelerator": accelerator, "nodes": ranks // here, "accelerators_per_node": here}
    return Cluster.model_validate({**described, "host_memory_gb": host})


def _accelerator_here() -> Accelerator:
    name = torch.cuda.get_device_name()
    known = accelerators().get(name.casefold())
    if known is None:
        raise BadInput(
            f"layout: auto needs to know the accelerator, and {name} is not in the table; say the layout, or "
            "describe the cluster and ask `stoker plan search RECIPE --cluster FILE`"
        )
    return known


def _number(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() and int(value) > 0 else None
