"""`stoker simulate`: what failures, stragglers and checkpoints leave of a large run's time and money."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.arguments import AsJson
from stoker.console import print_json, print_result, progress_for, table


def simulate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN.yaml] [KEY=VALUE]...",
            help="The run, a YAML file, and values in place of its own, such as `accelerators=16384` or "
            "`failures.kinds.software.detection_seconds=30`. Without a file all is as by default.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=2000, help="Runs to simulate.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all draws; the same seed, the same answer.")] = 0,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            help="Also a table of goodput and cost over `interval`, `spares`, `restart` or `accelerators`. With "
            "`--json` all four, unless some are named.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Goodput and cost of a training run at 1,000 to 100,000 accelerators, by formula and by Monte Carlo.

    Says which checkpoint interval is best, how many spare nodes, and what a faster restart is worth.

    Example: `stoker simulate accelerators=16384 failures.per_1000_node_days=6.5 --sweep spares`
    """
    from stoker.planning.reliability import SWEEPS, answer, read_run, words

    given = list(arguments or ())
    path = Path(given.pop(0)) if given and "=" not in given[0] else None
    run = read_run(path, given)
    wanted = tuple(dict.fromkeys(sweep or (SWEEPS if json else ())))
    with progress_for(json).task("simulating", 100, "percent") as task:
        found = answer(run, runs, seed, wanted, lambda share: task.advance(100 * share))
    if json:
        print_json(found.as_json())
        return
    parts = [words.summary(found), "", table(words.LOSSES, words.losses(found))]
    parts.append(table(words.KINDS, words.kinds(found)))
    parts.append(table(words.WORTHS, words.worth_rows(found)))
    for what in filter(found.sweeps.get, found.sweeps):
        parts.append(table(words.sweep_headers(what), words.sweep_rows(found, what)))
    parts.append(words.verdict(found))
    print_result("\n".join(parts))
