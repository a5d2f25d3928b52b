"""What every way to start a run needs: its folder, its plan, what is shown of it; and one rank of a launcher's."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stoker.checkpoint import Place, checkpoints_of, latest
from stoker.data.corpus import Corpus
from stoker.data.prepared import find_prepared
from stoker.durable_files import remove_partials, write_bytes, write_json, write_text
from stoker.errors import EXIT_SAVED_PLEASE_REQUEUE, BadInput, OutOfMemory, Terminated
from stoker.layout.validity import require_world_size
from stoker.parallel.world import choose_device
from stoker.planning import Machine, Plan, look_at_machine, make_plan, measure_machine, require_fits
from stoker.plural import counted
from stoker.progress import Progress, Task
from stoker.recipe import Checkpoint, Recipe
from stoker.recipe.differences import require_compatible
from stoker.recipe.loading import LoadedRecipe, dump_recipe, load_recipe
from stoker.record import Record
from stoker.record.environment import describe_environment
from stoker.run_directory import RunDirectory
from stoker.training.mixture_in_force import require_same_past
from stoker.training.origin import write_origin
from stoker.training.out_of_memory import with_help
from stoker.training.rank import Job, train_rank, use_processors
from stoker.training.signals import StopRequest, listening
from stoker.training.trainer import Trainer

_SPEED_SECONDS = 10.0
"""Over which the speed is shown that stands beside the bar."""


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training run stands when it has ended well."""

    run: RunDirectory
    steps: int
    checkpoint: Place
    trained_now: bool
    """False when every step was already done."""


def require_trainable(loaded: LoadedRecipe, run: RunDirectory) -> Recipe | None:
    """The recipe that the folder `run` was trained with, None for a new run.

    Raises `BadInput` when the folder cannot be this run's, when the recipe changed in a way that would make
    it another run, or when its device is absent; worth asking before hours of preparation.
    """
    choose_device(loaded.recipe.training.device, 0)
    run.require_free_for(loaded.path)
    if not run.recipe.is_file():
        return None
    existing = load_recipe(run.recipe).recipe
    require_compatible(existing, loaded.recipe)
    return existing


def open_run(loaded: LoadedRecipe, run: RunDirectory, corpus: Corpus, progress: Progress) -> Job:
    """Write what a run's folder holds before its first step, or check that it is the same run.

    The caller holds the folder. Raises `BadInput` when the recipe changed in a way that would make it
    another run, or when the plan says that it does not fit this machine.
    """
    recipe = loaded.recipe
    text = dump_recipe(recipe)
    existing = require_trainable(loaded, run)
    if existing is not None:
        require_same_past(run, existing, recipe, corpus)
    for folder in (run.path, checkpoints_of(run, recipe.checkpoint)):
        if isinstance(folder, Path):
            remove_partials(folder)
    if not run.plan.is_file() or existing is None or dump_recipe(existing) != text:
        progress.say("plan: predicting memory and time on this machine")
        plan = plan_for(loaded, corpus)
        for line in str(plan).rstrip().splitlines():
            progress.say(f"  {line}")
        write_json(run.plan, plan.model_dump(mode="json"))
    write_text(run.recipe, text)
    write_bytes(run.corpus, (corpus.folder / "manifest.json").read_bytes())
    write_origin(run, loaded.path, corpus.folder)
    # What is described is this process: with the threads that each rank will set for itself.
    ranks_here = _set_by_launcher("LOCAL_WORLD_SIZE", str(recipe.layout.world_size))
    use_processors(recipe.training.threads, ranks_here, torch.device("cpu"))
    write_json(run.environment, describe_environment(recipe.training.device))
    attempts = Record(run.record).attempts()
    return Job(recipe, run.path, corpus.folder, max(attempts, default=0) + 1)


def plan_for(loaded: LoadedRecipe, corpus: Corpus, machine: Machine | None = None) -> Plan:
    """The plan of a run on `machine`, or on this one, refused before anything is measured when it cannot fit."""
    recipe, vocabulary_size = loaded.recipe, corpus.vocabulary_size
    hardware = machine or look_at_machine(recipe)
    require_fits(recipe, vocabulary_size, hardware)
    return make_plan(recipe, vocabulary_size, machine or measure_machine(recipe, vocabulary_size, hardware))


def train_as_one_rank(
    loaded: LoadedRecipe,
    run: RunDirectory,
    progress: Progress,
    beside: Callable[[Job], AbstractContextManager[None]] = lambda job: nullcontext(),
) -> TrainingOutcome:
    """Train as the rank that a launcher's environment says; it answers for all ranks, and supervises them.

    `beside` is what goes on on rank 0 while it trains.
    """
    rank, local_rank = _set_by_launcher("RANK"), _set_by_launcher("LOCAL_RANK", "0")
    local_ranks = _set_by_launcher("LOCAL_WORLD_SIZE", "1")
    require_world_size(loaded.recipe.layout, loaded.recipe.shape, _set_by_launcher("WORLD_SIZE"))
    corpus = find_prepared(loaded, progress)
    if corpus is None:
        raise BadInput(f"the corpus of {loaded.path} is not prepared yet; run `stoker prepare {loaded.path}` first")
    with listening() as stop, stopping(run, stop), helping(loaded, run, corpus):
        if rank != 0:  # rank 0 joins only when the folder is ready, and tells the others its attempt
            job = Job(loaded.recipe, run.path, corpus.folder, attempt=0)
            train_rank(job, rank, local_rank, local_ranks, None, stop, lambda message: None)
            return outcome_of(run)
        with run.held("train"):
            job = open_run(loaded, run, corpus, progress)
            with beside(job), shown(progress, job, 0) as report:
                said = partial(_begins, progress)
                train_rank(job, rank, local_rank, local_ranks, None, stop, report, when_built=said)
    return outcome_of(run)


