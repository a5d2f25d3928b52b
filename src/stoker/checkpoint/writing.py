"""Writes one checkpoint: beside, flushed, marked complete last, renamed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.checkpoint.agreement import (
    Group,
    attempt,
    by_first,
    described,
    from_first,
    one_each,
    raise_any,
    rank_and_ranks,
    to_first,
    together,
)
from stoker.checkpoint.digest import Digest
from stoker.checkpoint.direct import direct_file
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
from stoker.checkpoint.state import Box
from stoker.checkpoint.tensor_file import TensorFile, lay_out

Described = dict[str, tuple[str, tuple[int, ...]]]


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


def write_checkpoint(checkpoints: Place, captured: Captured, plan: Plan, group: Group = None) -> tuple[Place, int]:
    """Write what was captured. Collective over `group`.

    Returns where it is and the bytes this rank wrote. A complete checkpoint of the same step is left as it is; a
    damaged one is replaced. Raises `NonFinite` and `StokerError` on every rank alike; older checkpoints stand then.
    """
    there, name = by_first(lambda: _begin(checkpoints, captured.step), group)
    for one in there:
        if find_damage_together(checkpoints / one, group) is None:
            together(captured.digests, group)
            return checkpoints / one, 0
    name = name or by_first(lambda: _begin_folder(checkpoints, captured.step), group)
    return _write_and_publish(checkpoints, name, captured, plan, group)


def _begin(checkpoints: Place, step: int) -> tuple[list[str], str]:
    """What is named like a checkpoint of `step` already; when nothing is, the name of a new folder."""
    there = [one.name for one in step_folders(checkpoints) if step_of(one) == step]
    return there, "" if there else _begin_folder(checkpoints, step)


def _begin_folder(checkpoints: Place, step: int) -> str:
    """Make the folder that is written into; its name."""
    folder = checkpoints / unfinished_name(checkpoints, folder_name(step))
    make(folder)
    return folder.name


def _write_and_publish(
    checkpoints: Place, unfinished: str, captured: Captured, plan: Plan, group: Group
) -> tuple[Place, int]:
    rank, ranks = rank_and_ranks()
    folder, name, layout = checkpoints / unfinished, folder_name(captured.step), plan.layout
    final = checkpoints / (name if isinstance(folder, Path) else unfinished)

    def publish_all() -> None:
        raise_any(failure, [failed for failed, _ in found])
        files = {file_name(number): one for number, (_, one) in enumerate(found) if one is not None}
        publish(folder, name, last_files(_manifest(captured, ranks, plan, files)))

    try:
        entry, failure = attempt(lambda: _write_own(folder / file_name(rank), layout, captured))
        found = to_first((described(failure), entry), group)
        by_first(publish_all, group, failure)
    except BaseException:
        if rank == 0:
            abandon(folder)
        raise
    return final, 0 if layout is None else layout.bytes


def _write_own(file: Place, layout: TensorFile | None, captured: Captured) -> FileEntry | None:
    """Write this rank's file, if it has one; returns its entry. Raises what is wrong with the state in any case."""
    if layout is not None:
        write_file(file, layout, captured.content)
    digests = captured.digests()
    return None if layout is None else file_entry(layout, digests)


def write_file(file: Place, layout: TensorFile, content: Callable[[Piece], npt.NDArray[np.uint8]]) -> None:
    """Write a file of tensors from beginning to end, and flush it to the disk."""
    with explained_errors(file):
        if isinstance(file, Path):
            with direct_file(file) as direct:
                direct.write(np.frombuffer(layout.header, np.uint8))
                for piece in layout.pieces:
                    direct.write(content(piece))
            return
        with file.open_for_writing() as stream:
            stream.write(layout.header)
            for piece in layout.pieces:
                stream.write(content(piece).data)


def _manifest(captured: Captured, ranks: int, plan: Plan, files: Mapping[str, FileEntry]) -> Manifest:
    return Manifest(
        step=captured.step,
        ranks=ranks,
        optimizer=captured.optimizer,
        progress=captured.progress,
        tensors=tensor_entries(plan.described, files),
        files=dict(files),
    )
