"""A run's folder as a trainer leaves it, written without training, and programs that tests start."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory
from tests.recipe.recipes import SMALL, write
from tests.record.step_rows import step_row

NOW = 1_800_000_000.0


def make_run(folder: Path, extra: str = "") -> RunDirectory:
    """A run whose recipe is the small one and `extra` sections."""
    run = RunDirectory(folder / "run")
    run.path.mkdir(parents=True)
    loaded = load_recipe(write(folder, SMALL + extra))
    run.recipe.write_text(dump_recipe(loaded.recipe), encoding="utf-8")
    run.record.mkdir()
    run.plan.write_text("{}")
    return run


def steps(run: RunDirectory, first: int, last: int, rank: int = 0, **changed: Any) -> None:
    """Step rows of one rank, ten a second up to now; `changed` may be functions of the step."""
    writer = RecordWriter(run.record, rank, 3600.0)
    for step in range(first, last + 1):
        values = {name: value(step) if callable(value) else value for name, value in changed.items()}
        writer.append("step", step_row(step, **{"time": NOW - (last - step) / 10, "loss": 3.0, **values}))
    assert writer.close()


def rows(run: RunDirectory, kind: str, *found: dict[str, Any], rank: int = 0) -> None:
    """Rows of any kind."""
    writer = RecordWriter(run.record, rank, 3600.0)
    for row in found:
        writer.append(kind, {"attempt": 1, "step": 1, "time": NOW, **row})
    assert writer.close()


def event(name: str, step: int | None = None, **detail: Any) -> dict[str, Any]:
    """A row of kind `event`."""
    return {"event": name, "step": step, "detail": detail}


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `what` returns as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class Receiver:
    """A webhook: keeps what it gets, and answers as it is told."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.status = 200
        self.authorization: str | None = None
        self.hangs = threading.Event()
        self.let_go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.hangs.is_set():
                    receiver.let_go.wait(30)
                    return
                receiver.got.append(json.loads(body))
                receiver.authorization = self.headers["Authorization"]
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    try:
        yield found
    finally:
        found.close()


def program(name: str) -> str:
    """Where a program is. Skips the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: prometheus, prometheus-alertmanager)")
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
