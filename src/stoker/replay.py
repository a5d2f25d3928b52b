"""Computes batches of a run's steps once more, on the states of its checkpoints: whether a loss is the batch's
doing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker.checkpoint import checkpoints_of, steps_saved
from stoker.data.feeding import Feed
from stoker.diagnosis.replayed import Replay, Trial
from stoker.errors import BadInput
from stoker.parallel import ParallelModel, apply, single_process_world
from stoker.parallel.world import choose_device
from stoker.progress import Progress
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.run_directory import RunDirectory
from stoker.training.precision import autocast
from stoker.training.rank import use_processors
from stoker.training.step import inputs_of
from stoker.training.trained_model import load_trained_model

_APART = 8
"""Steps between a suspected batch and the one that it is held against."""


def replay_steps(run: RunDirectory, steps: Sequence[int], progress: Progress) -> dict[int, Replay]:
    """The trials about each suspected step: five at most, each a forward pass over a whole global batch.

    On the newest checkpoint before the step: its batch, a usual one, and its batch once more; on the next
    checkpoint, or else an earlier one: both batches. In one process, whatever the run's layout. Changes nothing of
    the run. Raises `BadInput` when there is no checkpoint before any of the steps.
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
    found = {}
    with progress.task("replay", 5 * len(known), "batches") as task:
        for step in known:
            trials: list[Trial] = []
            usual = _usual(recipe, step)
            for number, state in enumerate(_states(saved, step)):
                batches = (step, usual, step) if number == 0 else (step, usual)
                for trial in _trials(run, state, batches):
                    trials.append(trial)
                    task.advance()
            found[step] = Replay(step, usual, tuple(trials))
    return found


def _usual(recipe: Recipe, step: int) -> int:
    """A step apart; a later one where there is one, which the state has not been trained on."""
    return step + _APART if step + _APART <= recipe.training.steps else max(1, step - _APART)


def _states(saved: Sequence[int], step: int) -> list[int]:
    """The newest checkpoint before the step, and the next one from it on, or else the one before."""
    before = sorted(one for one in saved if one < step)
    after = sorted(one for one in saved if one >= step)
    other = after[:1] or before[-2:-1]
    return [before[-1], *other]


def _trials(run: RunDirectory, state: int, batches: Sequence[int]) -> list[Trial]:
    trained = load_trained_model(run, state)
    device = choose_device(trained.recipe.training.device, 0)
    use_processors(trained.recipe.training.threads, 1, device)
    model = apply(trained.model.to(device), single_process_world(device))
    model.train(False)
    feed = Feed(trained.corpus, trained.recipe)
    return [
        Trial(batch, state, _loss(model, trained.recipe, feed, batch), again=batch in batches[:number])
        for number, batch in enumerate(batches)
    ]


@torch.no_grad()
def _loss(model: ParallelModel, recipe: Recipe, feed: Feed, step: int) -> float:
    """Mean cross-entropy over the global batch of `step`."""
    total, tokens = 0.0, 0
    for batch in feed.micro_batches(step, 0, 1):
        own = batch.to(model.world.device)
        with autocast(recipe.training.precision, model.world.device):
            total += float(model.evaluate(inputs_of(own, recipe.training.document_mask)).sum())
        tokens += int((own.targets >= 0).sum())
    return total / max(tokens, 1)
