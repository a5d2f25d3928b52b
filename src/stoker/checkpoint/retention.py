"""Which checkpoints are kept when a new one has become durable."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from stoker.checkpoint.agreement import rank_and_ranks
from stoker.checkpoint.integrity import looks_complete
from stoker.checkpoint.manifest import COMMITTED, Damaged, Manifest, read_manifest, step_folders, step_of
from stoker.checkpoint.place import ObjectFolder, Place, remove
from stoker.errors import BadInput
from stoker.recipe import Checkpoint

_log = logging.getLogger(__name__)
HELD_OUT_LOSS = "held_out_loss"
"""What `keep_best` goes by: kept in the progress of a checkpoint whose step was evaluated."""


def remove_old(checkpoints: Place, newest: Place, policy: Checkpoint) -> None:
    """Remove complete checkpoints older than `newest` that `policy` does not keep. Rank 0 does; others have nothing
    to wait for.

    `newest` must be durable already, and is always kept. What is damaged or unfinished is neither counted nor
    removed, and neither is anything of a later step; only in an object store, where an unfinished save leaves a
    folder that is named like any other, what was never completed is removed. What cannot be removed is said: the
    new checkpoint is saved all the same.
    """
    if rank_and_ranks()[0] != 0:
        return
    try:
        _remove_old(checkpoints, newest, policy)
    except Exception as error:
        _log.warning("older checkpoints in %s could not be removed: %s", checkpoints, error)


def _remove_old(checkpoints: Place, newest: Place, policy: Checkpoint) -> None:
    last = step_of(newest)
    complete: list[tuple[Place, Manifest]] = []
    for folder in step_folders(checkpoints):
        step = step_of(folder)
        if last is None or step is None or step > last or folder.name == newest.name:
            continue
        manifest = _complete(folder)
        if manifest is not None:
            complete.append((folder, manifest))
        elif isinstance(folder, ObjectFolder) and step < last and not (folder / COMMITTED).exists():
            remove(folder, COMMITTED)
    kept = _best([*[one for _, one in complete], read_manifest(newest)], policy.keep_best)
    for folder, manifest in complete[: max(0, len(complete) - (policy.keep_last - 1))]:
        for_good = policy.keep_every is not None and manifest.step % policy.keep_every == 0
        if not for_good and manifest.step not in kept:
            remove(folder, COMMITTED)


def _complete(folder: Place) -> Manifest | None:
    try:
        manifest = read_manifest(folder)
    except (Damaged, BadInput, OSError):
        return None
    return manifest if looks_complete(folder, manifest) else None


def _best(manifests: Sequence[Manifest], number: int) -> set[int]:
    """The steps with the smallest loss on held-out documents; of equals the later ones."""
    losses = [(one.progress.get(HELD_OUT_LOSS), one.step) for one in manifests]
    known = [(loss, -step) for loss, step in losses if isinstance(loss, float) and math.isfinite(loss)]
    return {-step for _, step in sorted(known)[:number]}
