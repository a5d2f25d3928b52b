"""Reads a checkpoint, at any number of ranks: verified first, then compared, then loaded in place."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.optim import Optimizer

from stoker.checkpoint.agreement import from_everyone, rank_and_ranks, together
from stoker.checkpoint.integrity import find_damage, find_damage_together
from stoker.checkpoint.manifest import Manifest, TensorEntry, describe, read_manifest
from stoker.checkpoint.parts import LoadParts
from stoker.checkpoint.state import (
    MODEL,
    OPTIMIZER,
    HeldTensor,
    Part,
    allocate_state,
    forget_state,
    model_state,
    optimizer_state,
    whole_parts,
)
from stoker.errors import BadInput, StokerError

_SHOWN = 5


def load(path: Path, held: Sequence[HeldTensor], optimizer: Optimizer) -> dict[str, Any]:
    """Load weights and optimizer state from the checkpoint `path`, in place; returns what the loop had kept.

    Collective over all ranks, which may be more, fewer or otherwise arranged than those that saved.
    The optimizer keeps its own param groups: their settings are the recipe's, not the checkpoint's.
    Raises `StokerError` when the checkpoint is damaged, and `BadInput` saying what differs when it is of
    another model, type or optimizer; nothing is changed then.
    """
    _require_undamaged(path, find_damage_together(path))
    manifest = together(lambda: read_manifest(path))
    state = model_state(held)
    _require_same(path, manifest, state, MODEL)
    fresh = allocate_state(optimizer)
    try:
        moments = optimizer_state(held, optimizer)
        _require_same(
            path, manifest, moments, OPTIMIZER, f"{manifest.optimizer} saved it, {_name(optimizer)} reads it"
        )
    except BadInput:
        forget_state(optimizer, fresh)
        raise
    together(lambda: _read(path, {**state, **moments}, collective=True))
    return manifest.progress


def read_weights(path: Path) -> dict[str, Tensor]:
    """All weights of the checkpoint `path`, whole, on the CPU, in the type they were saved in.

    One process; needs no process group, and ignores one. Raises `StokerError` when it is damaged.
    """
    _require_undamaged(path, find_damage(path))
    entries = {name: entry for name, entry in read_manifest(path).tensors.items() if name.startswith(MODEL)}
    weights = {name: torch.empty(entry.shape, dtype=entry.torch_dtype) for name, entry in entries.items()}
    _read(path, whole_parts(weights), collective=False)
    return {name.removeprefix(MODEL): tensor for name, tensor in weights.items()}


def _name(optimizer: Optimizer) -> str:
    return type(optimizer).__name__.removesuffix("Optimizer")


def _require_undamaged(path: Path, damage: str | None) -> None:
    if not path.is_dir():
        raise BadInput(f"{path} is not a checkpoint: there is no such folder")
    if damage is not None:
        raise StokerError(f"{path} is damaged: {damage}. Nothing was loaded; use another checkpoint of the run.")


def _require_same(
    path: Path, manifest: Manifest, state: Mapping[str, Part], prefix: str, hint: str | None = None
) -> None:
    """Every tensor must be there, with the same type and whole shape, and no other."""
    saved = {name: entry for name, entry in manifest.tensors.items() if name.startswith(prefix)}
    wanted = {name: entry for part in from_everyone(describe(state)) for name, entry in part.items()}
    missing = [name for name in wanted if name not in saved]
    unexpected = [name for name in saved if name not in wanted]
    changed = [name for name in wanted if name in saved and wanted[name] != saved[name]]
    if not (missing or unexpected or changed):
        return
    differences = _listed("it lacks", missing) + _listed("it has besides", unexpected)
    differences += [f"{name} is {saved[name]} there and {wanted[name]} here" for name in changed[:_SHOWN]]
    if len(changed) > _SHOWN:
        differences.append(f"{len(changed) - _SHOWN} more tensors differ")
    why = hint or _likely_reason(saved, wanted)
    raise BadInput(
        f"{path} does not fit: {'; '.join(differences)}. {why[0].upper()}{why[1:]}. "
        "Nothing was loaded; use the recipe it was trained with, or another run folder."
    )


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{what} {', '.join(names[:_SHOWN])}{more}"]


def _likely_reason(saved: dict[str, TensorEntry], wanted: dict[str, TensorEntry]) -> str:
    embedding = f"{MODEL}embedding.weight"
    if embedding in saved and embedding in wanted:
        there, here = saved[embedding], wanted[embedding]
        if there.shape[0] != here.shape[0]:
            return f"the vocabularies differ: {there.shape[0]} tokens there, {here.shape[0]} here"
    if saved.keys() == wanted.keys() and all(saved[name].shape == wanted[name].shape for name in saved):
        return "the weights' number formats differ: see training.precision"
    return "it is of another model"


def _read(path: Path, state: dict[str, Part], *, collective: bool) -> None:
    """Fill the tensors of `state` in place from the files of `path`."""
    alone = not collective or rank_and_ranks()[1] == 1
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load_tensors({}, storage_reader=FileSystemReader(path), planner=LoadParts(state), no_dist=alone)
    except (CheckpointException, OSError) as error:
        raise StokerError(f"{path} could not be read: {error}") from error
