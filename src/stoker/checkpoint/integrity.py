"""Is a checkpoint complete and unharmed, and which is the newest that is."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stoker.checkpoint.agreement import from_everyone, from_first, rank_and_ranks
from stoker.checkpoint.manifest import Damaged, FileEntry, folder_name, read_manifest, step_folders
from stoker.durable_files import PARTIAL_MARK, sha256_of_file

_log = logging.getLogger(__name__)
_THREADS = 4

Signature = tuple[tuple[str, int, int, int], ...]
_verified: dict[tuple[Path, int, int], Signature] = {}
"""What this process has hashed and found good, by folder and share; hashed again only when a file changes."""
_reported: set[Path] = set()
"""Damaged folders this process has warned of."""


def latest(checkpoints: Path) -> Path | None:
    """The newest complete checkpoint, or None.

    Damaged ones are passed over, and named in one warning. With a process group this is collective:
    the ranks share the work of verifying, and all get the same answer.
    """
    candidates = from_first([path.name for path in reversed(step_folders(checkpoints))])
    damaged: list[tuple[Path, str]] = []
    chosen: Path | None = None
    for name in candidates:
        damage = find_damage_together(checkpoints / name)
        if damage is None:
            chosen = checkpoints / name
            break
        damaged.append((checkpoints / name, damage))
    if rank_and_ranks()[0] == 0:
        _report(checkpoints, damaged, chosen)
    return chosen


def find_damage(folder: Path, *, contents: bool = True, share: int = 0, shares: int = 1) -> str | None:
    """What is wrong with the checkpoint `folder`; None when nothing is.

    Marker, manifest, and presence and size of every file are always checked; `contents` also hashes
    files: all of them, or every `shares`-th from number `share` on.
    """
    try:
        files = read_manifest(folder).files
        for name, entry in files.items():
            _check_size(folder / name, entry)
        if contents:
            _check_contents(folder, dict(sorted(files.items())[share::shares]), (folder.resolve(), share, shares))
    except Damaged as damage:
        return str(damage)
    except OSError as error:
        return f"it cannot be read: {error}"
    return None


def find_damage_together(folder: Path) -> str | None:
    """As `find_damage`, the work of hashing divided over the ranks. Collective; all get the same answer."""
    rank, ranks = rank_and_ranks()
    found = from_everyone(find_damage(folder, share=rank, shares=ranks))
    return next((damage for damage in found if damage is not None), None)


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    if size != entry.bytes:
        raise Damaged(f"{path.name} has {size} bytes instead of {entry.bytes}")


def _check_contents(folder: Path, files: dict[str, FileEntry], memo: tuple[Path, int, int]) -> None:
    found = [(name, (folder / name).stat()) for name in files]
    signature = tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found)
    if files and _verified.get(memo) == signature:
        return
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing releases the interpreter
        digests = list(pool.map(lambda name: sha256_of_file(folder / name), files))
    for (name, entry), digest in zip(files.items(), digests, strict=True):
        if digest != entry.sha256:
            raise Damaged(f"{name} is not what was saved: its SHA-256 differs from the manifest's")
    _verified[memo] = signature


def _report(checkpoints: Path, damaged: list[tuple[Path, str]], chosen: Path | None) -> None:
    news = [f"{path.name} ({damage})" for path, damage in damaged if path not in _reported]
    chosen_name = chosen.name if chosen else folder_name(0)
    for path in sorted(checkpoints.iterdir()) if checkpoints.is_dir() else []:
        name, mark, _ = path.name.removeprefix(".").partition(PARTIAL_MARK)
        if mark and name > chosen_name and path not in _reported:
            news.append(f"{path.name} (left by a save that did not finish)")
            _reported.add(path)
    _reported.update(path for path, _ in damaged)
    if news:
        instead = f"going on from {chosen.name}" if chosen else "there is no complete one"
        _log.warning("passed over in %s: %s; %s", checkpoints, "; ".join(news), instead)
