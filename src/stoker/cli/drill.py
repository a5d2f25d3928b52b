"""`stoker drill`: does the run survive what will happen to it?"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.arguments import AsJson, Overrides, load
from stoker.console import Watched, print_error, print_json, print_result, progress_for, table
from stoker.errors import EXIT_FAILED, EXIT_TERMINATED, BadInput, Terminated
from stoker.plural import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.recipe.loading import LoadedRecipe
    from stoker.recovery.drill import Rehearsal
    from stoker.recovery.faults import Fault

_PER_RUN, _RANGES = 5, 4
_WHAT_COLUMNS, _OPTIONS_COLUMNS = 38, 30
"""So that the list of kinds is no wider than 120."""


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
        typer.Option(help="What is drawn (by default `kill`), or drilled; may be repeated.", show_default=False),
    ] = None,
    per_run: Annotated[
        int | None, typer.Option(min=1, help="Drawn faults in each run; by default 5.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of steps and ranks that are drawn; by default 0.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the runs are; by default `drills/NAME` beside the run's.",
            show_default=False,
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
    _require_use(bool(fault), draw > 0, kind=kind, per_run=per_run, seed=seed)
    loaded = load(recipe, overrides, choose_layout=True)
    drills = _chosen(loaded, fault or (), kind, draw, per_run or _PER_RUN, seed or 0)
    found = _rehearsed(loaded, drills, folder, nodes, json)
    _show(found, json)
    if not all(one.survived for one in found):
        raise typer.Exit(EXIT_FAILED)


def _chosen(
    loaded: LoadedRecipe, faults: Sequence[str], kinds: Sequence[str] | None, draw: int, per_run: int, seed: int
) -> list[tuple[Fault, ...]]:
    from stoker.recovery.drill import drawn, every_kind
    from stoker.recovery.faults import SURVIVED_BY_ITSELF, require_known

    for name in kinds or ():
        require_known(name, f"--kind {name}")
    drills = [_parsed(text) for text in faults] + drawn(loaded, kinds or ["kill"], draw, per_run, seed)
    return drills or every_kind(loaded, seed, kinds or SURVIVED_BY_ITSELF)


def _rehearsed(
    loaded: LoadedRecipe, drills: Sequence[tuple[Fault, ...]], folder: Path | None, nodes: int, json: bool
) -> Sequence[Rehearsal]:
    from stoker.recovery.drill import rehearse

    folder = folder or loaded.run.path.parent / "drills" / loaded.run.path.name
    try:
        return rehearse(loaded, drills, folder, progress_for(json), nodes, Watched())
    except (Terminated, KeyboardInterrupt) as stop:
        why = f" ({stop})" if str(stop) else ""
        print_error(f"stopped{why}, and with it the runs that it had started; the same command begins anew")
        raise typer.Exit(EXIT_TERMINATED) from None


def _require_use(faults: bool, draws: bool, **given: object) -> None:
    """Raise `BadInput` for an option that would do nothing."""
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is None or draws:
            continue
        if name == "per_run":
            raise BadInput(f"{option} says how many drawn faults come in each run: give --draw N with it")
        if faults:
            raise BadInput(
                f"{option} says nothing of a --fault, which is written with its kind, step and rank: give --draw N "
                "with it, or leave one of them out"
            )


def _parsed(text: str) -> tuple[Fault, ...]:
    from stoker.recovery.faults import parse_fault

    return tuple(parse_fault(part.strip()) for part in text.split("+"))


def _list(json: bool) -> None:
    from stoker.recovery.faults import BETWEEN_NODES, KINDS, SURVIVED_BY_ITSELF, as_written

    if json:
        print_json(
            {
                name: {
                    "what": kind.what,
                    "phase": as_written(kind.phase),
                    "options": dict(kind.options),
                    "words": {name: list(words) for name, words in kind.words.items()},
                    "goes_on": kind.goes_on,
                    "default": name in SURVIVED_BY_ITSELF,
                    "needs_nodes": name in BETWEEN_NODES,
                }
                for name, kind in KINDS.items()
            }
        )
        return
    rows = []
    for name, kind in KINDS.items():
        words = [f"{word}={next(iter(allowed), 'NAME')}" for word, allowed in kind.words.items()]
        given = [f"{option}={value:g}" for option, value in kind.options.items()]
        wrapped = wrap(", ".join([*given, *words]), _OPTIONS_COLUMNS, break_long_words=False) or [""]
        drilled = "yes" if name in SURVIVED_BY_ITSELF else "needs --nodes" if name in BETWEEN_NODES else "no"
        told = wrap(kind.what, _WHAT_COLUMNS)
        first = True
        for options, line in zip_longest(wrapped, told, fillvalue=""):
            start = (name, as_written(kind.phase)) if first else ("", "")
            rows.append((*start, options, drilled if first else "", line))
            first = False
    print_result(table(("kind", "phase", "options", "by default", "what happens"), rows))


def _show(found: Sequence[Rehearsal], json: bool) -> None:
    if json:
        print_json({"survived": all(one.survived for one in found), "drills": [one.as_json() for one in found]})
        return
    rows = [
        (
            " + ".join(one.faults),
            _outcome(one),
            _seconds(one.detect_seconds),
            _seconds(one.recover_seconds),
            str(one.steps_lost),
            f"{one.samples_lost} / {one.samples_repeated}",
            "unknown" if one.useful is None else f"{one.useful:.0%}",
            _end(one),
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
        if not lost and not any(one.goes_elsewhere for one in found)
        else f"{counted(len(found), 'drills')}: all went on to their end"
        if not lost
        else f"{len(lost)} of {counted(len(found), 'drills')} did NOT end in the same place"
    )
    outputs = [f"\nwhat {' + '.join(one.faults)} printed: {one.output}" for one in lost]
    print_result(table(headers, rows) + _doctor(found) + verdict + "".join(outputs))


def _end(one: Rehearsal) -> str:
    if not one.finished:
        return one.said
    return f"{one.weights}, as is to be expected" if one.goes_elsewhere else one.weights


def _doctor(found: Sequence[Rehearsal]) -> str:
    """What `stoker diagnose` said of each fault that breaks nothing; empty where there is none."""
    rows, runs = [], []
    for output, one in ((drilled.output, examined) for drilled in found for examined in drilled.examined):
        said = one.said
        ranks = "" if said is None else ", ".join(map(str, said.ranks))
        samples = "" if said is None else _ranges(said.documents)
        cause = "nothing" if said is None else f"{said.kind}: {said.cause}"
        step = "" if said is None or said.first_step is None else str(said.first_step)
        named = "yes" if one.named else "elsewhere" if one.elsewhere else "NO"
        runs.append(Path(output).parent)
        rows.append((one.fault, one.cause, named, cause, step, ranks, samples, runs[-1].name))
    if not rows:
        return ""
    headers = ("fault", "put in", "named", "the doctor said", "from step", "ranks", "samples", "run")
    return "\n" + table(headers, rows) + f"evidence and remedy: stoker diagnose {quote(str(runs[0]))}\n"


def _outcome(one: Rehearsal) -> str:
    if not one.survived:
        return "NOT SURVIVED"
    if one.goes_elsewhere:
        said = "went on to its end"
    else:
        said = "survived" if one.weights == "bit-identical" else "survived, in another layout"
    if one.came == len(one.faults):
        return said
    return f"{said}; {one.came} of {counted(len(one.faults), 'faults')} came"


def _ranges(documents: Sequence[tuple[int, int]]) -> str:
    """Of samples; those beyond the first few are counted."""
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in documents[:_RANGES]]
    more = len(documents) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _seconds(values: Sequence[float]) -> str:
    return f"{max(values):.1f} s" if values else "never"
