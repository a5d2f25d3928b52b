"""`stoker verify`: does a layout train the same model as one process?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from stoker.cli.arguments import AsJson, Overrides, RecipePath, load
from stoker.console import print_json, print_result, progress_for, table
from stoker.errors import EXIT_FAILED, BadInput

if TYPE_CHECKING:
    from stoker.layout import Layout
    from stoker.verification import Result, Subject, VerifiedPrecision


def verify(
    recipe: RecipePath,
    overrides: Overrides = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            metavar="NAME=VALUE,...",
            help="A layout to verify, such as `tp=2,pp=2,pipeline_schedule=zbv`; may be repeated. By default the "
            "recipe's own.",
            show_default=False,
        ),
    ] = None,
    draw: Annotated[int, typer.Option(min=0, help="Draw so many layouts that can train the model.")] = 0,
    ranks: Annotated[int, typer.Option(min=2, help="Most ranks of a drawn layout.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 3,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Besides fp64: fp32, bf16, fp16, pure_bf16; or fp64 for that alone. By default the recipe's.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Never make the model smaller.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a collective may take.")] = 120,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the worst of all layouts for a page.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Run layouts as real processes and compare every step with one process.

    Loss, gradients, norm, weights, optimizer state and checkpoints are compared in fp64 and in the recipe's
    precision. Where a layout differs, the first module that does is named. Tokens are made up.

    Example: `stoker verify recipe.yaml --draw 24 --ranks 8`
    """
    given = load(recipe, overrides).recipe
    from stoker.verification import shrinking, subject_of
    from stoker.verification import verify as verify_layouts

    wanted, subject = _precision(precision or given.training.precision), subject_of(given)
    layouts = _layouts(subject, given.layout, layout or (), draw, ranks, seed)
    if not full:
        subject = shrinking.smaller(subject, layouts)
    progress = progress_for(json)
    if subject.smaller:
        progress.say(f"made smaller to be computed in fp64 (--full refuses): {', '.join(subject.smaller)}")
    results = verify_layouts(
        subject, layouts, steps=steps, precision=wanted, progress=progress, timeout_seconds=timeout
    )
    _show(results, subject, {"recipe": str(recipe), "smaller": subject.smaller, "steps": steps}, json, markdown)
    if not all(result.agrees for result in results):
        raise typer.Exit(EXIT_FAILED)


def _show(results: list[Result], subject: Subject, about: dict[str, object], json: bool, markdown: bool) -> None:
    from stoker.verification import table as tables

    if json:
        print_json({**about, "results": [tables.as_json(result) for result in results]})
    elif markdown:
        print_result(tables.markdown(tables.MARKDOWN_HEADERS, tables.markdown_rows(subject.name, results)))
    else:
        print_result(table(tables.HEADERS, tables.rows(results)) + tables.verdict(results))


def _precision(named: str) -> VerifiedPrecision:
    from stoker.verification import VerifiedPrecision

    wanted: VerifiedPrecision | None = next((one for one in get_args(VerifiedPrecision) if one == named), None)
    if wanted is None:
        raise BadInput(f"--precision: expected one of {', '.join(get_args(VerifiedPrecision))}, got {named!r}")
    return wanted


def _layouts(subject: Subject, own: Layout, named: Sequence[str], draw: int, ranks: int, seed: int) -> list[Layout]:
    """Those that are named, or else the recipe's own, and those that are drawn."""
    from stoker.verification import drawing

    layouts = [drawing.parse(one) for one in named]
    if not layouts and not draw:
        layouts = [own]
    for one in layouts:
        subject.require_possible(one)
    if draw:
        layouts += [one for one in drawing.draw(subject, draw, ranks, seed) if one not in layouts]
    return layouts
