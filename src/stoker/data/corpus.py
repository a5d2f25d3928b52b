"""A prepared corpus on disk, read in place: token shards, document boundaries, tokenizer, manifest.

    <folder>/manifest.json
    <folder>/tokenizer/tokenizer.json
    <folder>/tokens/<source>/<split>-00000.tokens      token ids, little-endian, one document after another
    <folder>/tokens/<source>/<split>-00000.documents   int64 little-endian [documents, 2]: tokens, UTF-8 bytes

`file` of a shard in the manifest is the path of its `.tokens` file relative to the folder; its `.documents`
file lies beside it. No document crosses from one shard into the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.imported import remedy
from stoker.data.manifest import TOKEN_TYPES, problem_of
from stoker.durable_files import sha256_of_file
from stoker.errors import StokerError
from stoker.plural import counted

FORMAT = 1
MANIFEST = "manifest.json"
_DOCUMENT_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 15
_DOCUMENTS_OF_BLOCK = 1 << 10
# Runs shorter than this on average are gathered in one numpy call; longer ones are copied one by one.
_SHORT_RUN_TOKENS = 64

Integers = npt.NDArray[np.int64]


class DamagedCorpus(StokerError):
    """A file of a prepared corpus is missing, cut short, altered, or of another format."""

    def __init__(self, file: Path, what: str, folder: Path) -> None:
        super().__init__(f"{file}: {what}. The prepared corpus cannot be used: {remedy(folder)}.")


@dataclass(frozen=True)
class Shard:
    """One pair of files of a split, as the manifest describes it."""

    path: Path
    tokens: int
    documents: int
    sha256: str
    documents_sha256: str

    @property
    def documents_path(self) -> Path:
        """The file of document lengths beside the tokens."""
        return self.path.with_suffix(".documents")


class TokenStore:
    """One split of one source: a flat stream of tokens in file order, memory-mapped, with its documents."""

    def __init__(self, folder: Path, shards: Sequence[Shard], dtype: np.dtype[Any], vocabulary_size: int) -> None:
        self._folder = folder
        self._vocabulary_size = vocabulary_size
        self._shards = tuple(shards)
        self._dtype = dtype
        self.token_count = sum(shard.tokens for shard in shards)
        self.document_count = sum(shard.documents for shard in shards)
        self._shard_starts = np.cumsum([0, *(shard.tokens for shard in shards)], dtype=np.int64)

    def _document_column(self, column: int) -> Integers:
        """Tokens (0) or bytes (1) of each document; both are looked over, by parts that fit into a cache."""
        found = np.empty(self.document_count, np.int64)
        first = 0
        for shard in self._shards:
            tokens, begin = 0, first
            with open(shard.documents_path, "rb") as stream:
                while len(rows := np.fromfile(stream, "<i8", 2 * _ROWS_AT_ONCE)):
                    rows = rows[: len(rows) // 2 * 2].reshape(-1, 2)
                    after = first + len(rows)
                    if after > begin + shard.documents or (len(rows) and rows.min() < 0):
                        break
                    found[first:after] = rows[:, column]
                    tokens += int(rows[:, 0].sum())
                    first = after
            if len(rows) or first != begin + shard.documents or tokens != shard.tokens:
                what = (
                    f"expected {counted(shard.documents, 'documents')} of {counted(shard.tokens, 'tokens')} in all"
                )
                raise DamagedCorpus(shard.documents_path, what, self._folder)
        return found

    @cached_property
    def document_lengths(self) -> Integers:
        """Tokens of each document, special tokens included: int64 [documents]."""
        return self._document_column(0)

    @cached_property
    def document_bytes(self) -> Integers:
        """UTF-8 bytes of each document's text: int64 [documents]."""
        return self._document_column(1)

    @cached_property
    def document_starts(self) -> Integers:
        """Where each document begins in the flat stream, and where the last one ends: int64 [documents + 1]."""
        starts = np.zeros(self.document_count + 1, np.int64)
        np.cumsum(self.document_lengths, out=starts[1:])
        return starts

    def starts_of(self, documents: Integers, few: bool = False) -> Integers:
        """Where some documents begin in the flat stream: int64 [documents].

        With `few`, sums are taken around each of them, and `document_starts`, 8 bytes for every document of the
        split, is not made.
        """
        if not few:
            return np.asarray(self.document_starts[documents])
        lengths, before = self.document_lengths, self._tokens_before_blocks
        blocks = (documents // _DOCUMENTS_OF_BLOCK).tolist()
        return np.array(
            [
                before[block] + lengths[block * _DOCUMENTS_OF_BLOCK : document].sum()
                for block, document in zip(blocks, documents.tolist(), strict=True)
            ],
            np.int64,
        )

    @cached_property
    def _tokens_before_blocks(self) -> Integers:
        firsts = np.arange(0, self.document_count, _DOCUMENTS_OF_BLOCK)
        sums = np.add.reduceat(self.document_lengths, firsts) if len(firsts) else firsts
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sums)])

    @cached_property
    def _mapped(self) -> list[npt.NDArray[Any]]:
        # Plain views: indexing a memmap object itself costs a microsecond more each time.
        return [
            np.asarray(np.memmap(shard.path, self._dtype, mode="r")) if shard.tokens else np.empty(0, self._dtype)
            for shard in self._shards
        ]

    def read(self, start: int, stop: int) -> Integers:
        """Tokens [start, stop) of the flat stream, across shards: int64 [stop - start].

        Raises `DamagedCorpus` where one of them is not in the vocabulary.
        """
        if not 0 <= start <= stop <= self.token_count:
            raise IndexError(f"tokens {start}:{stop} of a store of {self.token_count}")
        parts = [
            tokens[max(start - begin, 0) : max(stop - begin, 0)]
            for tokens, begin in zip(self._mapped, self._shard_starts[:-1], strict=True)
            if begin < stop and begin + len(tokens) > start
        ]
        read = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
        if len(read) and int(read.max()) >= self._vocabulary_size:
            shard = self._shards[int(np.searchsorted(self._shard_starts, start + read.argmax(), side="right")) - 1]
            what = f"it holds token {int(read.max()):,}, and the vocabulary ends at {self._vocabulary_size - 1:,}"
            raise DamagedCorpus(shard.path, what, self._folder)
        return read

    def document_tokens(self, document: int) -> Integers:
        """All tokens of one document: int64 [length]."""
        if not 0 <= document < self.document_count:
            raise IndexError(f"document {document} of a store of {self.document_count}")
        return self.read(int(self.document_starts[document]), int(self.document_starts[document + 1]))

    def copy_runs(self, starts: Integers, lengths: Integers, out: Integers, places: Integers) -> None:
        """Copy runs of tokens: `lengths[i]` tokens from `starts[i]` of the flat stream to `out[places[i]:]`.

        A run is not empty and lies within one document (and so within one shard). Arrays are int64 [runs];
        `out` is flat.
        """
        shards = np.searchsorted(self._shard_starts, starts, side="right") - 1
        if len(starts) and lengths.sum() < _SHORT_RUN_TOKENS * len(starts):
            self._gather_runs(shards, starts - self._shard_starts[shards], lengths, out, places)
            return
        mapped = self._mapped
        local = (starts - self._shard_starts[shards]).tolist()
        for shard, start, length, place in zip(
            shards.tolist(), local, lengths.tolist(), places.tolist(), strict=True
        ):
            out[place : place + length] = mapped[shard][start : start + length]

    def _gather_runs(
        self, shards: Integers, starts: Integers, lengths: Integers, out: Integers, places: Integers
    ) -> None:
        for shard in np.unique(shards).tolist():
            rows = np.flatnonzero(shards == shard)
            length = lengths[rows]
            within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            values = self._mapped[shard][within + np.repeat(starts[rows], length)]
            out[within + np.repeat(places[rows], length)] = values


