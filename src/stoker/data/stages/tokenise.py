"""Third and fourth stage: the tokenizer, and the tokens of every source and split."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stoker.counter_random import key_of, permutation
from stoker.data.shards import Shard, token_dtype, write_split
from stoker.data.stages.candidates import Candidates, Integers
from stoker.data.stages.select import HELD_OUT, TRAIN, Selection
from stoker.data.tokenizer import TextEncoder, adopt_tokenizer, train_tokenizer
from stoker.durable_files import write_json
from stoker.progress import Progress
from stoker.recipe import Tokenizer

SPLITS = {"train": TRAIN, "held_out": HELD_OUT}
_BATCH_BYTES = 4 << 20


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
    progress: Progress,
) -> dict[str, dict[str, list[Shard]]]:
    """Write the shards of every source and split below `corpus`; returns them as the manifest names them.

    `finished` is a folder in which each finished split is noted, so that it is not written twice.
    """
    encoder = TextEncoder(corpus / "tokenizer" / "tokenizer.json", settings)
    dtype = token_dtype(encoder.vocabulary_size)
    written: dict[str, dict[str, list[Shard]]] = {}
    total = sum(int(candidates.bytes[selection.of(verdict)].sum()) for verdict in SPLITS.values())
    with progress.task("tokenise", total, "B") as task:
        for index, name in enumerate(candidates.names):
            for split, verdict in SPLITS.items():
                documents = selection.of(verdict)
                documents = documents[candidates.sources[documents] == index]
                note = finished / f"{name}.{split}.json"
                if not note.is_file():
                    encoded = _encoded(candidates, documents, encoder)
                    shards = write_split(corpus / "tokens" / name, split, encoded, dtype, shard_tokens)
                    for shard in shards:
                        shard["file"] = f"tokens/{name}/{shard['file']}"
                    write_json(note, shards)
                written.setdefault(name, {})[split] = json.loads(note.read_text(encoding="utf-8"))
                task.advance(int(candidates.bytes[documents].sum()))
    return written


def _encoded(
    candidates: Candidates, documents: Integers, encoder: TextEncoder
) -> Iterator[tuple[npt.NDArray[np.uint32], int]]:
    """(token ids, bytes of text) of each document, encoded a few megabytes at a time."""
    sizes = candidates.bytes[documents]
    batch_of = (np.cumsum(sizes) - sizes) // _BATCH_BYTES
    for batch in np.unique(batch_of).tolist():
        chosen = np.flatnonzero(batch_of == batch)
        ids = encoder.encode_documents(list(candidates.texts(documents[chosen])))
        yield from zip(ids, sizes[chosen].tolist(), strict=True)


def token_counts(corpus: Path, shards: list[Shard]) -> Integers:
    """Tokens of each document of a split: int64 [documents]."""
    tables = [
        np.fromfile((corpus / shard["file"]).with_suffix(".documents"), "<i8").reshape(-1, 2)[:, 0]
        for shard in shards
    ]
    return np.concatenate([np.empty(0, np.int64), *tables])
