"""Is a checkpoint complete and unharmed, and which is the newest that is."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import overload

import numpy as np
import torch

from stoker.checkpoint.agreement import Group, from_everyone, from_first, rank_and_ranks
from stoker.checkpoint.digest import Digest, digest_of_bytes
from stoker.checkpoint.manifest import Damaged, Manifest, PieceEntry, folder_name, read_manifest, step_folders
from stoker.checkpoint.place import Place, opened
from stoker.durable_files import PARTIAL_MARK

_log = logging.getLogger(__name__)
_AT_ONCE = 8 * 2**20
"""Bytes read at a time; a multiple of every element's size."""

Signature = tuple[tuple[str, int, int, int], ...]
_verified: dict[tuple[Place, int, int], Signature] = {}
"""What this process has read and found good, by folder and share; read again only when a file changes."""
_reported: set[Place] = set()
"""Damaged folders this process has warned of."""


@overload
def latest(checkpoints: Path) -> Path | None: ...
@overload
def latest(checkpoints: Place) -> Place | None: ...
def latest(checkpoints: Place) -> Place | None:
    """The newest complete checkpoint, or None.

    Damaged ones are passed over, and named in one warning. With a process group this is collective:
    the ranks share the work of verifying, and all get the same answer. Raises `BadInput` when the newest
    is in the format of another version of Stoker.
    """
    candidates = from_first([path.name for path in reversed(step_folders(checkpoints))])
    damaged: list[tuple[Place, str]] = []
    chosen: Place | None = None
    for name in candidates:
        damage = find_damage_together(checkpoints / name)
        if damage is None:
            chosen = checkpoints / name
            break
        damaged.append((checkpoints / name, damage))
    report(checkpoints, damaged, chosen)
    return chosen


def find_damage(
    folder: Place, manifest: Manifest | None = None, *, contents: bool = True, share: int = 0, shares: int = 1
) -> str | None:
    """What is wrong with the checkpoint `folder`; None when nothing is.

    Marker and manifest (unless one is given) are always checked, and presence, size and beginning of files;
    `contents` also reads them and compares digests: of all of them, or of every `shares`-th from number `share` on.
    """
    try:
        manifest = manifest or read_manifest(folder)
        own = sorted(manifest.files)[share::shares]
        for name in own:
            _check_beginning(folder, name, manifest)
        if contents:
            _check_contents(folder, own, manifest, (folder.resolve(), share, shares))
    except Damaged as damage:
        return str(damage)
    except OSError as error:
        return f"it cannot be read: {error}"
    return None


def threads() -> int:
    """How many threads read at once: as many as this rank has processors, for one always waits for the disk."""
    return max(2, min(4, torch.get_num_threads()))


def looks_complete(folder: Place, manifest: Manifest) -> bool:
    """Whether every file of a committed checkpoint is there, of its size."""
    try:
        return all((folder / name).stat().st_size == entry.bytes for name, entry in manifest.files.items())
    except OSError:
        return False


def find_damage_together(folder: Place, group: Group = None) -> str | None:
    """As `find_damage`, the work of reading divided over the ranks. Collective; all get the same answer."""
    rank, ranks = rank_and_ranks()
    found = from_everyone(find_damage(folder, share=rank, shares=ranks), group)
    return next((damage for damage in found if damage is not None), None)


def damaged_files(
    folder: Place, manifest: Manifest, tensors: Collection[str], share: int = 0, shares: int = 1
) -> list[str]:
    """Files in which a piece of `tensors` is not what was saved."""
    found = []
    for name in sorted(manifest.files)[share::shares]:
        pieces = [entry for entry in manifest.files[name].pieces if entry.name in tensors]
        try:
            _check_pieces(folder / name, pieces, manifest)
        except (Damaged, OSError):
            found.append(name)
    return found


def _check_beginning(folder: Place, name: str, manifest: Manifest) -> None:
    """The file's size, and its header: what is in it where."""
    path, entry, layout = folder / name, manifest.files[name], manifest.layout_of(name)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    if size != entry.bytes:
        raise Damaged(f"{path.name} has {size} bytes instead of {entry.bytes}")
    header = bytearray(len(layout.header))
    with closing(opened(path)) as file:
        file.read_into(memoryview(header), 0)
    if header != layout.header:
        raise Damaged(f"{path.name} is not what was saved: its header names other tensors")


def _check_contents(folder: Place, files: list[str], manifest: Manifest, memo: tuple[Place, int, int]) -> None:
    found = [(name, (folder / name).stat()) for name in files]
    signature = tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found)
    if files and _verified.get(memo) == signature:
        return
    with ThreadPoolExecutor(threads()) as pool:  # reading and digesting release the interpreter
        jobs = [(folder / name, [entry], manifest) for name in files for entry in manifest.files[name].pieces]
        list(pool.map(lambda job: _check_pieces(*job), jobs))
    _verified[memo] = signature


def _check_pieces(path: Place, pieces: list[PieceEntry], manifest: Manifest) -> None:
    """Raises `Damaged` at the first piece that is not what was saved."""
    with closing(opened(path)) as file:
        buffer = np.empty(min(_AT_ONCE, max((entry.bytes for entry in pieces), default=0)), np.uint8)
        for entry in pieces:
            piece, digest = manifest.piece(entry), Digest()
            for start in range(0, entry.bytes, _AT_ONCE):
                some = buffer[: min(_AT_ONCE, entry.bytes - start)]
                file.read_into(some.data, entry.offset + start)
                first = start // piece.torch_dtype.itemsize
                part, _ = digest_of_bytes(some, piece.torch_dtype, piece.box, piece.shape, first)
                digest = digest.plus(part)
            if str(digest) != entry.digest:
                raise Damaged(f"{path.name} is not what was saved: {entry.name} differs in it")


def report(checkpoints: Place, damaged: list[tuple[Place, str]], chosen: Place | None) -> None:
    """Warn, once and on rank 0, of checkpoints that were passed over."""
    if rank_and_ranks()[0] != 0:
        return
    news = [f"{path.name} ({damage})" for path, damage in damaged if path not in _reported]
    chosen_name = chosen.name if chosen else folder_name(0)
    found = [path.name for path in checkpoints.iterdir()] if checkpoints.is_dir() else []
    for path in (checkpoints / one for one in sorted(found)):
        name, mark, _ = path.name.removeprefix(".").partition(PARTIAL_MARK)
        if mark and name > chosen_name and path not in _reported:
            news.append(f"{path.name} (left by a save that did not finish)")
            _reported.add(path)
    _reported.update(path for path, _ in damaged)
    if news:
        instead = f"going on from {chosen.name}" if chosen else "there is no complete one"
        _log.warning("passed over in %s: %s; %s", checkpoints, "; ".join(news), instead)
