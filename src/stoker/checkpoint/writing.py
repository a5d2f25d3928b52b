"""Writes one checkpoint: beside, flushed, marked complete last, renamed once."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.checkpoint.agreement import (
    Group,
    from_first,
    one_each,
    rank_and_ranks,
    to_first,
    together,
)
from stoker.checkpoint.digest import Digest
from stoker.checkpoint.integrity import find_damage_together
from stoker.checkpoint.manifest import (
    Manifest,
    file_entry,
    file_name,
    folder_name,
    tensor_entries,
    write_manifest,
)
from stoker.checkpoint.parts import Piece, share_out
from stoker.checkpoint.retention import remove, remove_old
from stoker.checkpoint.state import Box
from stoker.checkpoint.tensor_file import TensorFile, lay_out
from stoker.durable_files import PARTIAL_MARK, explained_disk_errors, publish_folder
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
    checkpoints: Path, captured: Captured, plan: Plan, policy: Checkpoint, group: Group = None
) -> tuple[Path, int]:
    """Write what was captured, then remove what `policy` no longer keeps. Collective over `group`.

    Returns where it is and the bytes this rank wrote. A complete checkpoint of the same step is left as it is; a
    damaged one is replaced. Raises `NonFinite` and `StokerError` on every rank alike; older checkpoints stand then.
    """
    final = checkpoints / folder_name(captured.step)
    first, written = rank_and_ranks()[0] == 0, 0
    if not from_first(final.is_dir(), group) or find_damage_together(final, group) is not None:
        written = _write_and_publish(final, captured, plan, group)
    else:
        captured.digests()
    together(lambda: remove_old(checkpoints, final, policy) if first else None, group)
    return final, written


def _write_and_publish(final: Path, captured: Captured, plan: Plan, group: Group) -> int:
    partial = final.with_name(from_first(f".{final.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}", group))
    rank, ranks = rank_and_ranks()
    layout = plan.layout
    try:
        together(lambda: _make_folder(partial) if rank == 0 else None, group)
        if layout is not None:
            together(lambda: write_file(partial / file_name(rank), layout, captured.content), group)
        else:
            together(lambda: None, group)
        digests = together(captured.digests, group)
        entry = None if layout is None else file_entry(layout, digests)
        entries = to_first(entry, group)
        files = {file_name(number): one for number, one in enumerate(entries) if one is not None}
        together(lambda: _publish(partial, final, captured, ranks, plan, files) if rank == 0 else None, group)
    except BaseException:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return 0 if layout is None else layout.bytes


def _make_folder(partial: Path) -> None:
    with explained_disk_errors(partial.parent):
        partial.mkdir(parents=True)


def write_file(path: Path, layout: TensorFile, content: Callable[[Piece], npt.NDArray[np.uint8]]) -> None:
    """Write a file of tensors from beginning to end, and flush it to the disk."""
    with explained_disk_errors(path), open(path, "wb", buffering=_BUFFER) as stream:
        stream.write(layout.header)
        for piece in layout.pieces:
            stream.write(content(piece).data)
        stream.flush()
        os.fsync(stream.fileno())


def _publish(
    partial: Path, final: Path, captured: Captured, ranks: int, plan: Plan, files: Mapping[str, Any]
) -> None:
    """Mark the folder complete and give it its name. A damaged checkpoint of that name makes way."""
    manifest = Manifest(
        step=captured.step,
        ranks=ranks,
        optimizer=captured.optimizer,
        progress=captured.progress,
        tensors=tensor_entries(plan.described, files),
        files=dict(files),
    )
    write_manifest(partial, manifest)
    if final.exists():
        remove(final)
    publish_folder(partial, final)
