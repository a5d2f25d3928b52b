"""`stoker verify`: does a layout train the same model as one process?"""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli.arguments import AsJson, Overrides, RecipePath, load
from stoker.console import print_json, print_result, progress_for, table
from stoker.errors import EXIT_FAILED, BadInput


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
    from typing import get_args

    from stoker.verification import VerifiedPrecision, shrinking, subject_of
    from stoker.verification import table as tables
    from stoker.verification import verify as verify_layouts
    from stoker.verification.drawing import draw as draw_layouts
    from stoker.verification.drawing import parse

    named = given.training.precision if precision is None else precision
    wanted: VerifiedPrecision | None = next((one for one in get_args(VerifiedPrecision) if one == named), None)
    if wanted is None:
        raise BadInput(f"--precision: expected one of {', '.join(get_args(VerifiedPrecision))}, got {named!r}")
    subject = subject_of(given)
    layouts = [parse(one) for one in layout or ()]
    if not layouts and not draw:
        layouts = [given.layout]
    for one in layouts:
        subject.require_possible(one)
    if draw:
        layouts += [one for one in draw_layouts(subject, draw, ranks, seed) if one not in layouts]
    if not full:
        subject = shrinking.smaller(subject, layouts)
    progress = progress_for(json)
    if subject.smaller:
        progress.say(f"made smaller to be computed in fp64 (--full refuses): {', '.join(subject.smaller)}")
    results = verify_layouts(
        subject, layouts, steps=steps, precision=wanted, progress=progress, timeout_seconds=timeout
    )
    if json:
        found = [tables.as_json(result) for result in results]
        print_json({"recipe": str(recipe), "smaller": subject.smaller, "steps": steps, "results": found})
    elif markdown:
        print_result(tables.markdown(tables.MARKDOWN_HEADERS, tables.markdown_rows(subject.name, results)))
    else:
        print_result(table(tables.HEADERS, tables.rows(results)) + tables.verdict(results))
    if not all(result.agrees for result in results):
        raise typer.Exit(EXIT_FAILED)
