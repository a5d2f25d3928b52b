"""Reads a checkpoint, at any number of ranks: compared first, read into place, then verified by digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from stoker.checkpoint.agreement import (
    attempt,
    described,
    from_everyone,
    from_first,
    raise_any,
    rank_and_ranks,
    summed,
    together,
)
from stoker.checkpoint.comparison import require_same
from stoker.checkpoint.digest import Digest, bytes_of, digest_of, digest_of_bytes
from stoker.checkpoint.integrity import damaged_files, find_damage, report, threads
from stoker.checkpoint.manifest import Damaged, Manifest, describe, read_manifest, step_folders, step_of
from stoker.checkpoint.parts import Piece, first_holders, pieces_of
from stoker.checkpoint.place import Place, opened
from stoker.checkpoint.reading import Source, Stored, by_tensor, fill
from stoker.checkpoint.saving import optimizer_name
from stoker.checkpoint.snapshots import complete_sets, manifest_of, read_complete
from stoker.checkpoint.state import (
    MODEL,
    OPTIMIZER,
    HeldTensor,
    allocate_state,
    forget_state,
    model_state,
    optimizer_state,
    whole_parts,
)
from stoker.errors import BadInput, StokerError

_JOB_BYTES = 4 * 2**20
_SHOWN = 3


@dataclass(frozen=True)
class Unread:
    """A checkpoint, or whatever else holds a state, that is about to be read."""

    name: str
    """For messages."""
    folder: Place
    """Of its files."""
    manifest: Manifest


@dataclass(frozen=True)
class _Stored:
    piece: Piece
    offset: int
    source: Source


def load(source: Place | Sequence[Path], held: Sequence[HeldTensor], optimizer: Optimizer) -> dict[str, Any]:
    """Load weights and optimizer state in place; returns what the loop had kept.

    `source` is a checkpoint's folder, or the files of a complete set of snapshots, all of them on every rank.
    Collective over all ranks, which may be more, fewer or otherwise arranged than those that saved.
    The optimizer keeps its own param groups: their settings are the recipe's, not the checkpoint's.
    Raises `BadInput` saying what differs when it is of another model, type, optimizer or format, and
    `StokerError` when it is damaged. Nothing is changed then, unless `Overwritten` says so: that is a
    `StokerError` of damage in the values themselves, which are verified where they have been read to.
    """
    rank, ranks = rank_and_ranks()
    return _load(together(lambda: _opened_whole(source, rank, ranks)), held, optimizer)


def load_newest(
    checkpoints: Place, held: Sequence[HeldTensor], optimizer: Optimizer, snapshots: Sequence[Path] = ()
) -> tuple[Place, dict[str, Any]] | None:
    """Load the newest checkpoint that is not damaged; returns it and what the loop had kept. None: there is none.

    `snapshots` are the folders of all ranks' copies in memory, which are tried first when they are as new. Damaged
    checkpoints are named in a warning, whether that shows before they are read or while they are. Raises as
    `load` does when what there is does not fit, and `StokerError` when all were damaged and some had been read.
    Collective.
    """
    damaged: list[tuple[Place, str]] = []
    overwritten: StokerError | None = None
    for source in _newest_first(checkpoints, snapshots):
        path = source if isinstance(source, Place) else source[0].parent.parent
        try:
            progress = load(source, held, optimizer)
        except BadInput:
            raise
        except StokerError as error:
            overwritten = error if isinstance(error, Overwritten) else overwritten
            damaged.append((path, str(error)))
            continue
        report(checkpoints, damaged, path)
        return path, progress
    report(checkpoints, damaged, None)
    if overwritten is not None:
        raise StokerError(
            f"every checkpoint in {checkpoints} is damaged, the last one tried so: {overwritten}. Restore one from "
            "a copy, or train in another run folder."
        )
    return None


def _newest_first(checkpoints: Place, snapshots: Sequence[Path]) -> list[Place | list[Path]]:
    """What can be loaded. Rank 0 looks. Collective."""
    found: list[tuple[int, bool, str | list[Path]]] = []
    if rank_and_ranks()[0] == 0:
        found = [(step_of(path) or 0, False, path.name) for path in step_folders(checkpoints)]
        sets = complete_sets(one for folder in sorted(snapshots) for one in read_complete(folder))
        found += [(one[0].step, True, [each.file for each in one]) for one in sets]
    ordered = from_first(sorted(found, key=lambda one: one[:2], reverse=True))
    return [checkpoints / source if isinstance(source, str) else source for _, _, source in ordered]


class Overwritten(StokerError):
    """A damaged checkpoint was read: weights and moments are not those of any step until another is loaded."""


def _load(unread: Unread, held: Sequence[HeldTensor], optimizer: Optimizer) -> dict[str, Any]:
    """As `load`."""
    state, fresh = model_state(held), allocate_state(optimizer)
    try:
        moments = optimizer_state(held, optimizer)
        pieces = pieces_of({**state, **moments})
        everyones = from_everyone(({**describe(state), **describe(moments)}, [piece for piece, _ in pieces]))
        wanted = {name: entry for there, _ in everyones for name, entry in there.items()}
        require_same(unread.name, unread.manifest, wanted, MODEL)
        saved_by = f"{unread.manifest.optimizer} saved it, {optimizer_name(optimizer)} reads it"
        require_same(unread.name, unread.manifest, wanted, OPTIMIZER, saved_by)
    except BadInput:
        forget_state(optimizer, fresh)
        raise
    digested = first_holders([held_there for _, held_there in everyones], rank_and_ranks()[0])
    own, failure = attempt(lambda: _read(unread, pieces, digested))
    _require_digests(unread, own or {}, failure)
    return unread.manifest.progress


_NOW = "What had been read of it is in the model now; load another checkpoint before going on"


def read_weights(path: Place) -> dict[str, Tensor]:
    """All weights of the checkpoint `path`, whole, on the CPU, in the type they were saved in.

    One process; needs no process group, and ignores one. Raises `StokerError` when it is damaged.
    """
    unread = _opened_whole(path, 0, 1)
    entries = {name: entry for name, entry in unread.manifest.tensors.items() if name.startswith(MODEL)}
    weights = {name: torch.empty(entry.shape, dtype=entry.torch_dtype) for name, entry in entries.items()}
    pieces = pieces_of(whole_parts(weights))
    try:
        digests = _read(unread, pieces, {piece.key for piece, _ in pieces})
    except (StokerError, OSError) as error:
        raise StokerError(f"{unread.name} is damaged: {error}. Use another checkpoint of the run.") from error
    bad = [name for name in entries if str(digests.get(name, Digest())) != entries[name].digest]
    if bad:
        where = damaged_files(unread.folder, unread.manifest, bad)
        raise StokerError(f"{unread.name} is damaged: {_named(bad, where)}. Use another checkpoint of the run.")
    return {name.removeprefix(MODEL): tensor for name, tensor in weights.items()}


def _opened_whole(source: Place | Sequence[Path], share: int, shares: int) -> Unread:
    """What `load` and `read_weights` read. Every file must be there, of its size, and begin as the manifest says:
    a share of them is looked at. Raises as they do."""
    unread = _opened(source)
    damage = find_damage(unread.folder, unread.manifest, contents=False, share=share, shares=shares)
    if damage is not None:
        raise _unloaded(unread.name, damage)
    return unread


def _opened(source: Place | Sequence[Path]) -> Unread:
    if not isinstance(source, Place):
        manifest = manifest_of(list(source))
        return Unread(f"the snapshot of step {manifest.step} in {source[0].parent.parent}", Path("/"), manifest)
    path = source
    if not path.is_dir():
        raise BadInput(f"{path} is not a checkpoint: there is no such folder")
    try:
        return Unread(str(path), path, read_manifest(path))
    except Damaged as damage:
        raise _unloaded(str(path), str(damage)) from None


def _unloaded(name: str, damage: str) -> StokerError:
    return StokerError(f"{name} is damaged: {damage}. Nothing was loaded; use another checkpoint of the run.")


def _read(unread: Unread, pieces: Sequence[tuple[Piece, Tensor]], digested: set[Any]) -> dict[str, Digest]:
    """Fill this rank's pieces; returns for each tensor the digest of those that are `digested`."""
    manifest = unread.manifest
    with ExitStack() as files:
        stored: dict[tuple[Any, ...], Stored] = {}
        for name, file in manifest.files.items():
            source = opened(unread.folder / name, past_cache=True)
            files.callback(source.close)
            for entry in file.pieces:  # of what several files hold, one is read
                stored.setdefault((entry.name, entry.box), _Stored(manifest.piece(entry), entry.offset, source))
        found = by_tensor(list(stored.values()))

        def read(job: Sequence[tuple[Piece, Tensor]]) -> list[tuple[str, Digest]]:
            return [
                (piece.name, _read_piece(piece, tensor, found.get(piece.name, []), piece.key in digested))
                for piece, tensor in job
            ]

        digests: dict[str, Digest] = {}
        with ThreadPoolExecutor(threads()) as pool:
            for name, digest in (one for done in pool.map(read, _jobs(pieces)) for one in done):
                digests[name] = digests.get(name, Digest()).plus(digest)
    return digests


