"""Runs the command line in processes forked from one that has imported it, and computed nothing.

Each is the command as users start it, from `stoker.__main__` on, without the seconds that imports take: a test run
gives hundreds of commands. Those that are started with `subprocess` in the tests import everything themselves.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_MODULES = (
    "torch",
    "polars",
    "stoker.cli",
    "stoker.data.prepare",
    "stoker.planning.plan",
    "stoker.recovery.drill",
    "stoker.recovery.supervised",
    "stoker.report",
    "stoker.training.launching",
    "stoker.verification",
)
_LENGTH = 1 << 20


def environment() -> dict[str, str]:
    """The environment of a command under test."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class Server:
    """The process that has imported everything. It ends with this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment()
        )
        theirs.close()
        atexit.register(self.close)

    def run(self, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with captured output. Raises `TimeoutExpired` once the command is killed."""
        request = json.dumps([list(arguments), str(Path.cwd()), environment()]).encode()
        with (
            self._lock,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            open(os.devnull) as nothing,
        ):
            socket.send_fds(self._socket, [request], [nothing.fileno(), out.fileno(), err.fileno()])
            pid = int(self._socket.recv(64))
            self._socket.settimeout(timeout)
            try:
                status = int(self._socket.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(None)
                self._socket.recv(64)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            finally:
                self._socket.settimeout(None)
            found = []
            for file in (out, err):
                file.seek(0)
                found.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(list(arguments), os.waitstatus_to_exitcode(status), *found)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()


@cache
def server() -> Server:
    """This process's own."""
    return Server()


def serve(connection: socket.socket) -> None:
    """Fork for each request and say how the child ended; return in a child, which goes on as the command."""
    while True:
        request, streams, _, _ = socket.recv_fds(connection, _LENGTH, 3)
        if not request:
            sys.exit()
        arguments, folder, environment = json.loads(request)
        pid = os.fork()
        if pid == 0:
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["stoker", *arguments]
            return
        for stream in streams:
            os.close(stream)
        connection.send(str(pid).encode())
        connection.send(str(os.waitpid(pid, 0)[1]).encode())


if __name__ == "__main__":
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    from stoker.__main__ import main

    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.exit(1)
