"""Arguments and options that several verbs have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.errors import BadInput
from stoker.run_directory import RunDirectory

if TYPE_CHECKING:
    from stoker.recipe.loading import LoadedRecipe

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Values in place of the recipe's, such as `training.steps=200` or `data.sources.english.weight=2`.",
        show_default=False,
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option("--run", metavar="FOLDER", help="Folder of the run instead of the recipe's.", show_default=False),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, such as `runs/NAME`.")]
Step = Annotated[
    int | None, typer.Option("--step", help="Step of the checkpoint; the newest if not given.", show_default=False)
]
MachineFile = Annotated[
    Path | None,
    typer.Option(
        "--machine",
        metavar="FILE",
        help="A machine measured before (`stoker plan calibrate`), instead of measuring this one.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and no progress.")]


def existing_run(path: Path) -> RunDirectory:
    """The run at `path`. Raises `BadInput` when there is none."""
    run = RunDirectory(path)
    run.require_run()
    return run


def load(
    path: Path,
    overrides: list[str] | None,
    run: Path | None = None,
    *,
    with_files: bool = False,
    choose_layout: bool = False,
) -> LoadedRecipe:
    """The recipe with what the command line says over it; see `load_recipe`.

    `choose_layout` asks the planner where the recipe says `layout: auto`.
    """
    from stoker.recipe.loading import load_recipe

    given = list(overrides or ())
    if run is not None:
        if not run.name and not run.is_absolute():
            # An unset shell variable: the run would land in the current folder, between other things.
            raise BadInput("--run: expected a folder, got nothing or `.`; name the run's own folder")
        given.append(f"run={json.dumps(str(run.absolute()), ensure_ascii=False)}")
    loaded = load_recipe(path, given, with_files=with_files)
    if loaded.recipe.data.mixture.from_run is not None:
        from stoker.training.evaluated import with_losses_of_run  # loads polars

        loaded = with_losses_of_run(loaded)
    if choose_layout and loaded.layout_is_open:
        from stoker.planning.search.automatic import with_chosen_layout  # loads torch

        return with_chosen_layout(loaded)
    return loaded