def _jobs(pieces: Sequence[tuple[Piece, Tensor]]) -> list[list[tuple[Piece, Tensor]]]:
    """Pieces for one thread at a time: small ones together, in the order in which files hold them."""
    jobs: list[list[tuple[Piece, Tensor]]] = [[]]
    size = 0
    for piece, tensor in sorted(pieces, key=lambda one: (-one[0].torch_dtype.itemsize, one[0].name, one[0].box)):
        if size >= _JOB_BYTES:
            jobs.append([])
            size = 0
        jobs[-1].append((piece, tensor))
        size += piece.bytes
    return jobs


def _read_piece(piece: Piece, tensor: Tensor, stored: Sequence[Stored], digested: bool) -> Digest:
    in_place = tensor.device.type == "cpu" and tensor.is_contiguous()
    memory = bytes_of(tensor) if in_place else np.empty(piece.bytes, np.uint8)
    if fill(memory, piece, stored) != tensor.numel():
        raise StokerError(f"{piece.name} is not there in full")
    if not in_place:
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(memory).view(tensor.dtype).view(tensor.shape))
    if not digested:
        return Digest()
    if tensor.device.type != "cpu":
        return digest_of(tensor, piece.box, piece.shape)
    return digest_of_bytes(memory, piece.torch_dtype, piece.box, piece.shape)[0]


