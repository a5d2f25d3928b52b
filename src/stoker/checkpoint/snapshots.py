"""Copies of a rank's state in host memory: what is saved is written from them, and a killed process leaves them.

    FOLDER/slot-0.safetensors  slot-0.json     the state of one step, and what it is
    FOLDER/slot-1.safetensors  slot-1.json     that of the step before

In a folder of shared memory (/dev/shm) the files are the memory. The note beside the tensors is removed before they
are overwritten and written when they are complete and digested, so that a kill at any instant leaves at least one
slot with a note. What is loaded from them is verified by the digests in the note.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from stoker.checkpoint.digest import Digest, bytes_of
from stoker.checkpoint.manifest import FORMAT, FileEntry, Frozen, Manifest, file_entry, tensor_entries
from stoker.checkpoint.parts import Piece
from stoker.checkpoint.reading import Bytes
from stoker.checkpoint.state import Box
from stoker.checkpoint.tensor_file import TensorFile
from stoker.durable_files import explained_disk_errors
from stoker.errors import BadInput


class NoteOfStep(Frozen):
    """What is said of any file of tensors of one step."""

    format: int = FORMAT
    step: int
    file: FileEntry


N = TypeVar("N", bound=NoteOfStep)


class Note(NoteOfStep):
    """What a slot holds."""

    session: str
    """Drawn by each start of a run: what ranks of different starts hold does not belong together."""
    rank: int
    ranks: int
    optimizer: str
    progress: dict[str, Any]
    described: dict[str, tuple[str, tuple[int, ...]]]
    """Type and whole shape of every tensor of all ranks."""


@dataclass(frozen=True)
class Snapshot:
    """One rank's state after one step, complete."""

    file: Path
    """Of its tensors."""
    note: Note

    @property
    def step(self) -> int:
        """After which it was taken."""
        return self.note.step


class Slot:
    """Host memory for a rank's state, laid out as a file of tensors and used again and again."""

    def __init__(self, layout: TensorFile, file: Path | None, device: torch.device) -> None:
        """`file` is where the memory is; None: this process's own. For a CUDA `device` it is pinned."""
        self.layout, self.file, self.step = layout, file, -1
        self._places = {
            piece.key: (offset, piece.bytes) for piece, offset in zip(layout.pieces, layout.offsets, strict=True)
        }
        self._memory: Bytes = np.empty(0, np.uint8)
        self._on_cuda, self._pinned = device.type == "cuda", False

    def prepare(self) -> None:
        """Be ready to be overwritten: what is in it is complete no longer. The first time takes the memory."""
        self.forget()
        if not len(self._memory):
            header = np.frombuffer(self.layout.header, np.uint8)
            self._memory = np.frombuffer(_mapped(self.layout.bytes, self.file), np.uint8)
            self._memory[: len(header)] = header
            self._pinned = self._on_cuda and _pin(self._memory)

    def content(self, piece: Piece) -> Bytes:
        """The memory of `piece`."""
        offset, size = self._places[piece.key]
        return self._memory[offset : offset + size]

    def take(self, piece: Piece, tensor: Tensor) -> None:
        """Copy `tensor` to the place of `piece`; from CUDA begin to."""
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            np.copyto(self.content(piece), bytes_of(tensor))  # releases the interpreter, uses one thread
            return
        place = torch.from_numpy(self.content(piece)).view(tensor.dtype).view(tensor.shape)
        place.copy_(tensor, non_blocking=True)

    def forget(self) -> None:
        """What is in it is complete no longer."""
        self.step = -1
        if self.file is not None:
            _note_of(self.file).unlink(missing_ok=True)

    def complete(self, note: NoteOfStep) -> None:
        """What is in it is complete: say so to whoever finds it."""
        self.step = note.step
        if self.file is not None:
            content = note.model_dump_json().encode()
            marked = hashlib.sha256(content).hexdigest().encode() + b"\n" + content
            partial = self.file.with_suffix(".partial")
            partial.write_bytes(marked)  # memory: there is nothing to flush
            os.replace(partial, _note_of(self.file))

    def entry(self, digests: Mapping[tuple[str, Box], Digest]) -> FileEntry:
        """Of the note."""
        return file_entry(self.layout, digests)

    def close(self) -> None:
        """Let go of the memory; a file stays."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._memory.ctypes.data)  # type: ignore[no-untyped-call]
        self._memory = np.empty(0, np.uint8)


def _mapped(size: int, file: Path | None) -> mmap.mmap:
    if file is None:
        # Not populated: while the system does that, nothing else in this process can have memory.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        return memory
    with explained_disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        _note_of(file).unlink(missing_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
            os.posix_fallocate(descriptor, 0, size)  # a full disk is an error here, not a signal later
            return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED)
        finally:
            os.close(descriptor)


def _pin(memory: Bytes) -> bool:
    """Whether the memory can be copied to from the device beside other work."""
    registered = torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0)  # type: ignore[no-untyped-call]
    return int(registered) == 0


def _note_of(file: Path) -> Path:
    return file.with_suffix(".json")


def slot_file(folder: Path, number: int) -> Path:
    """Where a slot is."""
    return folder / f"slot-{number}.safetensors"


def folder_of(root: Path, rank: int) -> Path:
    """Where a rank's slots are, in the folder for all ranks of this machine."""
    return root / f"rank-{rank:05d}"


