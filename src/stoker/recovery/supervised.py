"""Supervised training: from a recipe to a finished run, through failures, without a person.

    command (this process)      prepares, plans, shows, records failures; starts the supervisor again if it dies
      supervisor                forks the ranks, watches them, restarts them
        rank 0 … rank N−1       train

The supervisor has imported everything and computed nothing, so that it can fork ranks in an instant. Where the
command has not computed anything yet, it forks the supervisor from itself (`standby`), and otherwise has it
forked from a server that imports everything anew, which takes seconds.

In a run over several nodes there is a command and a supervisor on each; see `several_nodes`.
"""

from __future__ import annotations

import os
from contextlib import closing

from stoker.checkpoint import checkpoints_of
from stoker.data.prepare import prepare
from stoker.monitoring import monitored, require_watchable
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe
from stoker.recovery.command import train_holding
from stoker.recovery.dynamics.possible import require_possible_course
from stoker.recovery.faults import Fault, require_possible
from stoker.recovery.host_memory import copies_of
from stoker.recovery.nodes import placed
from stoker.recovery.several_nodes import OneOfSeveral
from stoker.recovery.standby import Standby, Supervisors
from stoker.run_directory import RunDirectory
from stoker.training.launching import TrainingOutcome, require_trainable, train_as_one_rank


def train(
    loaded: LoadedRecipe,
    run: RunDirectory,
    progress: Progress,
    ready: Standby | None = None,
    faults: tuple[Fault, ...] = (),
) -> TrainingOutcome:
    """Train what `loaded` says in the folder `run`, from its newest checkpoint if it has one, through failures.

    Prepares the corpus first where that is still to do. Under a launcher that sets `WORLD_SIZE` (torchrun, for
    instance) this process is one of the ranks, the launcher supervises, and rank 0 has the run watched; otherwise
    the ranks are started here, by the supervisor `ready` if there is one. On several nodes the same is called on
    each.
    """
    if "WORLD_SIZE" in os.environ:
        if os.environ.get("RANK") == "0":
            require_watchable(loaded.recipe)
        return train_as_one_rank(
            loaded, run, progress, lambda job: monitored(run, job.recipe, job.attempt, progress.say)
        )
    place = placed()
    for fault in faults:
        require_possible(fault, loaded.recipe, place.nodes if place is not None else 1)
        require_possible_course(fault, loaded.recipe)
    require_watchable(loaded.recipe)
    require_trainable(loaded, run)
    with closing(Supervisors(ready)) as supervisors:
        if place is not None:
            return OneOfSeveral(loaded, run, progress, supervisors, faults, place).train()
        prepare(loaded, progress)
        checkpoints = checkpoints_of(run, loaded.recipe.checkpoint)
        wanted = loaded.recipe.recovery.copy_every > 0
        with run.held("train") as lock, copies_of(run, checkpoints, "node-0", wanted) as copies:
            return train_holding(loaded, run, progress, supervisors, faults, lock, copies)
