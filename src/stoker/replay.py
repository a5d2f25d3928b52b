"""Computes batches of a run's steps once more: on the states of its checkpoints, and in two processes.

So it is seen whether what was recorded is the batch's doing, the weights', or a machine's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.checkpoint import checkpoints_of, steps_saved
from stoker.data.feeding import Feed
from stoker.data.feeding.as_recorded import FeedAsRecorded, Stretches
from stoker.diagnosis.replayed import Replay, Trial
from stoker.errors import BadInput
from stoker.parallel import ParallelModel, apply, single_process_world
from stoker.parallel.alone import Witness
from stoker.parallel.local_ranks import Say, run_local_ranks
from stoker.parallel.world import choose_device
from stoker.progress import Progress
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.record import Record
from stoker.record.given_samples import given_stretches
from stoker.run_directory import RunDirectory
from stoker.training.precision import autocast, parameter_dtype
from stoker.training.rank import use_processors
from stoker.training.step import inputs_of
from stoker.training.trained_model import load_trained_model

_APART = 8
"""Steps between a suspected batch and the one that it is held against."""
_PROCESSES = 2
_MOST_TRIALS = 5
_TIMEOUT_SECONDS = 3600.0
"""How long one process waits for the other, whose trials may take longer."""
_OTHERS = "trials of the other process"


def replay_steps(run: RunDirectory, steps: Sequence[int], progress: Progress) -> dict[int, Replay]:
    """The trials about each suspected step: five at most, each the forward and backward pass of a global batch.

    On the newest checkpoint before the step: its batch, a usual one, and its batch in another process, on another
    accelerator where there is one; on the next checkpoint, or else an earlier one: both batches. Whatever the run's
    layout, each process holds the whole model. Changes nothing of the run. Raises `BadInput` when there is no
    checkpoint before any of the steps.
    """
    recipe = load_recipe(run.recipe).recipe
    saved = steps_saved(checkpoints_of(run, recipe.checkpoint))
    known = [step for step in steps if any(one < step for one in saved)]
    if steps and not known:
        raise BadInput(
            f"{run.path} has no checkpoint of a step before {min(steps)} to replay it on; it has "
            f"{', '.join(map(str, saved)) or 'none'}. Save more often (`checkpoint.every`) and keep more of them "
            "(`checkpoint.keep_last`)."
        )
    if not known:
        return {}
    planned = tuple(_Planned.of(step, _usual(recipe, step), saved) for step in known)
    work = _Work(run.path, planned, *_as_recorded(run))
    with progress.task("replay", sum(len(one.trials) for one in planned), "batches") as task:
        found: list[Trial] = run_local_ranks(
            _try_as_rank, work, _PROCESSES, _TIMEOUT_SECONDS, lambda done: task.advance()
        )
    return {
        one.step: Replay(one.step, one.usual, tuple(trial for trial in found if trial.about == one.step))
        for one in planned
    }


@dataclass(frozen=True)
class _Planned:
    """What is to be tried about one step."""

    step: int
    usual: int
    trials: tuple[Trial, ...]
    """Without what they came to."""

    @classmethod
    def of(cls, step: int, usual: int, saved: Sequence[int]) -> _Planned:
        state, *others = _states(saved, step)
        trials = [
            Trial(step, state, about=step),
            Trial(usual, state, about=step),
            Trial(step, state, about=step, process=1),
            *(Trial(batch, other, about=step) for other in others for batch in (step, usual)),
        ]
        return cls(step, usual, tuple(trials[:_MOST_TRIALS]))


@dataclass(frozen=True)
class _Work:
    """What both processes are given."""

    run: Path
    planned: tuple[_Planned, ...]
    given: Mapping[int, Stretches] = field(default_factory=dict)
    """Of steps that were given other samples than the recipe's: these."""
    scales: Mapping[int, float] = field(default_factory=dict)
    """The loss scale of each step in fp16: without it gradients would vanish."""


