"""The copies of ranks' state in one node's memory: what there is, what is fetched, what ranks go on from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import connection, get_context
from pathlib import Path

from stoker.checkpoint import read_complete
from stoker.checkpoint.snapshots import Snapshot
from stoker.process_settings import call_process
from stoker.recovery.courier import FETCHED, OF, OUTLINES, Parcel, Round, courier_main
from stoker.recovery.node_link import Door
from stoker.recovery.processes import Address
from stoker.training.rank import Job

__all__ = ["NodeCopies", "Parcel", "Round"]

_FETCH_SECONDS = 1800.0


class NodeCopies:
    """Of one node, in its supervisor. Without a `folder` there are none."""

    def __init__(self, folder: Path | None, host: str, token: str) -> None:
        """Starts the courier, before this process has any link that it could inherit."""
        self.folder = folder
        self.address: Address | None = None
        self._fetching_until: float | None = None
        self._courier = None
        if folder is None:
            return
        context = get_context("fork")
        self._orders, theirs = context.Pipe(duplex=True)
        door = Door(host, token, _FETCH_SECONDS)
        self.address = door.address
        self._courier = context.Process(target=_courier, args=(theirs, self._orders, folder, door, token))
        self._courier.start()
        theirs.close()
        door.close()

    def inventory(self) -> list[Snapshot]:
        """Every complete copy here."""
        if self.folder is None:
            return []
        places = [
            *self.folder.glob("rank-*"),
            *self.folder.glob(f"{OF}*/rank-*"),
            *self.folder.glob(f"{FETCHED}/*"),
        ]
        return [one for place in sorted(places) for one in read_complete(place)]

    def fetch(self, parcels: Sequence[Parcel]) -> None:
        """Begin to fetch `parcels`; `fetched` tells how that ended."""
        self._fetching_until = time.monotonic() + _FETCH_SECONDS
        if self._courier is not None:
            self._order("fetch", list(parcels))

    def fetched(self) -> bool | None:
        """Whether all has come; None while it is under way."""
        if self._fetching_until is None or self._courier is None:
            return False
        try:
            if self._orders.poll():
                self._fetching_until = None
                return bool(self._orders.recv())
        except (EOFError, OSError):
            return False
        return None if self._courier.is_alive() and time.monotonic() < self._fetching_until else False

    def send_to(self, now: Round | None) -> None:
        """Send what this node's ranks copy from now on to its peer; None: send and take in nothing."""
        if self._courier is not None:
            self._order("round", now)

    def arranged(self, job: Job) -> Job:
        """The job with this node's own folders, and the files here of the copies that it names.

        Copies that it does not name are removed: what happened after them is to happen again.
        """
        wanted, files = job.copies, {}
        if wanted is not None and wanted.session and self.folder is not None:
            outlines = [one for place in self.folder.glob(f"{OUTLINES}/*") for one in read_complete(place)]
            for one in [*outlines, *self.inventory()]:  # a whole file is better than an outline
                if (one.note.session, one.step) == (wanted.session, wanted.step):
                    files[one.note.rank] = one.file
        for one in self.inventory() if wanted is not None else ():
            if one.file not in files.values():
                one.file.with_suffix(".json").unlink(missing_ok=True)
                one.file.unlink(missing_ok=True)
        found = tuple(files[rank] for rank in sorted(files))
        return replace(job, snapshots=self.folder, copies=None if wanted is None else replace(wanted, files=found))

    def close(self) -> None:
        """End the courier; the copies stay."""
        if self._courier is not None:
            self._courier.kill()
            self._courier.join()
            self._orders.close()
            self._courier = None

    def _order(self, word: str, content: object) -> None:
        try:
            self._orders.send((word, content))
        except OSError:  # a courier that has died is missed by whoever waits for its answer
            return


def _courier(
    theirs: connection.Connection, ours: connection.Connection, folder: Path, door: Door, token: str
) -> None:
    ours.close()  # copied by the fork: the courier must see its supervisor go
    call_process("courier")
    courier_main(theirs, folder, door, token)
