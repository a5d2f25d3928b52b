"""Corpora drawn by hypothesis in which every token is unique, so that a token says where it comes from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from hypothesis import strategies as st

from stoker.data.corpus import Corpus
from stoker.data.feeding import MicroBatch
from tests.data.corpora import build_corpus

document_lengths = st.lists(st.integers(0, 12), min_size=1, max_size=9)
"""Lengths in tokens of a source's documents; one of no token or a single one is as likely as any."""


@dataclass(frozen=True)
class UniqueTokens:
    """A corpus, and for each of its tokens where it stands."""

    corpus: Corpus
    source_of: list[str]
    document_of: list[tuple[str, int]]
    is_last: list[bool]
    """Whether the token ends its document."""

    def documents(self, source: str) -> list[list[int]]:
        """Token ids of the documents of one source."""
        store = self.corpus.store(source, "train")
        return [store.document_tokens(i).tolist() for i in range(store.document_count)]

    def check(self, batch: MicroBatch) -> None:
        """Assert what must hold of every batch: targets, positions, document numbers and sources."""
        names = self.corpus.source_names
        for row in range(len(batch)):
            tokens, targets = batch.tokens[row].tolist(), batch.targets[row].tolist()
            positions, numbers = batch.positions[row].tolist(), batch.documents[row].tolist()
            assert {self.source_of[token] for token in tokens} == {names[int(batch.sources[row])]}
            for place, token in enumerate(tokens):
                assert targets[place] == (-100 if self.is_last[token] else token + 1)
                starts = place == 0 or self.is_last[tokens[place - 1]]
                if starts:
                    assert positions[place] == 0
                    assert numbers[place] == (0 if place == 0 else numbers[place - 1] + 1)
                else:
                    assert token == tokens[place - 1] + 1
                    assert positions[place] == positions[place - 1] + 1
                    assert numbers[place] == numbers[place - 1]


@contextmanager
def unique_tokens(lengths: dict[str, list[int]], documents_per_shard: int = 3) -> Iterator[UniqueTokens]:
    """A corpus of sources whose documents have the given lengths; token ids run on from 0 over all of it."""
    number = 0
    sources: dict[str, dict[str, list[list[int]]]] = {}
    source_of, document_of, is_last = [], [], []
    for name, sizes in lengths.items():
        documents = []
        for index, size in enumerate(sizes):
            documents.append(list(range(number, number + size)))
            number += size
            source_of += [name] * size
            document_of += [(name, index)] * size
            is_last += [False] * (size - 1) + [True] * (size > 0)
        sources[name] = {"train": documents}
    with tempfile.TemporaryDirectory() as folder:
        corpus = build_corpus(
            Path(folder) / "corpus",
            sources,
            documents_per_shard=documents_per_shard,
            vocabulary_size=max(number, 258),
        )
        yield UniqueTokens(corpus, source_of, document_of, is_last)


def same(left: MicroBatch, right: MicroBatch) -> bool:
    """Whether two batches are equal in every array."""
    return all(torch.equal(a, b) for (_, a), (_, b) in zip(left._tensors(), right._tensors(), strict=True))


def joined(batches: list[MicroBatch]) -> MicroBatch:
    """Batches one after another as one."""
    columns = {name: [getattr(batch, name) for batch in batches] for name, _ in batches[0]._tensors()}
    return MicroBatch(**{name: torch.cat(tensors) for name, tensors in columns.items()})
