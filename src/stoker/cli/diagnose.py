"""The verb `diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, RunPath, existing_run
from stoker.console import print_json, print_result, progress_for
from stoker.errors import EXIT_FAILED


def diagnose(
    run: RunPath,
    since: Annotated[
        int | None,
        typer.Option(min=0, help="Only what was still seen at this step or later.", show_default=False),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Replay suspected steps on checkpoints, five at most and in two processes, where the record may "
            "not tell whether the text, the weights or a machine was at fault.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Say what stands out in a run's record: what, when, where, how sure, the evidence, and what to do.

    Ends with 1 when an alarm stands, else with 0. A run may still be under way.

    Example: `stoker diagnose examples/quickstart/runs/quickstart --since 100`
    """
    directory = existing_run(run)
    from stoker.diagnosis import diagnose as diagnose_run
    from stoker.diagnosis.replayed import worth_replaying
    from stoker.diagnosis.telling import in_text

    diagnosis = diagnose_run(directory, since)
    if replay and (steps := worth_replaying(diagnosis.findings)):
        from stoker.replay import replay_steps

        diagnosis = diagnose_run(directory, since, replay_steps(directory, steps, progress_for(json)))
    print_json(diagnosis.as_json()) if json else print_result(in_text(diagnosis))
    if diagnosis.alarm_stands:
        raise typer.Exit(EXIT_FAILED)
