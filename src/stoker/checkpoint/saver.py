"""Saves beside the training: the state is copied to host memory, and written from there."""

from __future__ import annotations

import copy
import datetime
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.checkpoint.agreement import from_everyone, from_first, new_group, rank_and_ranks, together
from stoker.checkpoint.background import Background
from stoker.checkpoint.digest import Digest
from stoker.checkpoint.manifest import describe
from stoker.checkpoint.parts import Piece, pieces_of
from stoker.checkpoint.place import Place
from stoker.checkpoint.reading import Bytes
from stoker.checkpoint.retention import remove_old
from stoker.checkpoint.saving import finite_digests, optimizer_name, whole_state
from stoker.checkpoint.snapshots import Note, Slot, forget_all, read_complete, slot_file
from stoker.checkpoint.state import Box, HeldTensor, allocate_state
from stoker.checkpoint.tensor_file import lay_out
from stoker.checkpoint.writing import Captured, Plan, make_plan, write_checkpoint
from stoker.errors import NonFinite, StokerError
from stoker.recipe import Checkpoint

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a save ended."""

    step: int
    seconds: float
    """From the state's capture to its being durable, or to the failure."""
    stalled_seconds: float
    """For which training waited: for memory that was still being written from, and for the copy."""
    bytes: int = 0
    """Written by this rank."""
    path: Place | None = None
    error: StokerError | None = None
    """Why there is no checkpoint of this step."""


