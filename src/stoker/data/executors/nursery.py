"""Worker processes forked from one that has everything imported, so that no worker imports it again.

A process with several threads must not be forked: in the child, a lock that another thread held is never let go.
So the nursery itself is forked while its parent has a single thread, as the kernel counts them, and from then on
does nothing but fork workers and wait for their ends. Some threads do not count: those of jemalloc, which holds its
locks itself while a process is forked and starts its threads anew in the child, and that of polars, which has locks
of its own alone; no worker uses polars.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from stoker.errors import StokerError
from stoker.process_settings import call_process, end_with_parent

ONE_THREAD_EACH = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""The environment of workers: they are as many as there are processors."""
_THREADS, _FILES = Path("/proc/self/task"), Path("/proc/self/fd")
_SAFE_THREADS = ("jemalloc_bg_thd", "polars-ooc-clea")
_MESSAGE_BYTES = 64

Serve = Callable[[int], None]
"""The life of a worker, which takes jobs from standard input and answers on standard output; given its memory."""


def nursery(serve: Serve) -> Nursery | None:
    """A nursery of workers that `serve`; None where this process cannot be forked, as it has several threads."""
    return Nursery(serve) if sys.platform == "linux" and _threads() == 1 else None


def _threads() -> int:
    """Threads of this process that a fork might surprise."""
    names = [(thread / "comm").read_text().strip() for thread in _THREADS.iterdir()]
    return sum(name not in _SAFE_THREADS for name in names)


class Nursery:
    """The parent's end. It may be used by several threads, and ends with this object."""

    def __init__(self, serve: Serve) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()  # or the child would print it again
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            try:
                _tend(control, serve, parent)
            finally:
                os._exit(1)
        control.close()
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._control, pid, parent)

    def start(self, memory: int) -> Forked:
        """A new worker that may take so many bytes for its data."""
        jobs_out, jobs_in = os.pipe()
        answers_out, answers_in = os.pipe()
        pid = self._asked("fork", memory, [jobs_out, answers_in])
        os.close(jobs_out)
        os.close(answers_in)
        return Forked(self, pid, os.fdopen(jobs_in, "wb"), os.fdopen(answers_out, "rb"))

    def wait(self, pid: int) -> int:
        """The exit code of a worker, negative for a signal, once it has ended."""
        return self._asked("wait", pid, [])

    def _asked(self, what: str, number: int, files: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [f"{what} {number}".encode()], files)
                answer = self._control.recv(_MESSAGE_BYTES)
            except ConnectionError:
                answer = b""
        if not answer:
            raise StokerError(
                "the process that starts the workers of the preparation was ended; the machine may be short of "
                "memory. Run the same command again (what was finished is kept), or set data.workers lower"
            )
        return int(answer)


class Forked:
    """A worker of a nursery: what is used of a `subprocess.Popen`."""

    def __init__(self, home: Nursery, pid: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._home = home
        self._code: int | None = None
        self._waiting = threading.Lock()

    def kill(self) -> None:
        """End it, whatever it does. Its number is not given to another process before it was waited for."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal, once it has ended."""
        with self._waiting:  # a process can be waited for once, and who ends it is not who reads its answers
            if self._code is None:
                self._code = self._home.wait(self.pid)
                for stream in (self.stdin, self.stdout):
                    with suppress(OSError):  # what it was not told is of no interest any more
                        stream.close()
            return self._code


def _end(control: socket.socket, pid: int, parent: int) -> None:
    """Let a nursery end, and wait for it; its workers end with it."""
    if os.getpid() == parent:
        control.close()
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _tend(control: socket.socket, serve: Serve, parent: int) -> NoReturn:
    """The life of a nursery: until the other end of `control` is closed."""
    end_with_parent()
    call_process("nursery")
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; Ctrl-C reaches the whole group
    _let_go_of_files(control.fileno())
    os.environ.update(ONE_THREAD_EACH)
    gc.freeze()  # what the parent left is never looked at again, and stays in memory that is shared with it
    while True:
        message, files, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
        if not message:
            os._exit(0)
        what, number = message.decode().split()
        if what == "wait":
            _, status = os.waitpid(int(number), 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        tending, pid = os.getpid(), os.fork()
        if pid == 0:
            _serve(control, files, serve, int(number), tending)
        for file in files:
            os.close(file)
        control.send(str(pid).encode())


def _let_go_of_files(kept: int) -> None:
    """Hold nothing that the parent has open, such as a lock. The numbers stay taken, since objects know them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in [int(path.name) for path in _FILES.iterdir()]:
        if file > sys.stderr.fileno() and file not in (kept, nothing):
            with suppress(OSError):
                os.dup2(nothing, file, inheritable=False)


def _serve(control: socket.socket, files: list[int], serve: Serve, memory: int, parent: int) -> NoReturn:
    try:
        end_with_parent()
        if os.getppid() == parent:
            control.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            serve(memory)
    finally:
        os._exit(1)
