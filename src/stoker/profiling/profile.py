"""From a recipe to a profile: a short run of its own on all ranks, one trace, and what it says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.checkpoint import checkpoints_of
from stoker.data.corpus import Corpus
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.durable_files import explained_disk_errors, write_bytes, write_json, write_text
from stoker.errors import BadInput, StokerError
from stoker.parallel.world import choose_device
from stoker.planning import Machine, Plan, look_at_machine, make_plan, measure_machine, require_fits
from stoker.profiling.analysis import Picture, picture_of
from stoker.profiling.checklist import Answer, Case, answers
from stoker.profiling.merging import merge, write_merged
from stoker.profiling.predicted import Compared, compare
from stoker.profiling.ranks import Profiled, record_as_rank, record_here
from stoker.profiling.recording import Steps
from stoker.profiling.request import (
    FACTS,
    RANKS,
    RUN,
    TRACE,
    begin_from,
    make_room,
    output_of,
    require_ranks,
    steps_of,
)
from stoker.progress import Progress
from stoker.recipe import Recipe
from stoker.recipe.loading import LoadedRecipe, dump_recipe
from stoker.run_directory import RunDirectory
from stoker.training.origin import write_origin
from stoker.training.rank import Job


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    steps: str | None = None
    output: Path | None = None
    start: Path | None = None
    """Run from whose newest checkpoint to go on; None: from initial values."""
    keep: bool = False
    """Whether the run that was made for it stays, in the output folder."""
    machine: Machine | None = None


@dataclass(frozen=True)
class Profile:
    """What a profile says."""

    recipe: Recipe
    steps: Steps
    start: int
    """The step it went on from."""
    folder: Path
    machine: Machine
    plan: Plan
    picture: Picture
    answers: tuple[Answer, ...]
    compared: tuple[Compared, ...]
    compared_rank: int
    reachable: float
    """FLOPs a second that matrix products reach on this machine, on one rank."""

    @property
    def trace(self) -> Path:
        """The merged trace of all ranks."""
        return self.folder / TRACE


def profile(loaded: LoadedRecipe, asked: Request, progress: Progress) -> Profile | None:
    """Profile steps of `loaded` on all ranks of its layout, without touching the recipe's own run.

    Under a launcher that sets `WORLD_SIZE` this process is one of the ranks; the first alone gets a profile. Raises
    `BadInput` before anything is started for what cannot work, `StokerError` when a rank fails.
    """
    launched = int(os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ else None
    first = launched is None or os.environ.get("RANK") == "0"
    require_ranks(loaded.recipe, launched)
    start, checkpoint = begin_from(None if asked.start is None else RunDirectory(asked.start), loaded.recipe)
    steps, folder = steps_of(asked.steps, loaded.recipe, start), output_of(asked.output, loaded)
    corpus = prepare(loaded, progress) if launched is None else find_prepared(loaded, progress)
    if corpus is None:
        raise BadInput(f"the corpus of {loaded.path} is not prepared yet; run `stoker prepare {loaded.path}` first")
    recipe = _of_its_own(loaded.recipe)
    work = Profiled(Job(recipe, folder / RUN, corpus.folder, attempt=1), steps, folder / RANKS)
    if not first:
        _take_part(work)
        return None
    machine, plan = _plan(recipe, corpus, steps, asked.machine)
    make_room(folder)
    with _own_run(work, loaded, corpus, plan, checkpoint, keep=asked.keep):
        _record(work, start, launched, progress)
        return _told(loaded.recipe, steps, start, folder, machine, plan, progress)


def _of_its_own(recipe: Recipe) -> Recipe:
    """The recipe with checkpoints in the profile's own folder, whatever it says of its run's."""
    checkpoint = recipe.checkpoint.model_copy(update={"folder": None})
    return recipe.model_copy(update={"checkpoint": checkpoint, "run": None})


def _plan(recipe: Recipe, corpus: Corpus, steps: Steps, known: Machine | None) -> tuple[Machine, Plan]:
    """What is predicted for the batch that the profiled steps have."""
    training = recipe.training
    size = {"global_batch_size": training.batch_size_at(steps.first), "batch_ramp": ()}
    of_step = recipe.model_copy(update={"training": training.model_copy(update=size)})
    require_fits(of_step, corpus.vocabulary_size, known or look_at_machine(of_step))
    machine = known or measure_machine(of_step, corpus.vocabulary_size)
    return machine, make_plan(of_step, corpus.vocabulary_size, machine)


@contextmanager
def _own_run(
    work: Profiled, loaded: LoadedRecipe, corpus: Corpus, plan: Plan, checkpoint: Path | None, *, keep: bool
) -> Iterator[None]:
    """The run that is made to be profiled, removed afterwards unless it is to be kept."""
    run = RunDirectory(work.job.run)
    try:
        with run.held("profile"):
            write_text(run.recipe, dump_recipe(work.job.recipe))
            write_bytes(run.corpus, (corpus.folder / "manifest.json").read_bytes())
            write_json(run.plan, plan.model_dump(mode="json"))
            write_origin(run, loaded.path, corpus.folder)
            if checkpoint is not None:
                own = checkpoints_of(run, work.job.recipe.checkpoint)
                assert isinstance(own, Path)
                own.mkdir(parents=True, exist_ok=True)
                (own / checkpoint.name).symlink_to(checkpoint.resolve(), target_is_directory=True)
            yield
    finally:
        shutil.rmtree(work.folder, ignore_errors=True)
        if not keep:
            shutil.rmtree(run.path, ignore_errors=True)


def _take_part(work: Profiled) -> None:
    rank = int(os.environ["RANK"])
    local = int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    record_as_rank(work, rank, *local, None, lambda message: None)


def _record(work: Profiled, start: int, launched: int | None, progress: Progress) -> None:
    """Have every rank leave its trace."""
    with progress.task("profile", work.steps.until - start, "steps") as task:

        def said(message: dict[str, Any]) -> None:
            step = message["step"]
            task.describe("profiling" if work.steps.first <= step + 1 <= work.steps.last else "")
            task.advance()

        with explained_disk_errors(work.folder):
            if launched is None:
                record_here(work, said)
            else:
                local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
                record_as_rank(work, 0, *local, None, said)


def _told(
    recipe: Recipe, steps: Steps, start: int, folder: Path, machine: Machine, plan: Plan, progress: Progress
) -> Profile:
    from stoker.profiling.telling import as_json

    progress.say("reading the traces of all ranks")
    on_device = choose_device(recipe.training.device, 0).type == "cuda"
    picture = picture_of(folder / RANKS, recipe.layout, on_device=on_device)
    if not picture.ranks:
        raise StokerError("no rank left a trace; profile again")
    reachable = machine.rates.matmul_flops_per_second
    busiest = picture.busiest
    found = Profile(
        recipe=recipe,
        steps=steps,
        start=start,
        folder=folder,
        machine=machine,
        plan=plan,
        picture=picture,
        answers=answers(Case(picture, recipe, steps.first, reachable)),
        compared=compare(plan.step_seconds, busiest.seconds, busiest.exposed, busiest.repeated, busiest.wall),
        compared_rank=busiest.rank,
        reachable=reachable,
    )
    about = {"recipe": recipe.name, "layout": str(recipe.layout), "steps": f"{steps.first}-{steps.last}"}
    with explained_disk_errors(folder):
        write_merged(found.trace, merge(picture.traces, picture.met, about))
        write_json(folder / FACTS, as_json(found))
    return found
