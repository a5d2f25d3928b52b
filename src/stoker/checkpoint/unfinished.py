"""Copies of a step that is not complete: what a rank has added up so far, in host memory.

    FOLDER/unfinished-0.safetensors  unfinished-0.json
    FOLDER/unfinished-1.safetensors  unfinished-1.json

They lie beside the copies of the state (`stoker.checkpoint.snapshots`) and are as safe from a kill: the older one
is overwritten, and a note tells a complete one. They are of use to this rank alone, and in this layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stoker.checkpoint.digest import Digest, digest_of_bytes
from stoker.checkpoint.parts import Piece, pieces_of, torch_dtype
from stoker.checkpoint.snapshots import NoteOfStep, Slot, read_note
from stoker.checkpoint.state import Part
from stoker.checkpoint.tensor_file import lay_out


class UnfinishedNote(NoteOfStep):
    """What a copy is of."""

    belongs_to: str
    """Whoever has another text here computes something else."""
    micro_batches: int
    """How many of the step's are in it."""
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    """Type and shape."""


@dataclass(frozen=True)
class Unfinished:
    """One complete copy."""

    file: Path
    note: UnfinishedNote

    def read(self) -> dict[str, Tensor] | None:
        """The tensors, in memory of their own; None when they are not what was written."""
        try:
            content = np.memmap(self.file, np.uint8, "r")
        except (OSError, ValueError):
            return None
        found: dict[str, Tensor] = {}
        for name, (dtype, shape) in self.note.tensors.items():
            found[name] = torch.empty(shape, dtype=torch_dtype(dtype))
        for entry in self.note.file.pieces:
            piece = Piece(entry.name, *self.note.tensors[entry.name], entry.box)
            stored = np.array(content[entry.offset : entry.offset + entry.bytes])
            if digest_of_bytes(stored, piece.torch_dtype, piece.box, piece.shape)[0] != Digest.parse(entry.digest):
                return None
            own = found[entry.name][tuple(slice(*bounds) for bounds in entry.box)]
            own.copy_(torch.from_numpy(stored).view(piece.torch_dtype).view(piece.local_shape))
        return found


class UnfinishedSteps:
    """One rank's two copies."""

    def __init__(self, folder: Path, belongs_to: str) -> None:
        self._files = [folder / f"unfinished-{number}.safetensors" for number in range(2)]
        self._belongs_to = belongs_to
        self._slots: dict[Path, Slot] = {}

    def found(self, step: int) -> dict[int, Unfinished]:
        """Complete copies of `step`, by how many micro-batches they hold."""
        notes = [(file, read_note(file, UnfinishedNote)) for file in self._files]
        return {
            note.micro_batches: Unfinished(file, note)
            for file, note in notes
            if note is not None and note.step == step and note.belongs_to == self._belongs_to
        }

    def keep(self, step: int, micro_batches: int, tensors: Mapping[str, Tensor]) -> None:
        """Copy `tensors`, which are what there is after so many of the step's micro-batches."""
        parts = {
            name: Part(one.detach(), tuple(one.shape), tuple((0, size) for size in one.shape))
            for name, one in tensors.items()
        }
        content = dict(pieces_of(parts))
        slot = self._next_slot(list(content), next(iter(tensors.values())).device)
        slot.prepare()
        for piece in slot.layout.pieces:
            slot.take(piece, content[piece])
        if any(one.device.type == "cuda" for one in tensors.values()):
            torch.cuda.current_stream().synchronize()
        digests = {
            piece.key: digest_of_bytes(slot.content(piece), piece.torch_dtype, piece.box, piece.shape)[0]
            for piece in slot.layout.pieces
        }
        described = {
            name: (str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in tensors.items()
        }
        slot.complete(
            UnfinishedNote(
                belongs_to=self._belongs_to,
                step=step,
                micro_batches=micro_batches,
                tensors=described,
                file=slot.entry(digests),
            )
        )
        self._files.reverse()

    def forget(self, but: Unfinished | None = None) -> None:
        """Nothing that was kept can be used any longer, except `but`, which is overwritten last."""
        for file in self._files:
            if but is None or file != but.file:
                file.with_suffix(".json").unlink(missing_ok=True)
        if but is not None and but.file == self._files[0]:
            self._files.reverse()

    def _next_slot(self, pieces: list[Piece], device: torch.device) -> Slot:
        """The older of the two. The pieces are those of the copy before, but for a first use of some weight."""
        file, layout = self._files[0], lay_out(pieces)
        slot = self._slots.get(file)
        if slot is None or slot.layout != layout:
            slot = self._slots[file] = Slot(layout, file, device)
        return slot