def _begins(progress: Progress, trainer: Trainer) -> None:
    if trainer.position.step:
        progress.say(f"going on after step {trainer.position.step:,}")


def _set_by_launcher(variable: str, default: str = "") -> int:
    value = os.environ.get(variable, default)
    if not value.isdecimal():
        raise BadInput(
            f"WORLD_SIZE is set, as a launcher such as torchrun does, so {variable} must be a whole number, but it "
            f"is {value!r}; start the ranks with a launcher, or unset WORLD_SIZE"
        )
    return int(value)


def outcome_of(run: RunDirectory) -> TrainingOutcome:
    """How the run stands now that it has been trained."""
    checkpoints = checkpoints_of(run, load_recipe(run.recipe).recipe.checkpoint)
    checkpoint = latest(checkpoints)
    if checkpoint is None:
        raise BadInput(f"{checkpoints} holds no complete checkpoint")
    return TrainingOutcome(run, step_of(checkpoint), checkpoint, trained_now=True)


def step_of(checkpoint: Place) -> int:
    """The step that a checkpoint was saved after."""
    return int(checkpoint.name.split("-")[1])


@contextmanager
def stopping(run: RunDirectory, stop: StopRequest) -> Iterator[None]:
    """Say of a run that was asked to stop how far it is saved; ask the scheduler for another turn if it shall."""
    try:
        yield
    except Terminated:
        recipe = load_recipe(run.recipe).recipe if run.recipe.is_file() else None
        saved = latest(checkpoints_of(run, Checkpoint() if recipe is None else recipe.checkpoint))
        how_far = "nothing was trained yet" if saved is None else f"saved after step {step_of(saved):,}"
        ended = Terminated(f"asked to stop: {how_far}")
        requeue = recipe is not None and recipe.recovery.on_sigterm == "requeue" and stop.by == signal.SIGTERM
        if requeue or stop.by == signal.SIGUSR1:
            ended.exit_code = EXIT_SAVED_PLEASE_REQUEUE
        raise ended from None


@contextmanager
def helping(loaded: LoadedRecipe, run: RunDirectory, corpus: Corpus) -> Iterator[None]:
    """Say of a run that died for memory what would fit."""
    try:
        yield
    except OutOfMemory as error:
        raise with_help(error, loaded.recipe, run, corpus) from error


@contextmanager
def shown(progress: Progress, job: Job, done: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show what rank 0 reports: a bar with step, loss, learning rate, gradient norm and tokens per second."""
    recipe = job.recipe
    accumulation = recipe.accumulation_at(1)
    progress.say(
        f"global batch {counted(recipe.training.batch_size_at(1), 'sequences')} = "
        f"{counted(recipe.layout.data_parallel_size, 'ranks')} × "
        f"{counted(accumulation, 'accumulated micro-batches')} of {recipe.micro_batch_size_at(1)} ({recipe.layout})"
    )
    with progress.task("train", recipe.training.steps, "steps") as task:
        task.advance(done)
        yield _StepLine(progress, task, done)


class _StepLine:
    """Turns reports into the words beside the bar."""

    def __init__(self, progress: Progress, task: Task, done: int) -> None:
        self._done = done
        self._progress = progress
        self._task = task
        self._arrived: deque[tuple[float, int]] = deque()
        """Of the last seconds' reports, when they came and the tokens that had been trained on by then."""

    def __call__(self, message: dict[str, Any]) -> None:
        if message["kind"] == "evaluation":
            scores = ", ".join(f"{score['source']} {score['loss']:.3f}" for score in message["scores"])
            if scores:
                self._progress.say(f"step {message['step']}: held-out loss {scores}")
            return
        if message["kind"] == "wrong_rank":
            self._progress.say(f"step {message['step']}: {message['said']}; going back to where all agreed")
            return
        if message["kind"] == "slow_rank":
            ranks = ", ".join(map(str, message["ranks"]))
            self._progress.say(f"step {message['step']}: rank {ranks} is slower than the others, which wait for it")
            return
        self._task.describe(
            f"loss {message['loss']:.3f}  lr {message['learning_rate']:.2e}  "
            f"norm {message['gradient_norm']:.2f}{self._speed(message['tokens'])}"
        )
        if message["step"] > self._done:  # a run that went back does some steps again
            more, self._done = message["step"] - self._done, message["step"]  # copies may be newer than the disk
            self._task.advance(more)

    def _speed(self, tokens: int) -> str:
        """Tokens per second over the last seconds; empty at the first step, before which there was the start-up.

        Where this process waits for a processor several reports come at once: the time from one to the next says
        nothing, that over all of them does.
        """
        now, trained = time.monotonic(), tokens + (self._arrived[-1][1] if self._arrived else 0)
        self._arrived.append((now, trained))
        while len(self._arrived) > 2 and now - self._arrived[1][0] >= _SPEED_SECONDS:
            self._arrived.popleft()
        since, before = self._arrived[0]
        return f"  {(trained - before) / (now - since):,.0f} tokens/s" if now > since else ""
