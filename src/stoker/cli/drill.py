"""`stoker drill`: does the run survive what will happen to it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.arguments import AsJson, Overrides, load
from stoker.console import print_error, print_json, print_result, progress_for, table
from stoker.errors import EXIT_FAILED, EXIT_TERMINATED, BadInput, Terminated
from stoker.plural import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.recovery.drill import Rehearsal
    from stoker.recovery.faults import Fault


def drill(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)
    ] = None,
    overrides: Overrides = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="KIND@STEP[:RANK][:OPTION=VALUE,...]",
            help="A fault to rehearse; may be repeated. `+` joins several in one run. By default one of each kind, "
            "at drawn steps and ranks.",
            show_default=False,
        ),
    ] = None,
    draw: Annotated[int, typer.Option(min=0, help="Draw so many faults: any rank, any step, any instant.")] = 0,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="What is drawn; may be repeated. By default `kill`.", show_default=False),
    ] = None,
    per_run: Annotated[int, typer.Option(min=1, help="Drawn faults in each run.")] = 5,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where the runs are; by default `drills` beside the run's.", show_default=False
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(min=1, help="Run each drill over so many nodes on this machine, with a network between them."),
    ] = 1,
    list_kinds: Annotated[bool, typer.Option("--list", help="List the kinds of faults, and stop.")] = False,
    json: AsJson = False,
) -> None:
    """Rehearse faults before the expensive run.

    Trains undisturbed and once with each fault, and reports how soon it was noticed, how soon it trained again,
    what was lost, and whether the weights are the same in the end. Faults come in by this door only.

    Example: `stoker drill recipe.yaml training.steps=30 --fault kill@12:1 --fault freeze@20:0`
    """
    if list_kinds:
        _list(json)
        return
    if recipe is None:
        raise BadInput("stoker drill needs a RECIPE; `stoker drill --list` lists the kinds of faults")
    loaded = load(recipe, overrides, choose_layout=True)
    from stoker.recovery.drill import drawn, every_kind, rehearse

    drills = [_parsed(text) for text in fault or ()] + drawn(loaded, kind or ["kill"], draw, per_run, seed)
    progress = progress_for(json)
    drills = drills or every_kind(loaded, seed)
    try:
        found = rehearse(loaded, drills, folder or loaded.run.path.parent / "drills", progress, nodes)
    except (Terminated, KeyboardInterrupt) as stop:
        why = f" ({stop})" if str(stop) else ""
        print_error(f"stopped{why}, and with it the runs that it had started; the same command begins anew")
        raise typer.Exit(EXIT_TERMINATED) from None
    _show(found, json)
    if not all(one.survived for one in found):
        raise typer.Exit(EXIT_FAILED)


def _parsed(text: str) -> tuple[Fault, ...]:
    from stoker.recovery.faults import parse_fault

    return tuple(parse_fault(part.strip()) for part in text.split("+"))


def _list(json: bool) -> None:
    from stoker.recovery.faults import KINDS

    if json:
        print_json(
            {
                name: {"what": kind.what, "phase": kind.phase, "options": dict(kind.options)}
                for name, kind in KINDS.items()
            }
        )
        return
    rows = [
        (name, kind.phase, ", ".join(f"{option}={value:g}" for option, value in kind.options.items()), kind.what)
        for name, kind in KINDS.items()
    ]
    print_result(table(("kind", "phase", "options", "what happens"), rows))


def _show(found: Sequence[Rehearsal], json: bool) -> None:
    if json:
        print_json({"survived": all(one.survived for one in found), "drills": [one.as_json() for one in found]})
        return
    rows = [
        (
            " + ".join(one.faults),
            "survived" if one.survived else "NOT SURVIVED",
            _seconds(one.detect_seconds),
            _seconds(one.recover_seconds),
            str(one.steps_lost),
            f"{one.samples_lost} / {one.samples_repeated}",
            "unknown" if one.useful is None else f"{one.useful:.0%}",
            one.weights if one.finished else one.said,
        )
        for one in found
    ]
    headers = (
        "fault",
        "outcome",
        "noticed",
        "trains again",
        "steps lost",
        "samples lost / repeated",
        "useful",
        "weights",
    )
    lost = [one for one in found if not one.survived]
    verdict = (
        f"{counted(len(found), 'drills')}: all ended in the same place"
        if not lost
        else f"{len(lost)} of {counted(len(found), 'drills')} did NOT end in the same place"
    )
    print_result(table(headers, rows) + verdict)


def _seconds(values: Sequence[float]) -> str:
    return f"{max(values):.1f} s" if values else "never"