def _require_digests(unread: Unread, own: Mapping[str, Digest], failure: Exception | None) -> None:
    """What all ranks have loaded must add up to what was saved, and none may have failed. Collective."""
    manifest, (rank, ranks) = unread.manifest, rank_and_ranks()
    names = list(manifest.tensors)
    numbers = [number for name in names for number in own.get(name, Digest()).as_signed()]
    failed, *totals = summed([int(failure is not None), *numbers])
    if failed:
        try:
            raise_any(failure, from_everyone(described(failure)))
        except StokerError as error:
            raise Overwritten(f"{unread.name} is damaged: {error}. {_NOW}") from error
    found = [Digest.from_signed(*totals[place : place + 2]) for place in range(0, len(totals), 2)]
    bad = [name for name, one in zip(names, found, strict=True) if str(one) != manifest.tensors[name].digest]
    if not bad:
        return
    looked = from_everyone(damaged_files(unread.folder, manifest, bad, share=rank, shares=ranks))
    where = [file for files in looked for file in files]
    raise Overwritten(f"{unread.name} is damaged: {_named(bad, where)}. {_NOW}")


def _named(tensors: Sequence[str], files: Sequence[str]) -> str:
    more = f" and {len(tensors) - _SHOWN} more" if len(tensors) > _SHOWN else ""
    what = f"{', '.join(tensors[:_SHOWN])}{more} {'differ' if len(tensors) > 1 else 'differs'} from what was saved"
    if not files:
        return f"{what}, though every file is as it was written: suspect this machine's memory"
    return f"{what}, for {', '.join(files)} was changed since"
