"""What stands beside a checkpoint's tensors: the manifest and the commit marker."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from stoker import __version__
from stoker.checkpoint.state import Part
from stoker.durable_files import write_bytes

MANIFEST = "manifest.json"
COMMITTED = "committed"
_NAME = re.compile(r"step-(\d{8,})")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Frozen):
    """One file of a checkpoint."""

    sha256: str
    bytes: int


class TensorEntry(_Frozen):
    """One tensor, whole."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, part: Part) -> TensorEntry:
        """The type of a part of a tensor, and the shape of the whole."""
        return cls(dtype=str(part.tensor.dtype).removeprefix("torch."), shape=part.shape)

    @property
    def torch_dtype(self) -> torch.dtype:
        """As torch's type."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Manifest(_Frozen):
    """Everything about a checkpoint but its tensors' values."""

    format: Literal[1] = 1
    stoker_version: str = __version__
    step: int
    ranks: int
    """How many ranks wrote it."""
    optimizer: str
    """The optimizer's class."""
    progress: dict[str, Any]
    """What the training loop keeps: step, tokens seen, next sample, seed, loss scale."""
    tensors: dict[str, TensorEntry]
    files: dict[str, FileEntry]


def describe(state: Mapping[str, Part]) -> dict[str, TensorEntry]:
    """Type and whole shape of each tensor of which this rank holds a part, in order of name."""
    return {name: TensorEntry.of(part) for name, part in sorted(state.items())}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, and then the marker that says the folder is complete."""
    content = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=1).encode() + b"\n"
    write_bytes(folder / MANIFEST, content)
    write_bytes(folder / COMMITTED, hashlib.sha256(content).hexdigest().encode() + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a committed checkpoint. Raises `Damaged` saying what is wrong with it."""
    try:
        marker = (folder / COMMITTED).read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{COMMITTED} is missing: it was never completed") from None
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{MANIFEST} is missing") from None
    if marker != hashlib.sha256(content).hexdigest().encode() + b"\n":
        raise Damaged(f"{MANIFEST} is not the one that was committed: its SHA-256 differs from {COMMITTED}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError:
        raise Damaged(f"{MANIFEST} is of a format this version of Stoker does not read") from None
    if manifest.step != step_of(folder):
        raise Damaged(f"it holds step {manifest.step}, not the step its folder is named for")
    return manifest


class Damaged(Exception):
    """A checkpoint folder is not a complete checkpoint; the message says why."""


def folder_name(step: int) -> str:
    """Name of the folder of `step`."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """The step a folder is named for; None if it is not named like a checkpoint."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def step_folders(checkpoints: Path) -> list[Path]:
    """Folders named like checkpoints, oldest step first. Folders still being written are named otherwise."""
    if not checkpoints.is_dir():
        return []
    found = [(step, path) for path in checkpoints.iterdir() if (step := step_of(path)) is not None]
    return [path for _, path in sorted(found) if path.is_dir()]
