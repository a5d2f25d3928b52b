"""What one process of a run does, from joining the others to the last step."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch.optim import Optimizer

from stoker.checkpoint import Place, Saver, checkpoints_of, load, load_newest
from stoker.checkpoint.agreement import from_first
from stoker.checkpoint.snapshots import folder_of, remove_beyond
from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.errors import BadInput, StokerError
from stoker.model import Decoder
from stoker.parallel import ParallelModel, Settings, World, apply, join_world
from stoker.parallel.activations import Activations
from stoker.parallel.world import choose_device
from stoker.planning.memory import recomputation_of_rank
from stoker.recipe import Recipe
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory
from stoker.training.asked_back import Requests
from stoker.training.clock import PhaseClock
from stoker.training.guard import Guard
from stoker.training.held_out_text import HeldOutText
from stoker.training.in_flight import StepInFlight
from stoker.training.interventions import Interventions
from stoker.training.machine import MachineWatch
from stoker.training.marks import Marks
from stoker.training.mixture_in_force import note_mixture
from stoker.training.network_latency import NetworkLatency
from stoker.training.optimizer import build_optimizer
from stoker.training.out_of_memory import as_seen, ran_out
from stoker.training.position import Position
from stoker.training.precision import DynamicLossScale, parameter_dtype, reduction_dtype
from stoker.training.replicas import Replicas
from stoker.training.second_opinion import SecondOpinion
from stoker.training.signals import StopRequest
from stoker.training.step import TrainingStep
from stoker.training.telemetry import Telemetry
from stoker.training.trainer import Trainer
from stoker.training.update_norm import UpdateNorm

Report = Callable[[dict[str, Any]], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copies:
    """A set of copies of the state, of one step, that all ranks go on from."""

    step: int = 0
    session: str = ""
    """Of the ranks that made it; empty: there is none, and ranks go on from the disk."""
    files: tuple[Path, ...] = ()
    """Of all ranks, as they lie on this node."""


@dataclass(frozen=True)
class Job:
    """Everything a rank needs to know; the same on every rank."""

    recipe: Recipe
    run: Path
    corpus: Path
    attempt: int
    snapshots: Path | None = None
    """Folder in host memory for copies of the state; None where nobody keeps them."""
    copies: Copies | None = None
    """What to go on from where ranks are on several nodes; None: the newest that is in `snapshots` or on disk."""


def train_rank(
    job: Job,
    rank: int,
    local_rank: int,
    local_ranks: int,
    store: dist.Store | None,  # type: ignore[name-defined]
    stop: StopRequest,
    report: Report,
    marks: Marks | None = None,
    when_built: Callable[[Trainer], None] = lambda trainer: None,
) -> None:
    """Train as rank `rank` until the last step is done. Collective over all ranks of the job's layout.

    `marks` are where a supervisor sees this rank move; `when_built` is given the trainer before its first step.
    """
    training = job.recipe.training
    device = choose_device(training.device, local_rank)
    # Products of matrices are rounded differently by another number of threads.
    threads = training.threads or (1 if training.deterministic == "across_layouts" else None)
    use_processors(threads, local_ranks, device)
    try:
        on_host = training.memory.offload_parameters
        with join_world(job.recipe.layout, rank, device, store, training.timeout_seconds, on_host) as world:
            trainer = build_trainer(job, world, stop, report, marks)
            when_built(trainer)
            if world.is_first:
                note_mixture(trainer.record, trainer.run, trainer.feed, trainer.position)
            with _watching_machine(trainer, local_rank, local_ranks, store):
                trainer.fit()
    except Exception as error:
        if ran_out(error):
            raise as_seen(error, rank, device) from error
        raise


@contextmanager
def _watching_machine(
    trainer: Trainer,
    local_rank: int,
    local_ranks: int,
    store: dist.Store | None,  # type: ignore[name-defined]
) -> Iterator[None]:
    """Record what the machine does while the block trains; then close the trainer."""
    world, seconds = trainer.step.model.world, trainer.recipe.telemetry.machine_seconds
    of_host = local_rank == 0
    several = of_host and local_ranks < world.layout.world_size
    latency = NetworkLatency.between_machines(store, seconds) if several else None
    told = (lambda: None) if latency is None else latency.seconds
    watch = MachineWatch(world.device, seconds, trainer.record_machine, of_host=of_host, latency=told)
    try:
        yield
    finally:
        if latency is not None:
            latency.close()
        watch.close()
        trainer.close()


def build_trainer(job: Job, world: World, stop: StopRequest, report: Report, marks: Marks | None = None) -> Trainer:
    """Build model, optimizer and feed on this rank, and load the newest checkpoint if there is one."""
    recipe, run = job.recipe, RunDirectory(job.run)
    corpus = Corpus.open(job.corpus)
    clock = PhaseClock(world.device, marks)
    attempt = world.agree(job.attempt)
    model = build_model(recipe, corpus.vocabulary_size, world)
    optimizer = build_optimizer(model.held, recipe.training)
    position = Position(attempt=attempt)
    checkpoints = checkpoints_of(run, recipe.checkpoint)
    progress = _load(job, checkpoints, world.rank, model, optimizer)
    if progress is not None:
        position = Position.from_progress(progress, attempt)
    if job.snapshots is not None and job.copies is None:  # several nodes keep a set until there is a newer one
        remove_beyond(job.snapshots, world.layout.world_size)
    clock.marks.stand_at(position.step)
    feed = Feed(corpus, recipe)
    own_copies = None if job.snapshots is None else folder_of(job.snapshots, world.rank)
    saver = Saver(
        checkpoints,
        recipe.checkpoint,
        model.held,
        optimizer,
        snapshots=own_copies,
        step=position.step,
        timeout=world.timeout,
    )
    step = _build_step(job, corpus, model, optimizer, clock, saver, position.step)
    opinion = SecondOpinion(feed, step)
    if progress is not None:
        step.take_up(progress)
        opinion.passed = progress.get("agreed_until", 0)
    record = RecordWriter(run.record, world.rank, recipe.telemetry.flush_seconds)
    telemetry = Telemetry(feed, step, UpdateNorm(model.held, optimizer, world), record, clock)
    return Trainer(
        recipe=recipe,
        run=run,
        feed=feed,
        text=HeldOutText.of(corpus, recipe, feed),
        step=step,
        saver=saver,
        replicas=Replicas(model.held, optimizer, world, run.suspicion),
        opinion=opinion,
        update_norm=telemetry.updates,
        record=record,
        position=position,
        stop=stop,
        requests=Requests(run.asked_back, step.guard.interventions.answered),
        clock=clock,
        telemetry=telemetry,
        report=report,
    )


def _build_step(
    job: Job,
    corpus: Corpus,
    model: ParallelModel,
    optimizer: Optimizer,
    clock: PhaseClock,
    saver: Saver,
    position: int,
) -> TrainingStep:
    """What does one step at a time, from `position` on, as was decided about single steps before."""
    recipe, rank = job.recipe, model.world.rank
    decided = from_first(Interventions.read(RunDirectory(job.run).interventions))
    guard = Guard(recipe.recovery, decided, can_leave_out=not recipe.training.memory.release_gradients)
    in_flight = None
    if job.snapshots is not None and recipe.recovery.copy_gradients_every:
        in_flight = StepInFlight(recipe, model, folder_of(job.snapshots, rank), position)
    return TrainingStep(
        recipe,
        corpus.source_names,
        model,
        optimizer,
        DynamicLossScale(recipe.training.loss_scale) if recipe.training.precision == "fp16" else None,
        clock,
        saver.settle,
        guard,
        in_flight,
        Activations(model),
    )


def _load(
    job: Job, checkpoints: Place, rank: int, model: ParallelModel, optimizer: Optimizer
) -> dict[str, Any] | None:
    """Load what there is to go on from; returns what the loop had kept, None when there is nothing."""
    folders = sorted(job.snapshots.glob("rank-*")) if job.snapshots is not None and job.copies is None else []
    if job.copies is not None and job.copies.files:
        # Of other ranks on other nodes there may be an outline only: a rank's own copy is read first.
        files = sorted(job.copies.files, key=lambda file: file.parent.name != f"rank-{rank:05d}")
        try:
            return load(files, model.held, optimizer)
        except BadInput:
            raise
        except StokerError as error:
            _log.warning("going on from the disk: %s", error)
    found = load_newest(checkpoints, model.held, optimizer, folders)
    return None if found is None else found[1]


def build_model(recipe: Recipe, vocabulary_size: int, world: World) -> ParallelModel:
    """The recipe's model with its initial values, laid out over the ranks of `world`."""
    with torch.device("meta"):
        model = Decoder(recipe.model, vocabulary_size, recipe.training.sequence_length)
    model.to(parameter_dtype(recipe.training.precision))
    settings = Settings(
        compile_blocks=recipe.training.compile,
        reduce=reduction_dtype(recipe.training),
        seed=recipe.seed,
        fixed_order=recipe.training.deterministic == "across_layouts",
        offload_activations=recipe.training.memory.offload_activations,
        offload_parameters=recipe.training.memory.offload_parameters,
        recompute=recomputation_of_rank(recipe, vocabulary_size, world.device.type, world.rank),
    )
    return apply(model, world, settings)


def use_processors(threads: int | None, local_ranks: int, device: torch.device) -> None:
    """Share this machine's processors among its ranks, and ask for reproducible kernels."""
    processors = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    torch.set_num_threads(threads or max(1, processors // local_ranks))
    if device.type == "cuda":
        torch.cuda.set_device(device)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