def folders_in(root: Path) -> list[Path]:
    """The folders of all ranks that left some."""
    return sorted(root.glob("rank-*"))


def remove_beyond(root: Path, ranks: int) -> None:
    """Remove what ranks left that are no more, now that a run of `ranks` goes on without them."""
    for folder in folders_in(root):
        if folder.name >= folder_of(root, ranks).name:
            shutil.rmtree(folder, ignore_errors=True)


def forget_all(folder: Path) -> None:
    """Nothing in one rank's `folder` is complete any longer."""
    for one in read_complete(folder):
        _note_of(one.file).unlink(missing_ok=True)


def read_complete(folder: Path) -> list[Snapshot]:
    """The complete snapshots of one rank in `folder`, the newest first."""
    found = [_read(file) for file in sorted(folder.glob("slot-*.safetensors"))] if folder.is_dir() else []
    return sorted((one for one in found if one is not None), key=lambda one: -one.step)


def _read(file: Path) -> Snapshot | None:
    note = read_note(file, Note)
    return None if note is None else Snapshot(file, note)


def read_note(file: Path, kind: type[N]) -> N | None:
    """What is said of `file`; None when that is nothing, damaged, of another format or of another file."""
    try:
        mark, _, content = _note_of(file).read_bytes().partition(b"\n")
        if mark != hashlib.sha256(content).hexdigest().encode():
            return None
        note = kind.model_validate_json(content)
        return note if note.format == FORMAT and file.stat().st_size == note.file.bytes else None
    except (OSError, ValidationError):
        return None


def complete_sets(snapshots: Iterable[Snapshot]) -> list[list[Snapshot]]:
    """Snapshots that belong together and hold every element of the state, the newest step first.

    Those of ranks that are lost are not missed where others hold the same elements.
    """
    together: dict[tuple[int, str], list[Snapshot]] = {}
    for one in snapshots:
        together.setdefault((one.step, one.note.session), []).append(one)
    return [found for _, found in sorted(together.items(), reverse=True) if _covers(found)]


def newest_set(folders: Iterable[Path]) -> list[Path]:
    """The files of the newest complete set in the folders of all ranks, for `load`; empty when there is none."""
    sets = complete_sets(one for folder in sorted(folders) for one in read_complete(folder))
    return [one.file for one in sets[0]] if sets else []


def _covers(found: Sequence[Snapshot]) -> bool:
    missing = {name: math.prod(shape) for name, (_, shape) in found[0].note.described.items()}
    seen: set[tuple[str, Box]] = set()
    for one in found:
        for entry in one.note.file.pieces:
            if (entry.name, entry.box) not in seen:
                seen.add((entry.name, entry.box))
                missing[entry.name] -= math.prod(last - first for first, last in entry.box)
    return not any(missing.values())


def manifest_of(files: Sequence[Path]) -> Manifest:
    """What the snapshot `files`, which belong together, hold. Files have their whole paths for names."""
    found = [one for one in map(_read, files) if one is not None]
    if len(found) < len(files) or not files or len(complete_sets(found)) != 1:
        raise BadInput(
            f"{', '.join(map(str, files)) or 'nothing'} is not a complete set of snapshots of one step: "
            "give what `newest_set` finds, or a checkpoint's folder"
        )
    note = min(found, key=lambda one: one.note.rank).note
    entries = {str(one.file.resolve()): one.note.file for one in found}
    return Manifest(
        step=note.step,
        ranks=note.ranks,
        optimizer=note.optimizer,
        progress=note.progress,
        tensors=tensor_entries(note.described, entries),
        files=entries,
    )
