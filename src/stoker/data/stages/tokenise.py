"""Third and fourth stage: the tokenizer, and the tokens of every source and split."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.counter_random import key_of, permutation
from stoker.data.executors import Executor
from stoker.data.shards import Shard, token_dtype, write_split
from stoker.data.stages.candidates import Candidates, Integers
from stoker.data.stages.select import HELD_OUT, TRAIN, Selection
from stoker.data.tokenizer import TextEncoder, adopt_tokenizer, train_tokenizer
from stoker.durable_files import write_json
from stoker.progress import Progress, Task
from stoker.recipe import Tokenizer

SPLITS = {"train": TRAIN, "held_out": HELD_OUT}
_BATCH_BYTES = 4 << 20
_WORTH_A_WORKER = 32 << 20
"""Bytes of text that take longer to encode than a process takes to start."""


def make_tokenizer(
    candidates: Candidates, selection: Selection, settings: Tokenizer, given: Path | None, path: Path
) -> None:
    """Train a vocabulary on the training documents, or take the given one; written to `path`.

    Raises `BadInput` when the text supports no such vocabulary, or the given file is no tokenizer for it.
    """
    if given is not None:
        adopt_tokenizer(given, settings, path)
        return
    training = selection.of(TRAIN)
    fits = candidates.bytes[training].sum() <= settings.training_megabytes * 1e6
    samples = {}
    for index, name in enumerate(candidates.names):
        documents = training[candidates.sources[training] == index]
        if not fits:  # a sample of all of the source, not of its beginning
            documents = documents[permutation(key_of(0, "tokenizer sample", name), len(documents))]
        samples[name] = iter(candidates.texts(documents))
    train_tokenizer(samples, settings, path)


def tokenise(
    candidates: Candidates,
    selection: Selection,
    settings: Tokenizer,
    corpus: Path,
    finished: Path,
    shard_tokens: int,
    executor: Executor,
    progress: Progress,
) -> dict[str, dict[str, list[Shard]]]:
    """Write the shards of every source and split below `corpus`; returns them as the manifest names them.

    The shards are the same whatever `executor` encodes the text. `finished` is a
    folder in which each finished shard is noted, so that it is not made again.
    """
    splits = [
        _Split(candidates, selection, index, split, corpus, finished)
        for index in range(len(candidates.names))
        for split in SPLITS
    ]
    tokenizer = corpus / "tokenizer" / "tokenizer.json"
    dtype = token_dtype(text_encoder(tokenizer, settings).vocabulary_size)
    batches = [_batches(candidates, split.remaining) for split in splits]
    jobs = [EncodeTexts(tokenizer, settings, dtype, batch) for own in batches for batch in own]
    size = int(sum(candidates.bytes[split.remaining].sum() for split in splits))
    encoded = executor.in_order(encode_texts, jobs, most=1 + size // _WORTH_A_WORKER)
    written: dict[str, dict[str, list[Shard]]] = {}
    with progress.task("tokenise", sum(split.size for split in splits), "bytes") as task:
        for split, own in zip(splits, batches, strict=True):
            task.skip(split.size - int(candidates.bytes[split.remaining].sum()))
            documents = _documents(islice(encoded, len(own)), task)
            shards = write_split(
                split.folder,
                split.split,
                documents,
                dtype,
                shard_tokens,
                split.shards,
                partial(write_json, split.note),
            )
            for shard in shards:
                shard["file"] = f"tokens/{split.name}/{shard['file']}"
            written.setdefault(split.name, {})[split.split] = shards
    return written


class _Split:
    """A split of a source: its documents, and what of it is written already."""

    def __init__(
        self, candidates: Candidates, selection: Selection, source: int, split: str, corpus: Path, finished: Path
    ) -> None:
        self.name, self.split = candidates.names[source], split
        self.folder = corpus / "tokens" / self.name
        self.note = finished / f"{self.name}.{split}.json"
        documents = selection.of(SPLITS[split])
        documents = documents[candidates.sources[documents] == source]
        self.size = int(candidates.bytes[documents].sum())
        """UTF-8 bytes of all documents."""
        self.shards: list[Shard] = json.loads(self.note.read_text("utf-8")) if self.note.is_file() else []
        self.remaining = documents[sum(shard["documents"] for shard in self.shards) :]
        """Documents that no finished shard holds."""


@dataclass(frozen=True)
class EncodeTexts:
    """The job of one worker: some texts in UTF-8, fetched from disk when they are encoded or sent to the worker."""

    tokenizer: Path
    settings: Tokenizer
    dtype: str
    texts: Sequence[npt.NDArray[np.uint8]]

    def __reduce__(self) -> tuple[type[EncodeTexts], tuple[Any, ...]]:
        return EncodeTexts, (self.tokenizer, self.settings, self.dtype, list(self.texts))


class Encoded(NamedTuple):
    """Texts as tokens, one after another."""

    ids: npt.NDArray[Any]
    tokens: Integers
    """Of each text: [texts]."""
    bytes: Integers
    """Of each text: [texts]."""


def encode_texts(job: EncodeTexts) -> Encoded:
    """Encode the texts of a job."""
    texts = list(job.texts)
    found = text_encoder(job.tokenizer, job.settings).encode_documents([text.tobytes().decode() for text in texts])
    return Encoded(
        ids=np.concatenate(found).astype(job.dtype),
        tokens=np.asarray([len(ids) for ids in found], np.int64),
        bytes=np.asarray([len(text) for text in texts], np.int64),
    )


@lru_cache(maxsize=1)
def text_encoder(tokenizer: Path, settings: Tokenizer) -> TextEncoder:
    """The encoder of a preparation, one in each process; `tokenizer` must not change from then on."""
    return TextEncoder(tokenizer, settings)


def _batches(candidates: Candidates, documents: Integers) -> list[Sequence[npt.NDArray[np.uint8]]]:
    """The texts of some documents, a few megabytes at a time."""
    if not len(documents):
        return []
    sizes = candidates.bytes[documents]
    starts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // _BATCH_BYTES))
    return [candidates.encoded_texts(batch) for batch in np.split(documents, starts + 1)]


def _documents(encoded: Iterable[Encoded], task: Task) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """(token ids, bytes of text) of each document."""
    for batch in encoded:
        parts = np.split(batch.ids, np.cumsum(batch.tokens)[:-1])
        yield from zip(parts, batch.bytes.tolist(), strict=True)
        task.advance(int(batch.bytes.sum()))


def token_counts(corpus: Path, shards: list[Shard]) -> Integers:
    """Tokens of each document of a split: int64 [documents]."""
    tables = [
        np.fromfile((corpus / shard["file"]).with_suffix(".documents"), "<i8").reshape(-1, 2)[:, 0]
        for shard in shards
    ]
    return np.concatenate([np.empty(0, np.int64), *tables])