class Corpus:
    """A prepared corpus: its manifest, its tokenizer, and a `TokenStore` for every source and split."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.source_names: tuple[str, ...] = tuple(source["name"] for source in manifest["sources"])
        self.fingerprint: str = manifest["fingerprint"]
        self.vocabulary_size: int = manifest["tokenizer"]["vocabulary_size"]
        self.bos_id: int | None = manifest["tokenizer"]["bos_id"]
        self.eos_id: int | None = manifest["tokenizer"]["eos_id"]
        self.adds_bos: bool = manifest["tokenizer"]["adds_bos"]
        self.adds_eos: bool = manifest["tokenizer"]["adds_eos"]
        self._dtype: np.dtype[Any] = np.dtype(TOKEN_TYPES[manifest["dtype"]])
        self._stores: dict[tuple[str, str], TokenStore] = {}

    @classmethod
    def open(cls, folder: Path, verify: bool = False) -> Corpus:
        """Open the corpus in `folder` and check that its files are all there and of the right size.

        `verify` also compares every file's SHA-256 with the manifest, which otherwise only the tokenizer's is.
        Raises `DamagedCorpus` naming the first file that is wrong and what makes it right again.
        """
        corpus = cls(folder, _read_manifest(folder))
        for shard in corpus._shards():
            _check_file(shard.path, shard.tokens * corpus._dtype.itemsize, shard.sha256, folder, verify)
            size = shard.documents * _DOCUMENT_ROW_BYTES
            _check_file(shard.documents_path, size, shard.documents_sha256, folder, verify)
        # Always: it is small, and what reads a damaged one fails in words that name no file.
        _check_file(corpus.tokenizer_path, None, corpus.manifest["tokenizer"]["sha256"], folder, verify=True)
        return corpus

    @property
    def tokenizer_path(self) -> Path:
        """The `tokenizer.json` the corpus was made with."""
        return self.folder / "tokenizer" / "tokenizer.json"

    def store(self, source: str, split: str) -> TokenStore:
        """Tokens of one source's `train` or `held_out` split; empty when nothing fell into it."""
        key = (source, split)
        if key not in self._stores:
            if source not in self.source_names:
                raise KeyError(f"no source {source!r} in {self.folder}; there are {', '.join(self.source_names)}")
            self._stores[key] = TokenStore(
                self.folder, self._shards_of(source, split), self._dtype, self.vocabulary_size
            )
        return self._stores[key]

    def _shards_of(self, source: str, split: str) -> list[Shard]:
        entry = next(entry for entry in self.manifest["sources"] if entry["name"] == source)
        return [
            Shard(
                path=self.folder / shard["file"],
                tokens=shard["tokens"],
                documents=shard["documents"],
                sha256=shard["sha256"],
                documents_sha256=shard["documents_sha256"],
            )
            for shard in entry["splits"].get(split, {"shards": []})["shards"]
        ]

    def _shards(self) -> list[Shard]:
        return [
            shard
            for entry in self.manifest["sources"]
            for split in entry["splits"]
            for shard in self._shards_of(entry["name"], split)
        ]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedCorpus(path, "not found", folder) from None
    except (ValueError, RecursionError) as error:
        raise DamagedCorpus(path, f"not readable as JSON ({error})", folder) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        raise DamagedCorpus(path, f"format {FORMAT} expected, found {found}", folder)
    if problem := problem_of(manifest):
        raise DamagedCorpus(path, problem, folder)
    return manifest


def _check_file(path: Path, size: int | None, sha256: str, folder: Path, verify: bool) -> None:
    if not path.is_file():
        raise DamagedCorpus(path, "missing", folder)
    found = path.stat().st_size
    if size is not None and found != size:
        raise DamagedCorpus(path, f"{counted(size, 'bytes')} expected, found {found}", folder)
    if verify and (digest := sha256_of_file(path)) != sha256:
        raise DamagedCorpus(path, f"its content has changed: SHA-256 {sha256} expected, found {digest}", folder)
