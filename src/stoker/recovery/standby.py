"""Supervisors that wait for orders: forked before the command computes anything, or from a server.

A supervisor that is ordered to lead trains to the end. One that is ordered to follow may be ordered again when its
leader is lost, and then perhaps to lead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context, reduction
from multiprocessing.context import ForkProcess, ForkServerProcess

from stoker.child_processes import die_with_parent, fork_server, held_back
from stoker.errors import StokerError
from stoker.process_settings import call_process
from stoker.recovery.faults import Fault
from stoker.recovery.following import Following, follow
from stoker.recovery.leading import Lead
from stoker.recovery.processes import as_failure
from stoker.recovery.supervisor import Supervisor
from stoker.recovery.tenure import Replaced
from stoker.run_directory import RunDirectory
from stoker.training.rank import Job
from stoker.training.signals import StopRequest, let_through, listening


class Standby:
    """A supervisor that waits for its orders, and perhaps another one in case it dies."""

    def __init__(
        self,
        process: ForkProcess | ForkServerProcess,
        channel: connection.Connection,
        spare: Standby | None = None,
    ) -> None:
        self.process = process
        self.channel = channel
        self.spare = spare

    def lead(self, job: Job, faults: tuple[Fault, ...], lock: int, lead: Lead | None) -> None:
        """Give it the job, and the lock on the run's folder, which stays held while it or any rank lives.

        `lead` is what it needs to lead other nodes; None on one node.
        """
        assert self.process.pid is not None
        self.channel.send((job, faults, lead))
        reduction.send_handle(self.channel, lock, self.process.pid)

    def follow(self, following: Following) -> None:
        """Have it serve the leader of another node."""
        self.channel.send(following)

    def end(self) -> None:
        """Kill it if it is alive, and the spare one; its ranks end with it."""
        if self.spare is not None:
            self.spare.end()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.channel.close()


@contextmanager
def standby(*, forked: bool) -> Iterator[Standby]:
    """A supervisor for `train`, ended when the block ends.

    `forked`: from this very process, which then must have imported everything and computed nothing.
    """
    found = _start_forked(_start_forked()) if forked else _start_from_server()
    try:
        yield found
    finally:
        found.end()


class Supervisors:
    """The supervisor at work, and what takes its place when it dies: its spare one, then new ones from a server."""

    def __init__(self, ready: Standby | None) -> None:
        """`ready`, with its spare, is its owner's to end."""
        self._current = ready
        self._own: list[Standby] = []

    def current(self) -> Standby:
        """The one at work."""
        if self._current is None:
            self._current = _start_from_server()
            self._own.append(self._current)
        return self._current

    def replace(self) -> None:
        """The one at work has died."""
        self._current = self.current().spare

    def close(self) -> None:
        """End those that were started here."""
        for one in self._own:
            one.end()


def _start_forked(spare: Standby | None = None) -> Standby:
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=True)
    copied = [ours] if spare is None else [ours, spare.channel]
    process = context.Process(target=_supervisor_main, args=(theirs, copied), name="supervisor")
    with held_back():
        process.start()
    theirs.close()
    return Standby(process, ours, spare)


def _start_from_server() -> Standby:
    context = fork_server("stoker.recovery.standby")
    ours, theirs = context.Pipe(duplex=True)
    process = context.Process(target=_supervisor_main, args=(theirs, ()), name="supervisor")
    try:
        process.start()
    except (EOFError, ConnectionError) as error:
        raise StokerError(
            "the process that starts the supervisor died; often that is the system running out of memory. Nothing "
            "saved is lost: the same command goes on from the newest checkpoint."
        ) from error
    theirs.close()
    return Standby(process, ours)


def _supervisor_main(channel: connection.Connection, copied: Sequence[connection.Connection]) -> None:
    for commands_end in copied:  # by the fork: nobody but the command may hold them
        commands_end.close()
    die_with_parent(by_thread=False)
    call_process("superv.")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's to judge, which passes it on as SIGTERM
    run: RunDirectory | None = None
    stop = StopRequest()
    try:
        with listening() as stop:
            while isinstance(order := channel.recv(), Following):
                let_through(signal.SIGTERM)
                channel.send(follow(order, stop, channel.send))
            job, faults, lead = order
            run = RunDirectory(job.run)
            lock = reduction.recv_handle(channel)  # it stays open here and in every rank
            let_through(signal.SIGTERM)
            Supervisor(job, faults, stop, channel.send, lead, lock).run()
        channel.send({"kind": "finished"})
    except (BrokenPipeError, EOFError, ConnectionError):  # the command is gone
        os._exit(0 if run is None else 1)
    except Replaced as by:
        channel.send({"kind": "replaced", "node": by.node})
    except BaseException as error:
        channel.send({**as_failure(error, 0, run or RunDirectory(order.run)), "stopped_by": stop.by})
    os._exit(0)
