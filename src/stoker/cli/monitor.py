"""The verb `monitor`."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, RunPath, existing_run
from stoker.console import print_json, print_result, progress_for
from stoker.errors import EXIT_FAILED


def monitor(
    run: RunPath,
    once: Annotated[
        bool,
        typer.Option("--once", help="Look once and say what would be told; nobody is told, nothing is written."),
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Go on until stopped, also where the run is not seen to be under way from here."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Watch a run: judge the rules of its recipe, diagnose it, tell people, feed exporters.

    A run is watched by itself, whether `stoker train` starts the ranks or a launcher such as torchrun; this is for
    watching from another machine, or for one that is over, whose figures then go to its exporters.
    Ends with 1 when an alert still fires, else with 0.

    Example: `stoker monitor examples/quickstart/runs/quickstart --once`
    """
    directory = existing_run(run)
    from stoker.monitoring.rules import in_brief
    from stoker.monitoring.watching import watch

    outlook = watch(directory, progress_for(json).say, once=once, follow=follow)
    if json:
        print_json({"run": str(directory.path), **outlook.as_json()})
    else:
        lines = [f"step      {outlook.step}"]
        lines += [f"alert     {notice.rule} ({notice.severity}): {notice.summary}" for notice in outlook.alerts]
        lines += [f"finding   {in_brief(finding)}" for finding in outlook.findings]
        print_result("\n".join(lines if len(lines) > 1 else [*lines, "nothing fires, and nothing stands out"]))
    if outlook.alerts:
        raise typer.Exit(EXIT_FAILED)
