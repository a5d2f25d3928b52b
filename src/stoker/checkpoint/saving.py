"""Saves the state of model and optimizer at once, from where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.optim import Optimizer

from stoker.checkpoint.digest import Digest, bytes_of, digest_of_bytes
from stoker.checkpoint.manifest import describe
from stoker.checkpoint.parts import Piece, pieces_of
from stoker.checkpoint.place import AnyPlace
from stoker.checkpoint.retention import remove_old
from stoker.checkpoint.state import Box, HeldTensor, Part, allocate_state, model_state, optimizer_state
from stoker.checkpoint.writing import Captured, make_plan, write_checkpoint
from stoker.errors import NonFinite
from stoker.recipe import Checkpoint

_SHOWN = 3


def save(
    checkpoints: AnyPlace,
    step: int,
    held: Sequence[HeldTensor],
    optimizer: Optimizer,
    progress: dict[str, Any],
    policy: Checkpoint,
) -> AnyPlace:
    """Save the state after `step` under `checkpoints`, then remove what `policy` no longer keeps.

    Collective over all ranks, each of which gives the parameters and buffers it holds. `progress` is what
    the training loop keeps, as JSON; rank 0's is stored. A complete checkpoint of the same step is left as
    it is; a damaged one is replaced. Until the new checkpoint is durable nothing is removed, and after any
    failure the older ones stand. Raises `NonFinite` when a weight or moment is NaN or Inf, and
    `StokerError` when it cannot be written, on every rank alike.
    """
    allocate_state(optimizer)
    state = whole_state(held, optimizer)
    pieces = {piece: tensor.detach().cpu().contiguous() for piece, tensor in pieces_of(state)}

    def content(piece: Piece) -> npt.NDArray[np.uint8]:
        return bytes_of(pieces[piece])

    plan = make_plan(list(pieces), describe(state))
    with ThreadPoolExecutor(1) as pool:  # digests are computed while the files are written
        digests = pool.submit(finite_digests, list(pieces), content, step)
        captured = Captured(step, progress, optimizer_name(optimizer), content, digests.result)
        newest, _ = write_checkpoint(checkpoints, captured, plan)
    remove_old(checkpoints, newest, policy)
    return checkpoints / newest.name


def whole_state(held: Sequence[HeldTensor], optimizer: Optimizer) -> dict[str, Part]:
    """What is saved of this rank's model and optimizer."""
    return {**model_state(held), **optimizer_state(held, optimizer)}


def optimizer_name(optimizer: Optimizer) -> str:
    """By which a checkpoint knows whose state it holds."""
    return type(optimizer).__name__.removesuffix("Optimizer")


def finite_digests(
    pieces: Sequence[Piece], content: Callable[[Piece], npt.NDArray[np.uint8]], step: int
) -> dict[tuple[str, Box], Digest]:
    """The digest of each piece. Raises `NonFinite` naming the tensors that hold a NaN or Inf."""
    found, bad = {}, []
    for piece in pieces:
        found[piece.key], finite = digest_of_bytes(content(piece), piece.torch_dtype, piece.box, piece.shape)
        if not finite and piece.name not in bad:
            bad.append(piece.name)
    if bad:
        shown = ", ".join(bad[:_SHOWN]) + (f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")
        raise NonFinite(
            f"step {step} is not saved: {shown} hold NaN or Inf. The checkpoints before it are untouched; "
            "go on from one of them with a lower learning rate or without the batch that did it."
        )
    return found
