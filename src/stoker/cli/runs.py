"""The verbs that take a run: `eval`, `report`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, RunPath, Step, existing_run
from stoker.console import print_json, print_result, progress_for, table


def evaluate(
    run: RunPath,
    step: Step = None,
    sequences: Annotated[
        int | None,
        typer.Option(min=1, help="Most sequences per source; all held-out text if not given.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """Perplexity and bits per byte of every source's held-out text.

    Example: `stoker eval examples/quickstart/runs/quickstart --step 200`
    """
    directory = existing_run(run)
    from dataclasses import asdict

    from stoker.training.run_evaluation import evaluate_run

    evaluation = evaluate_run(directory, progress_for(json), step, sequences)
    rows = [{"source": score.source, **score.row(evaluation.step)} for score in evaluation.scores]
    if json:
        print_json({**asdict(evaluation), "scores": rows})
        return
    headers = ["source", "loss", "perplexity", "bits_per_byte", "tokens", "bytes"]
    print_result(table(headers, [[row[name] for name in headers] for row in rows]))
    if evaluation.without_held_out:
        print_result(f"nothing held out: {', '.join(evaluation.without_held_out)} (data.held_out)")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; several are compared.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; if not given `RUN/report.html`, or `comparison.html` in the first of several.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Write one page that shows everything a run recorded, readable without a network.

    Example: `stoker report runs/first runs/second --output comparison.html`
    """
    directories = [existing_run(run) for run in runs]
    from stoker.report import write_report

    page = write_report(directories, output)
    print_json({"report": str(page)}) if json else print_result(f"report: {page}")


def export(
    run: RunPath,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="Folder to make; `RUN/export` if not given.", show_default=False),
    ] = None,
    step: Step = None,
    json: AsJson = False,
) -> None:
    """Write a folder that Hugging Face transformers loads, and check that it computes the same.

    Example: `stoker export examples/quickstart/runs/quickstart exported/quickstart`
    """
    directory = existing_run(run)
    from stoker.main_job import export_run

    exported = export_run(directory, folder, step)
    print_json(exported.as_json()) if json else print_result(exported.as_text())
