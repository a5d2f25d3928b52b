"""Going back to an earlier checkpoint of a run: what is newer is given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from stoker.checkpoint.agreement import from_first, rank_and_ranks, together
from stoker.checkpoint.integrity import find_damage
from stoker.checkpoint.loading import load
from stoker.checkpoint.manifest import COMMITTED, folder_name, step_folders, step_of
from stoker.checkpoint.place import Place, remove
from stoker.checkpoint.state import HeldTensor


def steps_saved(checkpoints: Place) -> list[int]:
    """Steps of which there is a checkpoint that looks complete, in order. Collective; all get the same answer."""
    found = []
    if rank_and_ranks()[0] == 0:
        found = [path for path in step_folders(checkpoints) if find_damage(path, contents=False) is None]
    return from_first([step for path in found if (step := step_of(path)) is not None])


def go_back_to(checkpoints: Place, step: int, held: Sequence[HeldTensor], optimizer: Optimizer) -> dict[str, Any]:
    """Load the checkpoint of `step`, as `load` does, and remove those of later steps. Collective.

    Removed first: a run that is killed in between starts again from `step`, and not from what was given up.
    """
    together(lambda: _remove_newer(checkpoints, step) if rank_and_ranks()[0] == 0 else None)
    found = together(lambda: [path.name for path in step_folders(checkpoints) if step_of(path) == step])
    return load(checkpoints / (found[-1] if found else folder_name(step)), held, optimizer)


def _remove_newer(checkpoints: Place, step: int) -> None:
    for path in reversed(step_folders(checkpoints)):
        if (step_of(path) or 0) > step:
            remove(path, COMMITTED)
