"""Megatron's indexed datasets: `<prefix>.bin` holds token ids, `<prefix>.idx` says where documents lie in it.

The index is little-endian: nine bytes `MMIDIDX`, 0, 0; the version (uint64) 1; a code for the type of the ids
(uint8); the number of sequences and that of document boundaries (uint64 each); then lengths of the sequences in
tokens (int32), their places in the .bin in bytes (int64), and the document boundaries: the number of the first
sequence of each document, and the number of sequences (int64). Layout as in megatron-core 0.16
(`megatron/core/datasets`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.durable_files import durable_file
from stoker.errors import BadInput
from stoker.plural import counted

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEAD = struct.Struct("<9sQBQQ")
_CODES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Types of ids by their code; 6 and 7 are floating point, which no ids are."""
_LARGEST_OF_TWO_BYTES = 65500
"""Megatron itself writes vocabularies below this size in two bytes, others in four."""
_GROUP_TOKENS = 1 << 20


@dataclass(frozen=True)
class MegatronIndex:
    """What a `.idx` says."""

    dtype: np.dtype[Any]
    lengths: npt.NDArray[np.int64]
    """Tokens of each sequence: [sequences]."""
    places: npt.NDArray[np.int64]
    """First byte of each sequence in the `.bin`: [sequences]."""
    boundaries: npt.NDArray[np.int64]
    """First sequence of each document, and the number of sequences: [documents + 1]."""


def megatron_files(prefix: Path) -> tuple[Path, Path]:
    """The `.bin` and the `.idx` of a prefix; either of them may be given in its place. Raises `BadInput` for a
    prefix without a name."""
    if not prefix.name:
        raise BadInput(f"'{prefix}' names no file; give the path of a Megatron dataset without `.bin` or `.idx`")
    if prefix.suffix in (".bin", ".idx"):
        prefix = prefix.with_suffix("")
    return prefix.with_name(prefix.name + ".bin"), prefix.with_name(prefix.name + ".idx")


def read_index(prefix: Path) -> MegatronIndex:
    """The index of a dataset. Raises `BadInput` where a file is missing, cut short or of another kind."""
    tokens, index = megatron_files(prefix)
    for file in (tokens, index):
        if not file.is_file():
            raise BadInput(f"no file {file}; give the path of a Megatron dataset without `.bin` or `.idx`")
    content = index.read_bytes()
    if len(content) < _HEAD.size or not content.startswith(_MAGIC):
        raise BadInput(f"{index} is no index of a Megatron dataset: it does not begin with MMIDIDX")
    _, version, code, sequences, boundaries = _HEAD.unpack_from(content)
    if version != _VERSION or code not in _CODES:
        raise BadInput(
            f"{index} has version {version} and type code {code}; expected {_VERSION} and one of {[*_CODES]}"
        )
    expected = _HEAD.size + sequences * 12 + boundaries * 8
    if len(content) < expected:
        raise BadInput(f"{index} is cut short: {counted(expected, 'bytes')} expected, found {len(content)}")
    lengths = np.frombuffer(content, "<i4", sequences, _HEAD.size).astype(np.int64)
    places = np.frombuffer(content, "<i8", sequences, _HEAD.size + 4 * sequences).astype(np.int64)
    found = np.frombuffer(content, "<i8", boundaries, _HEAD.size + 12 * sequences).astype(np.int64)
    made = MegatronIndex(np.dtype(_CODES[code]), lengths, places, found)
    _check(made, tokens, index)
    return made


def _check(index: MegatronIndex, tokens: Path, file: Path) -> None:
    size, width = tokens.stat().st_size, index.dtype.itemsize
    if (index.lengths < 0).any() or (index.places < 0).any() or (index.places % width).any():
        raise BadInput(f"{file} is damaged: a length or a place in it is impossible")
    over = index.places - (size - index.lengths * width)  # their sum may be more than 64 bits hold
    if len(over) and (most := int(over.max())) > 0:
        raise BadInput(f"{tokens} is cut short: {counted(size + most, 'bytes')} expected, found {size}")
    steps = np.diff(index.boundaries)
    if len(index.boundaries) == 0 or index.boundaries[0] != 0 or (steps < 0).any():
        raise BadInput(f"{file} is damaged: its documents are not in order")
    if index.boundaries[-1] != len(index.lengths):
        raise BadInput(
            f"{file} is damaged: its documents end at sequence {index.boundaries[-1]} of {len(index.lengths)}"
        )


def read_documents(prefix: Path, index: MegatronIndex) -> Iterator[npt.NDArray[Any]]:
    """The ids of each document, its sequences joined: [tokens] in the dataset's own type."""
    file, _ = megatron_files(prefix)
    empty = np.empty(0, index.dtype)
    ids = np.asarray(np.memmap(file, index.dtype, mode="r")) if file.stat().st_size else empty
    starts = index.places // index.dtype.itemsize
    for first, last in zip(index.boundaries[:-1].tolist(), index.boundaries[1:].tolist(), strict=True):
        spans = zip(starts[first:last].tolist(), index.lengths[first:last].tolist(), strict=True)
        parts = [ids[start : start + length] for start, length in spans]
        yield parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])


def write_dataset(prefix: Path, documents: Iterable[npt.NDArray[Any]], vocabulary_size: int) -> tuple[int, int]:
    """Write documents as one sequence each; returns how many documents and tokens. Each file appears whole."""
    file, index = megatron_files(prefix)
    code = 8 if vocabulary_size < _LARGEST_OF_TWO_BYTES else 4
    dtype = np.dtype(_CODES[code])
    lengths: list[int] = []
    with durable_file(file) as stream:
        group: list[npt.NDArray[Any]] = []
        size = 0
        for ids in documents:
            lengths.append(len(ids))
            group.append(ids.astype(dtype))
            size += len(ids)
            if size >= _GROUP_TOKENS:
                stream.write(np.concatenate(group).tobytes())
                group, size = [], 0
        stream.write(b"".join(ids.tobytes() for ids in group))
    count = np.asarray(lengths, np.int64)
    places = (np.cumsum(count) - count) * dtype.itemsize
    with durable_file(index) as stream:
        stream.write(_HEAD.pack(_MAGIC, _VERSION, code, len(count), len(count) + 1))
        stream.write(count.astype("<i4").tobytes())
        stream.write(places.astype("<i8").tobytes())
        stream.write(np.arange(len(count) + 1, dtype="<i8").tobytes())
    return len(count), int(count.sum())
