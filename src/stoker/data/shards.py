"""Token shards: documents of one split, written one after another, with their lengths beside them.

`<split>-00000.tokens` holds raw little-endian token ids. `<split>-00000.documents` holds little-endian
int64 of shape [documents, 2]: length in tokens (special tokens included), length in UTF-8 bytes of the text.
A document never spans two shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
import numpy.typing as npt

from stoker.durable_files import durable_file
from stoker.errors import StokerError

LENGTHS_DTYPE = np.dtype("<i8")
_GROUP_TOKENS = 1 << 20


class Shard(TypedDict):
    """What the manifest says about one shard."""

    file: str
    """Name of the `.tokens` file inside its source's folder."""
    sha256: str
    tokens: int
    documents: int
    documents_sha256: str
    """SHA-256 of the `.documents` file."""


def token_dtype(vocabulary_size: int) -> str:
    """The narrowest dtype of the format that holds every id of the vocabulary: `uint16` or `uint32`."""
    return "uint16" if vocabulary_size <= 1 << 16 else "uint32"


def write_split(
    folder: Path,
    split: str,
    documents: Iterable[tuple[npt.NDArray[Any], int]],
    dtype: str,
    shard_tokens: int,
    finished: Sequence[Shard] = (),
    note: Callable[[list[Shard]], None] = lambda shards: None,
) -> list[Shard]:
    """Write the documents of one split as shards into `folder` and say what each shard holds.

    `documents` yields (token ids of shape [tokens], length of the text in UTF-8 bytes). A shard is closed
    before the document that would take it beyond `shard_tokens`; a document longer than that has a shard to
    itself. Each file appears whole or not at all. No documents, no shard.

    `finished` are shards that are there already; `documents` are then those behind them. `note` is told of all
    shards whenever one more is finished.

    Raises `StokerError` when a token id does not fit `dtype`, or when the disk refuses.
    """
    shards = list(finished)
    pending = _Peekable(documents)
    while pending.has_next:
        shards.append(_write_shard(folder, f"{split}-{len(shards):05d}", pending, dtype, shard_tokens))
        note(shards)
    return shards


class _Peekable:
    """Documents with one of them in the hand: whether it fits is known before it is taken."""

    def __init__(self, documents: Iterable[tuple[npt.NDArray[Any], int]]) -> None:
        self._rest: Iterator[tuple[npt.NDArray[Any], int]] = iter(documents)
        self._next = next(self._rest, None)

    @property
    def has_next(self) -> bool:
        return self._next is not None

    def fits(self, room: int) -> bool:
        return self._next is not None and len(self._next[0]) <= room

    def take(self) -> tuple[npt.NDArray[Any], int]:
        taken = self._next
        assert taken is not None
        self._next = next(self._rest, None)
        return taken


def _write_shard(folder: Path, stem: str, pending: _Peekable, dtype: str, shard_tokens: int) -> Shard:
    lengths: list[tuple[int, int]] = []
    tokens = 0
    with durable_file(folder / f"{stem}.tokens") as stream:
        digest = hashlib.sha256()
        group: list[npt.NDArray[Any]] = []
        grouped = 0
        while not lengths or pending.fits(shard_tokens - tokens):
            if not pending.has_next:
                break
            ids, text_bytes = pending.take()
            lengths.append((len(ids), text_bytes))
            tokens += len(ids)
            group.append(ids)
            grouped += len(ids)
            if grouped >= _GROUP_TOKENS:
                _write_ids(stream, digest, group, dtype)
                group, grouped = [], 0
        _write_ids(stream, digest, group, dtype)
    table = np.asarray(lengths, dtype=LENGTHS_DTYPE).reshape(-1, 2).tobytes()
    with durable_file(folder / f"{stem}.documents") as stream:
        stream.write(table)
    return Shard(
        file=f"{stem}.tokens",
        sha256=digest.hexdigest(),
        tokens=tokens,
        documents=len(lengths),
        documents_sha256=hashlib.sha256(table).hexdigest(),
    )


def _write_ids(stream: BinaryIO, digest: hashlib._Hash, group: list[npt.NDArray[Any]], dtype: str) -> None:
    if not group:
        return
    ids = np.concatenate(group)
    highest = np.iinfo(dtype).max
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) > highest):
        raise StokerError(
            f"token ids {int(ids.min())}..{int(ids.max())} do not fit {dtype} (0..{highest}); "
            "the shards' dtype must follow from the size of the vocabulary"
        )
    content = ids.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    digest.update(content)
    stream.write(content)
