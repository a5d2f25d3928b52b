"""`stoker profile`: where does the time of a step go?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.arguments import AsJson, MachineFile, Overrides, RecipePath, load
from stoker.console import print_json, print_result, progress_for, table

if TYPE_CHECKING:
    from stoker.profiling import Profile


def profile(
    recipe: RecipePath,
    overrides: Overrides = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="FIRST-LAST",
            help="Steps to profile, such as 12-14; those before warm up. By default the fifth to seventh.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FOLDER",
            help="Where trace and figures go; by default `profiles/NAME` beside the runs.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Go on from this run's newest checkpoint.", show_default=False),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run that is made for it, in the output folder.")
    ] = False,
    machine: MachineFile = None,
    json: AsJson = False,
) -> None:
    """Profile steps of a recipe on all ranks of its layout: one trace, where the time goes, what to do.

    Trains a run of its own; the recipe's run is not touched.

    Example: `stoker profile recipe.yaml layout.dp_replicate=2 --steps 12-14 --output profile`
    """
    loaded = load(recipe, overrides, choose_layout=True)
    from stoker.planning import read_machine
    from stoker.profiling import Request
    from stoker.profiling import profile as profile_steps

    known = None if machine is None else read_machine(machine)
    found = profile_steps(loaded, Request(steps, output, start, keep, known), progress_for(json))
    if found is not None:
        _show(found, json)


def _show(found: Profile, json: bool) -> None:
    from stoker.profiling import telling

    if json:
        print_json(telling.as_json(found))
        return
    sections = [
        "\n".join([*telling.heading(found), *telling.memory_lines(found)]),
        table(*telling.time_table(found)),
        table(*telling.parts(found)),
        table(*telling.operator_table(found)),
        table(*telling.predicted_table(found)),
        "\n".join(telling.check_list(found)),
    ]
    print_result("\n\n".join(section.rstrip() for section in sections if section.strip()))
