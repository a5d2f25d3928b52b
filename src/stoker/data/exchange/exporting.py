"""A prepared corpus in the formats of others: one file, or pair of files, for each source and split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stoker.data.corpus import Corpus, TokenStore
from stoker.data.exchange.megatron_index import megatron_files, write_dataset
from stoker.durable_files import durable_file, durable_folder, write_bytes
from stoker.progress import Progress

Format = Literal["megatron", "parquet"]
_GROUP_TOKENS = 1 << 22
_SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class Exported:
    """What one split of a source became."""

    source: str
    split: str
    documents: int
    tokens: int
    files: tuple[str, ...]
    """Names within the folder."""


def export_corpus(corpus: Corpus, folder: Path, wanted: Format, progress: Progress) -> list[Exported]:
    """Write every split of every source into `folder`, and the tokenizer beside them.

    `megatron`: `<source>-<split>.bin` and `.idx`, one sequence a document. `parquet`: `<source>-<split>.parquet`
    with a row for each document: `source`, `split`, `document` (its index in the split), `tokens` (list of ids,
    special tokens included) and `bytes` (of its text in UTF-8). The folder appears when all is in it. Raises
    `BadInput` where it is there already with something in it, and `StokerError` when the disk refuses.
    """
    found = []
    stores = [(name, split, corpus.store(name, split)) for name in corpus.source_names for split in _SPLITS]
    total = sum(store.token_count for _, _, store in stores)
    with durable_folder(folder) as partial, progress.task("export", total, "tokens") as task:
        for name, split, store in stores:
            if store.document_count:
                found.append(_export(corpus, partial, wanted, name, split, store))
            task.advance(store.token_count)
        write_bytes(partial / "tokenizer.json", corpus.tokenizer_path.read_bytes())
    return found


def _export(corpus: Corpus, folder: Path, wanted: Format, name: str, split: str, store: TokenStore) -> Exported:
    stem = folder / f"{name}-{split}"
    if wanted == "megatron":
        write_dataset(stem, _documents(store), corpus.vocabulary_size)
        files = [file.name for file in megatron_files(stem)]
    else:
        file = stem.with_name(f"{stem.name}.parquet")
        _write_parquet(file, name, split, store, corpus.vocabulary_size)
        files = [file.name]
    return Exported(name, split, store.document_count, store.token_count, tuple(files))


def _documents(store: TokenStore) -> Iterator[npt.NDArray[np.int64]]:
    for first, last in _groups(store):
        starts = store.document_starts[first : last + 1]
        yield from np.split(store.read(int(starts[0]), int(starts[-1])), (starts[1:-1] - starts[0]).tolist())


def _groups(store: TokenStore) -> Iterator[tuple[int, int]]:
    """Runs of documents [first, last) of some millions of tokens."""
    group = store.document_starts[:-1] // _GROUP_TOKENS
    firsts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    yield from zip(firsts, [*firsts[1:], store.document_count], strict=True)


def _write_parquet(file: Path, name: str, split: str, store: TokenStore, vocabulary_size: int) -> None:
    ids = pa.uint16() if vocabulary_size <= 1 << 16 else pa.uint32()
    schema = pa.schema(
        [
            ("source", pa.dictionary(pa.int32(), pa.string())),
            ("split", pa.dictionary(pa.int32(), pa.string())),
            ("document", pa.int64()),
            ("tokens", pa.list_(pa.field("item", ids, nullable=False))),
            ("bytes", pa.int64()),
        ]
    )
    with durable_file(file) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for first, last in _groups(store):
            starts = store.document_starts[first : last + 1]
            tokens = store.read(int(starts[0]), int(starts[-1])).astype(ids.to_pandas_dtype())
            offsets = pa.array((starts - starts[0]).astype(np.int32))
            columns: list[Any] = [
                pa.array([name] * (last - first)).dictionary_encode().cast(schema.field("source").type),
                pa.array([split] * (last - first)).dictionary_encode().cast(schema.field("split").type),
                pa.array(np.arange(first, last)),
                pa.ListArray.from_arrays(offsets, pa.array(tokens), type=schema.field("tokens").type),
                pa.array(store.document_bytes[first:last]),
            ]
            writer.write_table(pa.table(columns, schema=schema))
