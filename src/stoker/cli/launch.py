"""The verbs under `launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, load
from stoker.console import print_json, print_result

verbs = typer.Typer(no_args_is_help=True, help="Write files with which other systems take a run in.")


@verbs.callback()
def _group() -> None:
    """Keeps `monitoring` a word of its own while it is the only one."""


@verbs.command("monitoring")
def monitoring(
    recipe: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="Its rules and its port; the defaults of every recipe without.",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values in place of the recipe's.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.")] = Path(
        "monitoring"
    ),
    json: AsJson = False,
) -> None:
    """Write what Prometheus, Alertmanager and Grafana need to take a run in.

    Example: `stoker launch monitoring recipe.yaml --output monitoring`
    """
    from stoker.launch import write_monitoring
    from stoker.recipe.monitoring import Alerts, Exporters

    loaded = load(recipe, overrides).recipe if recipe is not None else None
    alerts, exporters = (loaded.alerts, loaded.exporters) if loaded is not None else (Alerts(), Exporters())
    written = write_monitoring(output, alerts, exporters)
    print_json({"files": [str(path) for path in written]}) if json else print_result("\n".join(map(str, written)))