@dataclass
class _Capture:
    """The state of one step on its way through host memory."""

    step: int
    progress: dict[str, Any]
    slot: Slot
    tensors: list[tuple[Piece, Tensor]]
    begun: float
    durable: bool = True
    stalled: float = 0.0
    not_kept: Exception | None = None
    """Why this copy cannot outlive the process; a checkpoint can be written from it all the same."""
    digests: dict[tuple[str, Box], Digest] | None = None
    error: Exception | None = None
    _copied: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _places: dict[tuple[str, Box], int] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {piece.key: place for place, (piece, _) in enumerate(self.tensors)}

    def copy(self, arrived: Callable[[], None]) -> None:
        """Copy everything; `arrived` waits for what a device sends."""
        if self.error is not None:
            return
        try:
            for piece, tensor in self.tensors:
                self.slot.take(piece, tensor)
                if tensor.device.type == "cpu":
                    self._come_to(self._copied + 1)
            arrived()
            self._come_to(len(self.tensors))
        except Exception as error:
            self.fail(error)
        finally:
            self.tensors = [(piece, tensor.new_empty(0)) for piece, tensor in self.tensors]

    def digest(self) -> None:
        """Digest the copy, and look whether it is finite."""
        if self.error is not None:
            return
        try:
            found = finite_digests([piece for piece, _ in self.tensors], self.slot.content, self.step)
        except Exception as error:
            self.fail(error)
            return
        with self._changed:
            self.digests = found
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Let whoever waits have `error`."""
        with self._changed:
            self.error = self.error or error
            self._copied = len(self.tensors)
            self._changed.notify_all()

    def wait_copied(self) -> None:
        """Wait until model and optimizer may be changed."""
        with self._changed:
            self._changed.wait_for(lambda: self._copied >= len(self.tensors))

    def content(self, piece: Piece) -> Bytes:
        """The copy of `piece`, once it is there."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self._copied > self._places[piece.key])
        self._raise()
        return self.slot.content(piece)

    def wait_digests(self) -> Mapping[tuple[str, Box], Digest]:
        """The digests of all pieces, once they are there."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self.digests is not None)
        self._raise()
        assert self.digests is not None
        return self.digests

    def _come_to(self, copied: int) -> None:
        with self._changed:
            self._copied = copied
            self._changed.notify_all()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error


class Saver:
    """One rank's part in saving. All ranks call the same methods in the same order.

    `stage` begins to copy the state and returns; `settle` must be called before weights, buffers or moments
    change. What happens then happens in threads: the copy is digested, written and published, and `poll` tells how
    that ended. With a folder for `snapshots` the copies themselves are kept there, two of them, so that a process
    that is killed leaves its state: see `stoker.checkpoint.snapshots`.
    """

    def __init__(
        self,
        checkpoints: Place,
        policy: Checkpoint,
        held: Sequence[HeldTensor],
        optimizer: Optimizer,
        *,
        snapshots: Path | None = None,
        step: int = 0,
        timeout: datetime.timedelta = datetime.timedelta(minutes=10),
    ) -> None:
        """Collective. `snapshots` is this rank's own folder: a complete snapshot of `step`, from which the run goes
        on, stays there until there is a newer one on every rank, and others are removed at once. No collective of
        the threads takes longer than `timeout`."""
        self.checkpoints = checkpoints
        self._policy, self._held, self._optimizer = policy, list(held), optimizer
        self._folder = snapshots
        self._writers, self._copiers = new_group(timeout), new_group(timeout)
        self._session = from_first(uuid.uuid4().hex)
        self._slots: list[Slot] = []
        self._plan: Plan | None = None
        self._current: _Capture | None = None
        self._copying, self._writing = Background("copies-state"), Background("writes-checkpoint")
        self._written_from: Slot | None = None
        self._kept_last = True
        self._outcomes: deque[Outcome] = deque()
        self._saves = self._saves_ended = self._saves_ended_everywhere = 0
        self._numbers = [0, 1] if snapshots is None else _tidied(snapshots, step)
        self._device = _device_of(self._held)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.non_finite: NonFinite | None = None
        """Set when a state was captured that held a NaN or Inf: it was not kept, and the run must stop."""

    @property
    def keeps_snapshots(self) -> bool:
        """Whether there is any use in staging what is not to be durable."""
        return self._folder is not None

    def stage(self, step: int, progress: dict[str, Any], *, durable: bool = True) -> None:
        """Begin to copy the state after `step`, and to write a checkpoint of it when that is to be `durable`.

        `progress` is copied. Waits for the save before when that is not over, and for memory. Collective.
        """
        if not (durable or self.keeps_snapshots):
            return
        begun = time.perf_counter()
        if durable:
            self._writing.wait()
            self._written_from, self._saves_ended_everywhere = None, self._saves
        self._copying.wait()
        allocate_state(self._optimizer)
        state = whole_state(self._held, self._optimizer)
        tensors = dict(pieces_of(state))
        if self._plan is None:
            self._plan = make_plan(list(tensors), describe(state))
        slot = self._free_slot(list(tensors))
        ordered = [(piece, tensors[piece]) for piece in slot.layout.pieces]
        capture = _Capture(step, copy.deepcopy(progress), slot, ordered, begun, durable)
        self._current = capture
        ready = None if self._stream is None else torch.cuda.current_stream(self._device).record_event()
        self._copying.begin(lambda: self._copy(capture, ready))
        if durable:
            self._saves += 1
            self._written_from = slot
            self._writing.begin(lambda: self._write(capture))
        capture.stalled += time.perf_counter() - begun

    def settle(self) -> float:
        """Wait until what was staged is copied; returns for how many seconds. Nothing may change before."""
        if self._current is None:
            return 0.0
        begun = time.perf_counter()
        self._current.wait_copied()
        waited = time.perf_counter() - begun
        self._current.stalled += waited
        self._current = None
        return waited

    def forget(self) -> None:
        """The copies in memory are of states that the run has gone back from. Waits for what is under way."""
        self._outcomes.extend(self.finish())
        for slot in self._slots:
            slot.forget()
        if self._folder is not None:
            forget_all(self._folder)

    def poll(self) -> list[Outcome]:
        """How saves ended that ended since the last call."""
        found = []
        while self._outcomes:
            found.append(self._outcomes.popleft())
        return found

    def finish(self) -> list[Outcome]:
        """Wait for what is under way; returns as `poll`. Collective in effect: ranks finish a save together."""
        self.settle()
        self._copying.wait()
        self._writing.wait()
        return self.poll()

    def close(self) -> None:
        """Wait for what is under way, and let go of the memory. Snapshots stay where they are, and so does what
        `poll` has to tell."""
        self.settle()
        self._copying.close()
        self._writing.close()
        for slot in self._slots:
            slot.close()
        self._slots.clear()

    def _free_slot(self, pieces: list[Piece]) -> Slot:
        """The slot that is overwritten next: not the one being written from, and of two the older."""
        allowed = 1 if self._folder is None else 2
        if self._saves_ended_everywhere == self._saves:
            self._written_from = None
        free = [slot for slot in self._slots if slot is not self._written_from]
        if len(self._slots) == allowed:
            return min(free, key=lambda slot: slot.step)
        file = None if self._folder is None else slot_file(self._folder, self._numbers[len(self._slots)])
        slot = Slot(lay_out(pieces), file, self._device)
        self._slots.append(slot)
        return slot

    def _copy(self, capture: _Capture, ready: torch.cuda.Event | None) -> None:
        """Runs in a thread: copy, digest, and where copies are kept agree that all ranks have theirs."""
        self._prepare(capture)
        if self._stream is None:
            capture.copy(lambda: None)
        else:
            with torch.cuda.stream(self._stream):
                if ready is not None:
                    self._stream.wait_event(ready)
                capture.copy(self._stream.synchronize)
        capture.digest()
        if self.keeps_snapshots:
            self._keep(capture)

    def _prepare(self, capture: _Capture) -> None:
        """Have memory to copy to. Where there is no room for files in memory, a checkpoint is written from this
        process's own."""
        try:
            try:
                capture.slot.prepare()
            except (OSError, StokerError) as error:
                if not (capture.durable and self.keeps_snapshots):
                    raise
                capture.not_kept = error
                capture.slot = Slot(capture.slot.layout, None, self._device)
                capture.slot.prepare()
        except Exception as error:
            capture.fail(error)

    def _keep(self, capture: _Capture) -> None:
        """Say that the slot is complete. Until all ranks have come here none of them overwrites the one before."""
        try:
            together(lambda: self._complete(capture), self._copiers)
            self._kept_last = True
            self._saves_ended_everywhere = min(from_everyone(self._saves_ended, self._copiers))
        except NonFinite as error:
            self.non_finite = error
            capture.slot.forget()
        except Exception as error:
            if self._kept_last:
                _log.warning("step %d and later ones are not kept in memory: %s", capture.step, error)
            self._kept_last = False
            capture.slot.forget()

    def _complete(self, capture: _Capture) -> None:
        note = self._note(capture)
        if capture.not_kept is not None:
            raise capture.not_kept
        capture.slot.complete(note)

    def _note(self, capture: _Capture) -> Note:
        assert self._plan is not None
        rank, ranks = rank_and_ranks()
        return Note(
            session=self._session,
            rank=rank,
            ranks=ranks,
            step=capture.step,
            optimizer=optimizer_name(self._optimizer),
            progress=capture.progress,
            described=self._plan.described,
            file=capture.slot.entry(capture.wait_digests()),
        )

    def _write(self, capture: _Capture) -> None:
        """Runs in a thread: write the checkpoint from the copy."""
        assert self._plan is not None
        captured = Captured(
            capture.step,
            capture.progress,
            optimizer_name(self._optimizer),
            capture.content,
            capture.wait_digests,
        )
        path, written, error = None, 0, None
        try:
            path, written = write_checkpoint(self.checkpoints, captured, self._plan, self._writers)
        except StokerError as understood:
            error = understood
        except Exception as other:
            error = StokerError(f"step {capture.step} is not saved: {type(other).__name__}: {other}")
        if isinstance(error, NonFinite):
            self.non_finite = error
        self._saves_ended += 1
        seconds = time.perf_counter() - capture.begun
        if path is not None:
            remove_old(self.checkpoints, path, self._policy)
        self._outcomes.append(Outcome(capture.step, seconds, capture.stalled, written, path, error))


def _device_of(held: Sequence[HeldTensor]) -> torch.device:
    return next((one.tensor.device for one in held if one.tensor.device.type != "cpu"), torch.device("cpu"))


def _tidied(folder: Path, step: int) -> list[int]:
    """Remove snapshots but the one of `step`; returns the numbers of slots, that one's last."""
    kept = next((one.file for one in read_complete(folder) if one.step == step), None)
    numbers = [0, 1]
    if kept == slot_file(folder, 0):
        numbers.reverse()
    for path in folder.glob("slot-*") if folder.is_dir() else []:
        if kept is None or path.stem != kept.stem:
            path.unlink(missing_ok=True)
    return numbers
