"""Corpora prepared before, whose text is not to be trained on again; and the signatures a corpus keeps for that.

    <corpus>/signatures/<source>.signatures      uint32 [documents of the training split, permutations]

A corpus without them, with others than are wanted or with damaged ones is decoded and signed anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer as Backend

from stoker.data.corpus import Corpus, TokenStore
from stoker.data.deduplication import Duplicates, sign
from stoker.data.deduplication.stored_rows import stored_rows
from stoker.data.minhash import SIGNING, Signatures, Utf8, utf8
from stoker.data.stages.candidates import Candidates, Integers
from stoker.durable_files import durable_file, sha256_of_file
from stoker.recipe import Deduplication

_BATCH = 1 << 10
SIGNATURES = "signatures"
"""Folder of a corpus, and key of its manifest."""


@dataclass(frozen=True)
class Matches:
    """Candidates that repeat a document of an earlier corpus; arrays of shape [matches], by candidate."""

    documents: Integers
    store: Integers
    """Index into `labels`."""
    place: Integers
    """Index of the earlier document in its training split."""
    labels: tuple[str, ...]
    """Fingerprint of a corpus, and source, as `fingerprint/source`."""

    @classmethod
    def none(cls) -> Matches:
        """No match."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, ())

    def details(self, first: int, after: int) -> pa.Array:
        """For each of the candidates `first` to `after` (exclusive): which document it repeats, null for none."""
        begin, end = np.searchsorted(self.documents, [first, after]).tolist()
        told: list[str | None] = [None] * (after - first)
        for row in range(begin, end):
            told[int(self.documents[row]) - first] = (
                f"in the corpus {self.labels[int(self.store[row])]}, training document {int(self.place[row])}"
            )
        return pa.array(told, pa.string())

    def write(self, stream: BinaryIO) -> None:
        """Append to an open file."""
        for array in (self.documents, self.store, self.place, np.asarray(self.labels, np.str_)):
            np.save(stream, array)

    @classmethod
    def read(cls, stream: BinaryIO) -> Matches:
        """What `write` wrote next."""
        documents, store, place, labels = (np.load(stream) for _ in range(4))
        return cls(documents, store, place, tuple(labels.tolist()))


def joined_matches(parts: Sequence[Matches]) -> Matches:
    """The matches of several searches among the same corpora as one."""
    documents = np.concatenate([part.documents for part in parts])
    order = np.argsort(documents)
    store = np.concatenate([part.store for part in parts])[order]
    place = np.concatenate([part.place for part in parts])[order]
    return Matches(documents[order], store, place, max((part.labels for part in parts), key=len))


class EarlierCorpora:
    """The training documents of some corpora, numbered one after another."""

    def __init__(self, corpora: Sequence[Corpus], settings: Deduplication, folder: Path) -> None:
        """`folder` takes signatures that a corpus does not hold."""
        stores = [_Store(corpus, source) for corpus in corpora for source in corpus.source_names]
        self._stores = [store for store in stores if len(store)]
        self._starts = np.cumsum([0, *map(len, self._stores)])
        self._permutations = settings.permutations
        self._files = [
            store.signed(settings, folder / f"earlier-{number:06d}.signatures")
            for number, store in enumerate(self._stores)
        ]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def signatures(self, places: Integers) -> Signatures:
        """Of some documents: [places, permutations]."""
        found = np.empty((len(places), self._permutations), np.uint32)
        store_of = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(store_of).tolist():
            rows = np.flatnonzero(store_of == number)
            found[rows] = stored_rows(self._files[number], places[rows] - self._starts[number], self._permutations)
        return found

    def texts(self, places: Integers) -> Sequence[Utf8]:
        """Texts of some documents, decoded when they are asked for."""
        return _Decoded(self, places)

    def text(self, place: int) -> Utf8:
        """The text of one document, decoded from its tokens."""
        store = bisect_right(self._starts, place) - 1
        return utf8(self._stores[store].texts([place - int(self._starts[store])])[0])

    def matches(self, documents: Integers, found: Duplicates) -> Matches:
        """Of a search for `documents` among these, `duplicate_of` being the places here."""
        store = np.searchsorted(self._starts, found.duplicate_of, side="right") - 1
        labels = tuple(store.label for store in self._stores)
        return Matches(documents[found.index], store, found.duplicate_of - self._starts[store], labels)


def write_signatures(
    candidates: Candidates, selection: Integers, settings: Deduplication, corpus: Path
) -> dict[str, Any]:
    """Write the signatures of the documents that are trained on; what the manifest says of them.

    `selection` are those documents in order; a text from which passages were cut is signed as it is left.
    """
    files = {}
    for index, name in enumerate(candidates.names):
        documents = selection[candidates.sources[selection] == index]
        path = corpus / SIGNATURES / f"{name}.signatures"
        path.parent.mkdir(parents=True, exist_ok=True)
        with durable_file(path) as stream:
            for start in range(0, len(documents), _BATCH):
                batch = documents[start : start + _BATCH]
                rows = candidates.signatures(batch, settings)
                changed = np.flatnonzero(candidates.changed(batch))
                rows[changed] = sign(candidates.texts(batch[changed]), settings)
                stream.write(rows.astype("<u4").tobytes())
        files[name] = {"file": f"{SIGNATURES}/{path.name}", "sha256": sha256_of_file(path)}
    return {**_identity(settings), "files": files}


def _identity(settings: Deduplication) -> dict[str, int]:
    """What must be equal for signatures to be compared."""
    return {
        "version": SIGNING,
        "shingle_size": settings.shingle_size,
        "permutations": settings.permutations,
    }


class _Store:
    """The training split of one source of one corpus."""

    def __init__(self, corpus: Corpus, source: str) -> None:
        self._corpus, self._source = corpus, source
        self._tokens: TokenStore = corpus.store(source, "train")
        self.label = f"{corpus.fingerprint}/{source}"

    def __len__(self) -> int:
        return self._tokens.document_count

    def signed(self, settings: Deduplication, made: Path) -> Path:
        """The file of its signatures: the corpus's own if they are of this kind, else written to `made`."""
        known = self._corpus.manifest.get(SIGNATURES)
        if known is not None and _identity(settings).items() <= known.items() and self._source in known["files"]:
            note = known["files"][self._source]
            path: Path = self._corpus.folder / note["file"]
            whole = path.is_file() and path.stat().st_size == 4 * settings.permutations * len(self)
            if whole and sha256_of_file(path) == note["sha256"]:
                return path
        with durable_file(made) as stream:
            for start in range(0, len(self), _BATCH):
                texts = self.texts(range(start, min(len(self), start + _BATCH)))
                stream.write(sign(texts, settings).astype("<u4").tobytes())
        return made

    def texts(self, documents: Sequence[int]) -> list[str]:
        """Texts of some documents."""
        first = int(self._corpus.adds_bos)
        ids = [self._tokens.document_tokens(document) for document in documents]
        ids = [own[first : len(own) - int(self._corpus.adds_eos)] for own in ids]
        texts: list[str] = self._backend.decode_batch([own.tolist() for own in ids], skip_special_tokens=False)
        return texts

    @cached_property
    def _backend(self) -> Any:
        return Backend.from_file(str(self._corpus.tokenizer_path))


class _Decoded(Sequence[npt.NDArray[np.uint8]]):
    def __init__(self, corpora: EarlierCorpora, places: Integers) -> None:
        self._corpora, self._places = corpora, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Utf8:  # type: ignore[override]
        return self._corpora.text(int(self._places[index]))

    def __iter__(self) -> Iterator[Utf8]:
        return (self._corpora.text(place) for place in self._places.tolist())
