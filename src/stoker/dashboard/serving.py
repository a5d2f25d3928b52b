"""Serving the page: which address, which port, with which token."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import BadInput, StokerError

if TYPE_CHECKING:
    import uvicorn

    from stoker.dashboard.application import Watching

PORT = 8420
_PORTS_TRIED = 64
_NEEDED = ("starlette", "uvicorn")


@dataclass(frozen=True)
class Address:
    """Where the page is."""

    host: str
    port: int
    token: str | None

    @property
    def url(self) -> str:
        """What to open, with the token where one is required."""
        host = _reachable(self.host)
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def require_packages(names: Sequence[str] = _NEEDED) -> None:
    """Raise `BadInput` that says what to install when a package is missing."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        raise BadInput(f"`stoker watch` needs {' and '.join(absent)}: pip install 'stoker[watch]'")


def _reachable(host: str) -> str:
    """An address that stands for all of a machine's is not one that can be opened."""
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket at `port`, or at the next free one; 0 takes any. Raises `StokerError` when there is none."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"--host {host}: no such address of this machine ({error})") from error
    last: OSError | None = None
    for number in range(port, min(port + _PORTS_TRIED, 65_536)):
        # Named as TCP, which asyncio looks for: else each answer's body comes 40 ms late.
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((place[0], number, *place[2:]))
            opened.listen(128)
        except OSError as error:
            opened.close()
            last = error
            continue
        return opened
    raise StokerError(f"no port from {port} on can be opened at {host}: {last}; name another with --port")


def serve(
    paths: Sequence[Path],
    host: str,
    port: int,
    token: str | None,
    opened: Callable[[Address], None],
) -> None:
    """Serve the runs at `paths` until the process is asked to end. `opened` is told the address.

    A token is made where `host` is no loopback address and none is given. Raises `BadInput` where there is no run.
    """
    require_packages()
    from stoker.dashboard.application import Watching
    from stoker.dashboard.guard import is_loopback

    watching = Watching(paths)
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    with contextlib.closing(bound_socket(host, port)) as listening:
        address = Address(host, listening.getsockname()[1], token)
        server_for(watching, address, lambda: opened(address)).run(sockets=[listening])


def server_for(watching: Watching, address: Address, started: Callable[[], None]) -> uvicorn.Server:
    """The server of a guarded dashboard. `started` is called when it answers."""
    import uvicorn

    from stoker.dashboard.application import application_for
    from stoker.dashboard.guard import Guard, names_of_host

    application = application_for(watching)

    class Server(uvicorn.Server):
        """Tells when it answers, and lets nobody wait for news when it ends."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await application.state.newsroom.close()
            await super().shutdown(sockets)

    guarded = Guard(application, names_of_host(address.host), address.token, f"stoker_watch_{address.port}")
    return Server(
        uvicorn.Config(
            guarded, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
    )


def open_browser(address: Address) -> None:
    """Show the page in the person's browser; where there is none, the printed address serves."""
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(address.url)
