"""`stoker plan …`: what a run will need, predicted before it is started; and how good such predictions are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from stoker.cli.arguments import AsJson, MachineFile, Overrides, RecipePath, load
from stoker.console import print_error, print_json, print_result, progress_for

_OF_A_RECIPE = "recipe"
Fixed = Annotated[int | None, typer.Option(min=1, help="Look at layouts with this size alone.", show_default=False)]


class _RecipeUnlessNamed(TyperGroup):
    """`stoker plan RECIPE` is `stoker plan recipe RECIPE`: what is no verb here is a path or an option."""

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
def plan(
    recipe: RecipePath,
    overrides: Overrides = None,
    machine: MachineFile = None,
    json: AsJson = False,
) -> None:
    """Predict memory and time of a run on this machine before it is started.

    Example: `stoker plan recipe.yaml training.global_batch_size=64`
    """
    loaded = load(recipe, overrides, choose_layout=True)
    from stoker.main_job import plan_before_training
    from stoker.planning import read_machine

    known = None if machine is None else read_machine(machine)
    outcome = plan_before_training(loaded, progress_for(json), known)
    print_json(outcome.model_dump(mode="json")) if json else print_result(str(outcome))


@verbs.command()
def search(
    recipe: RecipePath,
    cluster: Annotated[
        Path, typer.Option("--cluster", metavar="FILE", help="The cluster, a YAML file: accelerator, nodes, …")
    ],
    overrides: Overrides = None,
    goal: Annotated[
        Literal["time", "cost"],
        typer.Option("--goal", help="Least time of a step, or fewest accelerator-hours (on fewer nodes, too)."),
    ] = "time",
    tp: Fixed = None,
    pp: Fixed = None,
    cp: Fixed = None,
    ep: Fixed = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", metavar="FILE", help="Draw the pipeline here, as SVG.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """Search layout, micro-batch, schedule and memory techniques for a recipe on a described cluster.

    Needs no accelerator and no text: the vocabulary is `tokenizer.vocabulary_size`. What the recipe
    says of layout and memory is only compared; its `micro_batch_size` is kept where it gives one.

    Example: `stoker plan search recipe.yaml --cluster cluster.yaml model.preset=llama-3-70b`
    """
    given = load(recipe, overrides).recipe
    from stoker.durable_files import write_text
    from stoker.planning.cluster import read_cluster
    from stoker.planning.search import Choices
    from stoker.planning.search import search as find
    from stoker.planning.search.explanation import as_dict, as_text, improvements
    from stoker.planning.search.timeline import draw_timeline

    choices = Choices(tp, pp, cp, ep, given.training.micro_batch_size)
    found = find(given, given.tokenizer.vocabulary_size, read_cluster(cluster), goal, choices)
    improved = improvements(found)
    print_json(as_dict(found, improved)) if json else print_result(as_text(found, improved, given.training.steps))
    if timeline is not None and found.best.layout.pp == 1:
        print_error("no picture: the best layout has no pipeline to draw")
    elif timeline is not None:
        write_text(timeline, draw_timeline(found.best))


@verbs.command()
def calibrate(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="[RECIPE]", help="Measure the shapes of this recipe's model.")
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write what was measured.")] = Path(
        "machine.yaml"
    ),
    json: AsJson = False,
) -> None:
    """Measure this machine once, for plans that are to be made later or elsewhere (`stoker plan --machine`).

    Example: `stoker plan calibrate recipe.yaml --out machine.yaml`
    """
    given = None if recipe is None else load(recipe, overrides, choose_layout=True).recipe
    from stoker.planning import measure_machine, write_machine

    measured = measure_machine(given, given.tokenizer.vocabulary_size if given else None)
    write_machine(measured, out)
    print_json(measured.model_dump(mode="json")) if json else print_result(
        f"{measured.summary()}\nwritten to {out}"
    )


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