def _usual(recipe: Recipe, step: int) -> int:
    """A step apart; a later one where there is one, which the state has not been trained on."""
    return step + _APART if step + _APART <= recipe.training.steps else max(1, step - _APART)


def _states(saved: Sequence[int], step: int) -> list[int]:
    """The newest checkpoint before the step, and the next one from it on, or else the one before."""
    before = sorted(one for one in saved if one < step)
    after = sorted(one for one in saved if one >= step)
    other = after[:1] or before[-2:-1]
    return [before[-1], *other]


def _as_recorded(run: RunDirectory) -> tuple[dict[int, Stretches], dict[int, float]]:
    rows = Record(run.record).steps(["given_samples", "loss_scale"])
    given, scales = (
        rows.select("step", name).drop_nulls().iter_rows() if name in rows.columns else ()
        for name in ("given_samples", "loss_scale")
    )
    told = {step: given_stretches(text) for step, text in given}
    return {step: stretches for step, stretches in told.items() if stretches}, dict(scales)


def _try_as_rank(work: _Work, rank: int, store: TCPStore, say: Say) -> list[Trial] | None:
    """Do the trials that fall to this process; the first one returns those of both."""
    own: list[Trial] = []
    wanted = [trial for one in work.planned for trial in one.trials if trial.process == rank]
    for state, trials in groupby(sorted(wanted, key=lambda one: one.state), key=lambda one: one.state):
        for trial in _on_state(work, state, list(trials), rank):
            own.append(trial)
            say(1)
    if rank != 0:
        store.set(_OTHERS, json.dumps([asdict(trial) for trial in own]))
        return None
    others = [Trial(**trial) for trial in json.loads(store.get(_OTHERS))]
    say(len(others))
    order = [(one.batch, one.state, one.about, one.process) for planned in work.planned for one in planned.trials]
    return sorted([*own, *others], key=lambda one: order.index((one.batch, one.state, one.about, one.process)))


def _on_state(work: _Work, state: int, trials: Sequence[Trial], rank: int) -> Iterator[Trial]:
    trained = load_trained_model(RunDirectory(work.run), state)
    recipe, training = trained.recipe, trained.recipe.training
    device = choose_device(training.device, rank if rank < torch.cuda.device_count() else 0)
    use_processors(training.threads, _PROCESSES, device)
    model = apply(trained.model.to(device, parameter_dtype(training.precision)), single_process_world(device))
    feed = FeedAsRecorded(trained.corpus, recipe, work.given)
    for trial in trials:
        yield _tried(trial, model, recipe, feed, work.scales.get(trial.batch, 1.0))


def _tried(trial: Trial, model: ParallelModel, recipe: Recipe, feed: Feed, scale: float) -> Trial:
    """Loss and gradients over the global batch, as the step itself computed them but for the order of sums."""
    device = model.world.device
    batches = [batch.to(device) for batch in feed.micro_batches(trial.batch, 0, 1)]
    tokens = max(sum(int((batch.targets >= 0).sum()) for batch in batches), 1)
    witness = Witness(model)
    model.train()
    with witness.watching():
        sums = model.forward_backward(
            [inputs_of(batch, recipe.training.document_mask) for batch in batches],
            step=trial.batch,
            seed=recipe.seed,
            loss_scale=scale / tokens,
            autocast=lambda: autocast(recipe.training.precision, device),
            phase=lambda name, wait=None: nullcontext(),
        )
    norm = model.gradients.total_norm(model.gradients.norms()) / scale
    model.gradients.clear()
    model.finish_routing(update=False)
    loss, seen = float(sum(float(one.sum()) for one in sums)) / tokens, witness.seen()
    bits = f"{seen.losses % 2**64:016x} {seen.gradients % 2**64:016x}"
    return Trial(**{**asdict(trial), "loss": loss, "gradient_norm": norm, "bits": bits})
