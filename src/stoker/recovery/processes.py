"""The ranks of one attempt: forked from a supervisor that has imported everything and computed nothing."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import stat
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stoker.child_processes import die_with_parent
from stoker.errors import EXIT_FAILED, NonFinite, OutOfMemory, StokerError, Terminated
from stoker.process_settings import call_rank
from stoker.recovery.blame import GroupView
from stoker.recovery.faults import Fault
from stoker.recovery.injection import Injection
from stoker.recovery.lease import Lease
from stoker.recovery.looking import QUESTION, as_views, collectives_here
from stoker.recovery.rank_warnings import print_what_matters
from stoker.run_directory import RunDirectory
from stoker.training.marks import Board
from stoker.training.rank import Job, train_rank
from stoker.training.signals import let_through, listening

Message = dict[str, Any]
Address = tuple[str, int]


@dataclass(frozen=True)
class _Here:
    """Where a rank finds itself."""

    rank: int
    place: int
    """Among the ranks of its node."""
    ranks: int
    """How many there are on its node."""
    meeting: Address
    listener: socket.socket | None


@dataclass
class RankProcess:
    """One rank, seen from its supervisor."""

    process: ForkProcess
    messages: connection.Connection
    """Both ways."""
    failure: Message | None = None
    listening: bool = True

    def receive(self) -> Message | None:
        """What it says, None when it will say no more or has said why it fails."""
        try:
            message: Message = self.messages.recv()
        except (EOFError, ConnectionError):
            self.listening = False
            return None
        if message["kind"] == "failure":
            self.failure = message
            return None
        return message

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self.process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal if it is alive."""
        if self.process.pid is not None and self.is_alive:
            os.kill(self.process.pid, number)


def start_ranks(
    job: Job,
    numbers: Sequence[int],
    board: Board,
    meeting: Address,
    listener: socket.socket | None,
    faults: tuple[Fault, ...],
    lease: Lease | None = None,
) -> list[RankProcess]:
    """Fork the ranks `numbers` of `job`, which leave their marks on `board` in this order and go on under `lease`.

    All ranks find each other at `meeting`; `listener` is its socket, on the node of rank 0.
    """
    context = get_context("fork")
    ranks: list[RankProcess] = []
    for place, rank in enumerate(numbers):
        ours, theirs = context.Pipe(duplex=True)
        others = [other.messages for other in ranks] + [ours]
        here = _Here(rank, place, len(numbers), meeting, listener)
        process = context.Process(
            target=_rank_main, args=(job, here, theirs, others, board, faults, lease), name=f"rank {rank}"
        )
        process.start()
        theirs.close()
        ranks.append(RankProcess(process, ours))
    return ranks


def end_ranks(ranks: list[RankProcess]) -> None:
    """Kill what is alive, and wait until nothing is."""
    for rank in ranks:
        if rank.is_alive:
            rank.process.kill()
    for rank in ranks:
        rank.process.join()
        rank.messages.close()


def _rank_main(
    job: Job,
    here: _Here,
    messages: connection.Connection,
    others: list[connection.Connection],
    board: Board,
    faults: tuple[Fault, ...],
    lease: Lease | None,
) -> None:
    die_with_parent()
    call_rank(here.rank)
    print_what_matters()
    _let_go_of_connections(here.listener)
    for other in others:  # the supervisor's ends, which a fork copies: a rank that dies must be seen to
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's to judge, which passes it on as SIGTERM
    talk, rank, layout = _Talk(messages), here.rank, job.recipe.layout
    timeout = datetime.timedelta(seconds=job.recipe.training.timeout_seconds)
    marks, injection = (
        board.marks(here.place),
        Injection([f for f in faults if f.concerns(rank)], job.attempt, talk.send, job.snapshots, rank),
    )
    if faults or lease is not None:
        marks.heard = _heard(lease, injection)
    try:
        store = _meet(here, layout.world_size, timeout)
        with listening() as stop:
            let_through(signal.SIGTERM)
            send = talk.send if rank == 0 else _tell_nobody
            train_rank(job, rank, here.place, here.ranks, store, stop, send, marks, injection.attach)
            marks.phase("finishing")
    except BaseException as error:
        talk.send(as_failure(error, rank, RunDirectory(job.run)))
        os._exit(getattr(error, "exit_code", EXIT_FAILED))
    talk.send({"kind": "finished", "rank": rank})
    os._exit(0)


