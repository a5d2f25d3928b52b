"""What stands beside a checkpoint's tensors: the manifest and the commit marker."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from stoker import __version__
from stoker.checkpoint.digest import Digest
from stoker.checkpoint.parts import Piece, torch_dtype
from stoker.checkpoint.place import Place
from stoker.checkpoint.state import Box, Part
from stoker.checkpoint.tensor_file import TensorFile, lay_out
from stoker.errors import BadInput

FORMAT = 2
MANIFEST = "manifest.json"
COMMITTED = "committed"
_NAME = re.compile(r"step-(\d{8,})(-[0-9a-f]{8})?")


class Frozen(BaseModel):
    """What is written once and checked when it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorEntry(Frozen):
    """One tensor, whole."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    """Of all its elements, however they are divided: see `stoker.checkpoint.digest`."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """As torch's type."""
        return torch_dtype(self.dtype)


class PieceEntry(Frozen):
    """Some elements of a tensor, in one file."""

    name: str
    """The tensor's."""
    box: Box
    """First and last + 1 on each dimension of the whole tensor."""
    offset: int
    """Bytes from the beginning of the file."""
    bytes: int
    digest: str


class FileEntry(Frozen):
    """One file of a checkpoint."""

    bytes: int
    pieces: tuple[PieceEntry, ...]


class Manifest(Frozen):
    """Everything about a checkpoint but its tensors' values."""

    format: int = FORMAT
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

    def piece(self, entry: PieceEntry) -> Piece:
        """What `entry` is of."""
        tensor = self.tensors[entry.name]
        return Piece(entry.name, tensor.dtype, tensor.shape, entry.box)

    def layout_of(self, file: str) -> TensorFile:
        """Where everything must lie in `file`. Raises `Damaged` when its entries contradict each other."""
        entry = self.files[file]
        layout = lay_out([self.piece(one) for one in entry.pieces])
        found = tuple((one.offset, one.bytes) for one in entry.pieces)
        if entry.bytes != layout.bytes or found != tuple(
            zip(layout.offsets, (piece.bytes for piece in layout.pieces), strict=True)
        ):
            raise Damaged(f"{MANIFEST} contradicts itself about {file}")
        return layout


def describe(state: Mapping[str, Part]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and whole shape of each tensor of which this rank holds a part, in order of name."""
    found = sorted(state.items())
    return {name: (str(part.tensor.dtype).removeprefix("torch."), tuple(part.shape)) for name, part in found}


def file_entry(layout: TensorFile, digests: Mapping[tuple[str, Box], Digest]) -> FileEntry:
    """The entry of a file that was written as `layout` says."""
    pieces = tuple(
        PieceEntry(name=one.name, box=one.box, offset=offset, bytes=one.bytes, digest=str(digests[one.key]))
        for one, offset in zip(layout.pieces, layout.offsets, strict=True)
    )
    return FileEntry(bytes=layout.bytes, pieces=pieces)


def tensor_entries(
    described: Mapping[str, tuple[str, tuple[int, ...]]], files: Mapping[str, FileEntry]
) -> dict[str, TensorEntry]:
    """The entries of whole tensors, whose digests are the sums of those of all their pieces, each counted once."""
    digests = dict.fromkeys(described, Digest())
    seen: set[tuple[str, Box]] = set()
    for entry in files.values():
        for piece in entry.pieces:
            if (piece.name, piece.box) not in seen:
                digests[piece.name] = digests[piece.name].plus(Digest.parse(piece.digest))
                seen.add((piece.name, piece.box))
    return {
        name: TensorEntry(dtype=dtype, shape=shape, digest=str(digests[name]))
        for name, (dtype, shape) in sorted(described.items())
    }


def last_files(manifest: Manifest) -> list[tuple[str, bytes]]:
    """The manifest, and then the marker that says the folder is complete: their names and contents."""
    content = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":")).encode()
    content += b"\n"
    return [(MANIFEST, content), (COMMITTED, hashlib.sha256(content).hexdigest().encode() + b"\n")]


def read_manifest(folder: Place) -> Manifest:
    """The manifest of a committed checkpoint.

    Raises `Damaged` saying what is wrong with it, and `BadInput` when another version of Stoker wrote it in a
    format that this one does not read.
    """
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
    manifest = parsed(content, str(folder))
    if manifest.step != step_of(folder):
        raise Damaged(f"it holds step {manifest.step}, not the step its folder is named for")
    return manifest


def parsed(content: bytes, where: str) -> Manifest:
    """The manifest that `content` is. Raises as `read_manifest` does."""
    try:
        found = json.loads(content)
        version, writer = found["format"], found["stoker_version"]
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{MANIFEST} is not a manifest") from None
    if version != FORMAT:
        age = "an older" if isinstance(version, int) and version < FORMAT else "a newer"
        raise BadInput(
            f"{where} is a checkpoint of format {version}, written by {age} version of Stoker ({writer}); this one "
            f"({__version__}) reads format {FORMAT}. Go on with the version that wrote it, or in another folder."
        )
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise Damaged(f"{MANIFEST} is not a manifest: {'.'.join(map(str, first['loc']))} {first['msg']}") from None


class Damaged(Exception):
    """A checkpoint folder is not a complete checkpoint; the message says why."""


def folder_name(step: int) -> str:
    """Name of the folder of `step`."""
    return f"step-{step:08d}"


def file_name(rank: int) -> str:
    """Name of the file that `rank` writes."""
    return f"rank-{rank:05d}.safetensors"


def step_of(folder: Place) -> int | None:
    """The step a folder is named for; None if it is not named like a checkpoint."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


@overload
def step_folders(checkpoints: Path) -> list[Path]: ...
@overload
def step_folders(checkpoints: Place) -> list[Place]: ...
def step_folders(checkpoints: Place) -> Sequence[Place]:
    """Folders named like checkpoints, oldest step first. Local ones still being written are named otherwise."""
    if not checkpoints.is_dir():
        return []
    found: list[tuple[int, str]] = []
    for path in checkpoints.iterdir():
        step = step_of(path)
        if step is not None and path.is_dir():
            found.append((step, path.name))
    return [checkpoints / name for _, name in sorted(found)]
