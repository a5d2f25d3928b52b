"""What a run's evaluations said of each source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recipe.loading import LoadedRecipe, load_recipe
from stoker.record import Record
from stoker.run_directory import RunDirectory


def last_losses(run: RunDirectory, names: Sequence[str]) -> tuple[int, dict[str, float]]:
    """The step of a run's last evaluation, and the held-out loss of each of `names` in it, in nats a token.

    Raises `BadInput` when the run has no evaluation, or its last one lacks a source.
    """
    rows = Record(run.record).evaluations()
    if not {"step", "source", "loss"} <= set(rows.columns) or not rows.height:
        raise BadInput(
            f"{run.path} has no evaluation in its record; `evaluation.every` says how often there is one"
        )
    step = max(rows["step"].drop_nulls().to_list())
    last = rows.filter(rows["step"] == step)
    losses = dict(zip(last["source"].to_list(), last["loss"].to_list(), strict=True))
    if missing := [name for name in names if losses.get(name) is None]:
        raise BadInput(
            f"the evaluation of {run.path} after step {step:,} has no loss of {', '.join(missing)}; it has "
            f"{', '.join(map(str, losses))}"
        )
    return int(step), {name: round(float(losses[name]), 6) for name in names}


def with_losses_of_run(loaded: LoadedRecipe) -> LoadedRecipe:
    """`loaded` with the losses of the run that `data.mixture.from_run` names; unchanged where it names none.

    The recipe that is written into a run has the losses themselves, and a run that exists keeps those, so that what
    a step draws never depends on what another run does later. Raises `BadInput` as `last_losses`, and where the
    folder holds no run.
    """
    recipe = loaded.recipe
    named = recipe.data.mixture.from_run
    if named is None:
        return loaded
    names = [source.name for source in recipe.data.sources]
    losses = _begun_with(loaded, names)
    if losses is None:
        run = RunDirectory(loaded.resolve(named))
        try:
            run.require_run()
            _, losses = last_losses(run, names)
        except BadInput as error:
            raise BadInput(f"data.mixture.from_run: {error}") from error
    return replace(loaded, recipe=_with_losses(recipe, losses))


def _begun_with(loaded: LoadedRecipe, names: Sequence[str]) -> dict[str, float] | None:
    """The losses that the recipe's own run has, if it was begun with those of all sources."""
    if not loaded.run.recipe.is_file():
        return None
    losses = load_recipe(loaded.run.recipe).recipe.data.mixture.losses
    return losses if set(losses) == set(names) else None


def _with_losses(recipe: Recipe, losses: dict[str, float]) -> Recipe:
    mixture = recipe.data.mixture.model_copy(update={"losses": losses, "from_run": None})
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"mixture": mixture})})
