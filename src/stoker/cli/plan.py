"""`stoker plan …`: what a run will need, predicted before it is started; and how good such predictions are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stoker.cli.arguments import AsJson, Overrides, RecipePath, load
from stoker.console import print_json, print_result, progress_for

_OF_A_RECIPE = "recipe"


class _RecipeUnlessNamed(TyperGroup):
    """`stoker plan RECIPE` is `stoker plan recipe RECIPE`: what is no verb here is the recipe's path or an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_OF_A_RECIPE, *args]
        return super().parse_args(ctx, args)


verbs = typer.Typer(
    cls=_RecipeUnlessNamed,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Predict memory and time before a run is started.\n\n"
    "`stoker plan RECIPE` is short for `stoker plan recipe RECIPE`.",
)


@verbs.command(_OF_A_RECIPE)
def plan(recipe: RecipePath, overrides: Overrides = None, json: AsJson = False) -> None:
    """Predict memory and time of a run on this machine before it is started.

    Example: `stoker plan recipe.yaml training.global_batch_size=64`
    """
    loaded = load(recipe, overrides)
    from stoker.main_job import plan_before_training

    outcome = plan_before_training(loaded, progress_for(json))
    print_json(outcome.model_dump(mode="json")) if json else print_result(str(outcome))


@verbs.command()
def evaluate(
    measurements: Annotated[Path, typer.Argument(metavar="CSV", help="Published measurements, a row each.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write each row's prediction here, as CSV.", show_default=False),
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Also fit the parameters again without each source (minutes)."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Hold predictions for described clusters against measurements, source by source.

    Example: `stoker plan evaluate measurements.csv --out predictions.csv`
    """
    from stoker.planning.cluster.evaluation import evaluate as judge
    from stoker.planning.cluster.measurements import read_measurements

    outcome = judge(read_measurements(measurements), leave_one_out, progress_for(json))
    if out is not None:
        outcome.write(out)
    print_json(outcome.as_json()) if json else print_result(outcome.as_text())
