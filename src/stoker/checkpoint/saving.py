"""Writes a checkpoint: beside, flushed, marked complete last, renamed once."""

from __future__ import annotations

import shutil
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.optim import Optimizer

from stoker.checkpoint.agreement import from_everyone, from_first, rank_and_ranks, together
from stoker.checkpoint.integrity import find_damage_together
from stoker.checkpoint.manifest import FileEntry, Manifest, TensorEntry, describe, folder_name, write_manifest
from stoker.checkpoint.parts import SaveParts
from stoker.checkpoint.retention import remove, remove_old
from stoker.checkpoint.state import HeldTensor, Part, allocate_state, model_state, non_finite, optimizer_state
from stoker.durable_files import PARTIAL_MARK, explained_disk_errors, publish_folder, sha256_of_file
from stoker.errors import NonFinite, StokerError
from stoker.recipe import Checkpoint

Entry = TypeVar("Entry", FileEntry, TensorEntry)


def save(
    checkpoints: Path,
    step: int,
    held: Sequence[HeldTensor],
    optimizer: Optimizer,
    progress: dict[str, Any],
    policy: Checkpoint,
) -> Path:
    """Save the state after `step` under `checkpoints`, then remove what `policy` no longer keeps.

    Collective over all ranks, each of which gives the parameters and buffers it holds. `progress` is what
    the training loop keeps, as JSON; rank 0's is stored. A complete checkpoint of the same step is left as
    it is; a damaged one is replaced. Until the new checkpoint is durable nothing is removed, and after any
    failure the older ones stand. Raises `NonFinite` when a weight or moment is NaN or Inf, and
    `StokerError` when it cannot be written, on every rank alike.
    """
    final = checkpoints / folder_name(step)
    first = rank_and_ranks()[0] == 0
    if not from_first(final.is_dir()) or find_damage_together(final) is not None:
        allocate_state(optimizer)
        state = {**model_state(held), **optimizer_state(held, optimizer)}
        together(lambda: _require_finite(state, step))
        _write_and_publish(final, step, state, type(optimizer).__name__.removesuffix("Optimizer"), progress)
    together(lambda: remove_old(checkpoints, final, policy) if first else None)
    return final


def _write_and_publish(
    final: Path, step: int, state: dict[str, Part], optimizer: str, progress: dict[str, Any]
) -> None:
    partial = final.with_name(from_first(f".{final.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}"))
    rank, ranks = rank_and_ranks()
    first = rank == 0
    try:
        together(lambda: _make_folder(partial) if first else None)
        together(lambda: _write_tensors(partial, state))
        files = _merged(from_everyone(together(lambda: _own_files(partial))))
        manifest = Manifest(
            step=step,
            ranks=ranks,
            optimizer=optimizer,
            progress=progress,
            tensors=_merged(from_everyone(describe(state))),
            files=files,
        )
        together(lambda: _publish(partial, final, manifest) if first else None)
    except BaseException:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
        raise


def _require_finite(state: dict[str, Part], step: int) -> None:
    if bad := non_finite(state):
        shown = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        raise NonFinite(
            f"step {step} is not saved: {shown} hold NaN or Inf. The checkpoints before it are untouched; "
            "go on from one of them with a lower learning rate or without the batch that did it."
        )


def _make_folder(partial: Path) -> None:
    with explained_disk_errors(partial.parent):
        partial.mkdir(parents=True)


def _write_tensors(partial: Path, state: dict[str, Part]) -> None:
    """Write this rank's parts. Collective; torch tells every rank when one of them fails."""
    _, ranks = rank_and_ranks()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            save_tensors(
                {}, storage_writer=_ExplainingWriter(partial), planner=SaveParts(state), no_dist=ranks == 1
            )
    except CheckpointException as error:
        understood = [str(cause) for cause, _ in error.failures.values() if isinstance(cause, StokerError)]
        unknown = [f"rank {rank}: {cause!r}" for rank, (cause, _) in error.failures.items()]
        raise StokerError(understood[0] if understood else f"could not write {partial}: {unknown[0]}") from error


class _ExplainingWriter(FileSystemWriter):
    """Says what is wrong with the disk before torch passes the error between ranks, which loses its cause."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with explained_disk_errors(Path(self.path)):
            try:
                return super().write_data(plan, planner)
            except RuntimeError as error:  # torch's zip writer, closing after a failed write
                raise _disk_error(error) or error from error

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        with explained_disk_errors(Path(self.path)):
            super().finish(metadata, results)


def _disk_error(error: BaseException | None) -> OSError | None:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _own_files(partial: Path) -> dict[str, FileEntry]:
    """Hash and size of the files this rank wrote; rank 0 wrote torch's metadata too."""
    rank, _ = rank_and_ranks()
    own = sorted(partial.glob(f"__{rank}_*")) + ([partial / ".metadata"] if rank == 0 else [])
    return {path.name: FileEntry(sha256=sha256_of_file(path), bytes=path.stat().st_size) for path in own}


def _merged(parts: list[dict[str, Entry]]) -> dict[str, Entry]:
    return dict(sorted((name, entry) for part in parts for name, entry in part.items()))


def _publish(partial: Path, final: Path, manifest: Manifest) -> None:
    """Mark the folder complete and give it its name. A damaged checkpoint of that name makes way."""
    write_manifest(partial, manifest)
    if final.exists():
        remove(final)
    publish_folder(partial, final)
