"""Applies a `Layout` to a plain model. `apply` is the one door."""

from stoker.parallel.apply import Settings, apply
from stoker.parallel.parallel_model import Inputs, ParallelModel
from stoker.parallel.world import World, join_world, single_process_world

__all__ = ["Inputs", "ParallelModel", "Settings", "World", "apply", "join_world", "single_process_world"]