def _heard(lease: Lease | None, injection: Injection) -> Callable[[int, str], None]:
    def heard(completed: int, phase: str) -> None:
        if lease is not None:
            lease.wait()
        injection.heard(completed, phase)

    return heard


def _let_go_of_connections(but: socket.socket | None) -> None:
    """Let go of the supervisor's connections to other nodes, which a fork copies: what breaks here is not to break
    them. Their numbers stay taken, for objects in memory still know them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for entry in os.listdir("/dev/fd"):
        number = int(entry)
        try:
            if number == (but.fileno() if but is not None else -1) or not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6):
                    os.dup2(nothing, number, inheritable=False)
        except OSError:  # the list's own entry, closed by now
            continue
    os.close(nothing)


def _meet(here: _Here, ranks: int, timeout: datetime.timedelta) -> TCPStore | None:
    """Where the ranks find each other: at rank 0, which takes over the port that was opened for it."""
    if ranks == 1:
        return None
    host, port = here.meeting
    if here.rank == 0:
        assert here.listener is not None
        taken_over = here.listener.detach()
        return TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=taken_over
        )
    if here.listener is not None:
        here.listener.close()
    return TCPStore(host, port, is_master=False, timeout=timeout)


class _Talk:
    """Sends this rank's messages, and answers the supervisor's questions while the rank is busy or stuck."""

    def __init__(self, messages: connection.Connection) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        threading.Thread(target=self._answer, daemon=True, name="answers").start()

    def send(self, message: Message) -> None:
        """Send `message`; when the supervisor is gone, so is this process in a moment."""
        with self._lock:
            try:
                self._messages.send(message)
            except (BrokenPipeError, ConnectionError, OSError):
                return

    def _answer(self) -> None:
        while True:
            try:
                question = self._messages.recv()
            except (EOFError, OSError):
                return
            if question == QUESTION:
                self.send({"kind": "collectives", "groups": collectives_here()})


def groups_in(message: Message) -> dict[str, GroupView]:
    """What a rank answered about its collectives."""
    return as_views(message["groups"])


def _tell_nobody(message: Message) -> None:
    pass


def as_failure(error: BaseException, rank: int, run: RunDirectory) -> Message:
    """What a rank that fails tells its supervisor."""
    understood = isinstance(error, StokerError)
    message = str(error)
    if not understood:
        path = run.record / f"rank-{rank:05d}" / "traceback.txt"
        message = f"rank {rank} failed: {type(error).__name__}: {message.splitlines()[0] if message else ''}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            message += f" (see {path})"
        except OSError as disk:  # what went wrong must be told even when nothing can be written
            message += f" ({path} could not be written: {disk.strerror})"
    kinds: tuple[type[StokerError], ...] = (NonFinite, Terminated, OutOfMemory)
    return {
        "kind": "failure",
        "rank": rank,
        "time": time.time(),
        "understood": understood,
        "error": next((kind for kind in kinds if isinstance(error, kind)), StokerError),
        "exit_code": getattr(error, "exit_code", EXIT_FAILED),
        "message": message,
        "held_bytes": getattr(error, "held_bytes", 0),
    }


def as_error(failure: Message) -> StokerError:
    """What `as_failure` has told, as it was."""
    error: StokerError = failure["error"](failure["message"])
    error.exit_code = failure["exit_code"]
    if isinstance(error, OutOfMemory):
        error.held_bytes = failure["held_bytes"]
    return error
