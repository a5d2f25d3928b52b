"""`stoker bench …`: measure this machine or cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.arguments import AsJson
from stoker.console import print_json, print_result, progress_for, table

verbs = typer.Typer(no_args_is_help=True, help="Measure this machine or cluster.", rich_markup_mode="markdown")


@verbs.callback()
def _measurements() -> None:
    pass  # with it typer keeps `collectives` a word of its own


@verbs.command()
def collectives(
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            help="Processes to start here; by default one for each accelerator, or for each core up to 8.",
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Sizes of each rank's buffer, in bytes: k, m and g are 2^10, 2^20, 2^30.")
    ] = "1k,64k,1m,16m",
    op: Annotated[
        str, typer.Option("--op", help="all_reduce, all_gather, reduce_scatter, all_to_all or p2p.")
    ] = "all_reduce",
    node_size: Annotated[
        int | None,
        typer.Option(
            "--node-size",
            help="Ranks of a node, for the hierarchical algorithm; by default those of this machine.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Times each algorithm takes its turn.")] = 15,
    dtype: Annotated[str, typer.Option("--dtype", help="fp32, bf16, fp16 or fp64.")] = "fp32",
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="File of measurements, to which this one is added.")
    ] = Path("collectives.json"),
    json: AsJson = False,
) -> None:
    """Time collectives by several algorithms and the library's, and say which to use for which size.

    Example: `stoker bench collectives --ranks 4 --sizes 1k,1m --op all_reduce`
    """
    from stoker.bench.local_ranks import measure_everywhere
    from stoker.bench.measurement import rounds_in_all
    from stoker.bench.request import is_first_rank, request_of
    from stoker.bench.results import read_measurements, write_measurements
    from stoker.bench.tables import FITS, TIMES, choices, fits, times

    request = request_of(op, sizes, ranks, node_size, rounds, dtype, device)
    known = read_measurements(output)
    with progress_for(json).task(
        f"{op} on {request.topology.ranks} ranks", rounds_in_all(request), "rounds"
    ) as task:

        def advance(what: str) -> None:
            task.describe(what)
            task.advance()

        measured = measure_everywhere(request, advance)
    if is_first_rank():
        write_measurements(output, known.with_one_more(measured))
    if json:
        print_json(measured.model_dump(mode="json"))
        return
    tables = table(TIMES, times(measured)), table(FITS, fits(measured))
    print_result("\n".join((*tables, f"{choices(measured)}\nwrote {output}")))
