"""The verb `watch`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.arguments import AsJson
from stoker.console import print_json, print_result
from stoker.errors import BadInput

if TYPE_CHECKING:
    from stoker.dashboard.serving import Address


def watch(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or folders that hold runs.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to serve at; any but a loopback address requires a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve at, or the next free one; 0 takes any.")
    ] = 8420,
    token: Annotated[
        str | None,
        typer.Option(help="Token that the page requires; made where one is needed.", show_default=False),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="The essentials of one run in this terminal instead of a page.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Watch runs live: a local web page, or `--terminal` over ssh. Reads only; ends with Ctrl-C.

    Without a terminal, `--terminal` prints how the run stands, once.

    Example: `stoker watch examples/quickstart/runs/quickstart`
    """
    if token is not None and not token.strip():
        raise BadInput("--token: expected some characters, got none; leave the option out to have a token made")
    if terminal:
        from stoker.dashboard.terminal import watch_in_terminal

        told = watch_in_terminal(runs, as_json=json)
        if told is not None:
            print_json(told) if json else print_result(told)
        return
    from stoker.dashboard.serving import open_browser, serve

    def opened(address: Address) -> None:
        if json:
            print_json({"url": address.url, "host": address.host, "port": address.port, "token": address.token})
        else:
            print_result(f"{address.url}\nCtrl-C ends the dashboard; the runs go on.")
        if browser and not json:
            open_browser(address)

    with suppress(KeyboardInterrupt):
        serve(runs, host, port, token, opened)
