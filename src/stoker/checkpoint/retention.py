"""Which checkpoints are kept when a new one has become durable."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from stoker.checkpoint.integrity import find_damage
from stoker.checkpoint.manifest import step_folders, step_of
from stoker.durable_files import PARTIAL_MARK
from stoker.recipe import Checkpoint


def remove_old(checkpoints: Path, newest: Path, policy: Checkpoint) -> None:
    """Remove complete checkpoints older than `newest` that `policy` does not keep.

    `newest` must be durable already, and is always kept. What is damaged or unfinished is neither
    counted nor removed, and neither is anything of a later step.
    """
    last = step_of(newest)
    assert last is not None
    older = [
        path
        for path in step_folders(checkpoints)
        if (step := step_of(path)) is not None and step < last and find_damage(path, contents=False) is None
    ]
    for path in older[: max(0, len(older) - (policy.keep_last - 1))]:
        step = step_of(path)
        if policy.keep_every is not None and step is not None and step % policy.keep_every == 0:
            continue
        remove(path)


def remove(folder: Path) -> None:
    """Delete a checkpoint. It is renamed first, so that a kill half-way leaves nothing that looks like one."""
    doomed = folder.with_name(f".{folder.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}")
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
