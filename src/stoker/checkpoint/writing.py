"""Writes one checkpoint: beside, flushed, marked complete last, renamed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from stoker.checkpoint.agreement import Group, from_first, one_each, rank_and_ranks, to_first, together
from stoker.checkpoint.digest import Digest
from stoker.checkpoint.integrity import find_damage_together
from stoker.checkpoint.manifest import (
    FileEntry,
    Manifest,
    file_entry,
    file_name,
    folder_name,
    last_files,
    step_folders,
    step_of,
    tensor_entries,
)
from stoker.checkpoint.parts import Piece, share_out
from stoker.checkpoint.place import Place, abandon, explained_errors, make, publish, unfinished_name
from stoker.checkpoint.retention import remove_old
from stoker.checkpoint.state import Box
from stoker.checkpoint.tensor_file import TensorFile, lay_out
from stoker.recipe import Checkpoint

Described = dict[str, tuple[str, tuple[int, ...]]]
_BUFFER = 2**20
"""Bytes; what is smaller is gathered before it is written."""


@dataclass(frozen=True)
class Plan:
    """What this rank writes; the same for every save of a run."""

    layout: TensorFile | None
    """Of this rank's file; None when others write all that it holds."""
    described: Described
    """Type and whole shape of every tensor of every rank."""


@dataclass(frozen=True)
class Captured:
    """The state of one step, on this rank."""

    step: int
    progress: dict[str, Any]
    optimizer: str
    """The optimizer's class."""
    content: Callable[[Piece], npt.NDArray[np.uint8]]
    """The bytes of a piece. Waits until they are there."""
    digests: Callable[[], Mapping[tuple[str, Box], Digest]]
    """Of all of this rank's pieces. Waits until they are known; raises `NonFinite` when one is not finite."""


def make_plan(pieces: Sequence[Piece], described: Described, group: Group = None) -> Plan:
    """Agree on who writes what. Collective."""
    held = to_first((list(pieces), described), group)
    shares = share_out([own for own, _ in held])
    own = one_each(shares, group)
    everything = {name: entry for _, part in held for name, entry in part.items()}
    return Plan(lay_out(own) if own else None, from_first(everything, group))


def write_checkpoint(
    checkpoints: Place, captured: Captured, plan: Plan, policy: Checkpoint, group: Group = None
) -> tuple[Place, int]:
    """Write what was captured, then remove what `policy` no longer keeps. Collective over `group`.

    Returns where it is and the bytes this rank wrote. A complete checkpoint of the same step is left as it is; a
    damaged one is replaced. Raises `NonFinite` and `StokerError` on every rank alike; older checkpoints stand then.
    """
    first, written = rank_and_ranks()[0] == 0, 0
    folder = _complete(checkpoints, captured.step, group)
    if folder is None:
        folder, written = _write_and_publish(checkpoints, captured, plan, group)
    else:
        together(captured.digests, group)
    newest = folder
    together(lambda: remove_old(checkpoints, newest, policy) if first else None, group)
    return newest, written


def _complete(checkpoints: Place, step: int, group: Group) -> Place | None:
    """A checkpoint of `step` that is there already, undamaged. Collective."""
    first = rank_and_ranks()[0] == 0
    found = together(lambda: [one.name for one in step_folders(checkpoints)] if first else [], group)
    for name in from_first([one for one in found if step_of(checkpoints / one) == step], group):
        if find_damage_together(checkpoints / name, group) is None:
            return checkpoints / name
    return None


def _write_and_publish(checkpoints: Place, captured: Captured, plan: Plan, group: Group) -> tuple[Place, int]:
    rank, ranks = rank_and_ranks()
    name, layout = folder_name(captured.step), plan.layout
    folder = checkpoints / from_first(unfinished_name(checkpoints, name), group)
    try:
        together(lambda: make(folder) if rank == 0 else None, group)
        together(lambda: _write_own(folder / file_name(rank), layout, captured), group)
        digests = together(captured.digests, group)
        entries = to_first(None if layout is None else file_entry(layout, digests), group)
        files = {file_name(number): one for number, one in enumerate(entries) if one is not None}
        last = last_files(_manifest(captured, ranks, plan, files)) if rank == 0 else []
        together(lambda: publish(folder, name, last) if rank == 0 else None, group)
    except BaseException:
        if rank == 0:
            abandon(folder)
        raise
    final = checkpoints / (name if isinstance(folder, Path) else folder.name)
    return final, 0 if layout is None else layout.bytes


def _write_own(file: Place, layout: TensorFile | None, captured: Captured) -> None:
    if layout is not None:
        write_file(file, layout, captured.content)


def write_file(file: Place, layout: TensorFile, content: Callable[[Piece], npt.NDArray[np.uint8]]) -> None:
    """Write a file of tensors from beginning to end, and flush it to the disk."""
    with explained_errors(file), _writable(file) as stream:
        stream.write(layout.header)
        for piece in layout.pieces:
            stream.write(content(piece).data)
        if isinstance(file, Path):
            stream.flush()
            os.fsync(stream.fileno())


def _writable(file: Place) -> BinaryIO:
    return open(file, "wb", buffering=_BUFFER) if isinstance(file, Path) else file.open_for_writing()


def _manifest(captured: Captured, ranks: int, plan: Plan, files: Mapping[str, FileEntry]) -> Manifest:
    return Manifest(
        step=captured.step,
        ranks=ranks,
        optimizer=captured.optimizer,
        progress=captured.progress,
        tensors=tensor_entries(plan.described, files),
        files=dict(files),
    )
