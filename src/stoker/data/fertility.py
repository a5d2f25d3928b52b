"""How well a vocabulary fits prepared text: fertility by source, single bytes, what is long and what is unused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.corpus import Corpus, TokenStore
from stoker.data.token_text import shown, token_text
from stoker.progress import Progress

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Fertility:
    """How much text the tokens of a source, or of a language, stand for; special tokens are not counted."""

    name: str
    language: str | None
    documents: int
    tokens: int
    bytes: int
    characters: int
    single_bytes: int
    """Tokens that are one byte of a character of several: text that the vocabulary has no entry for."""

    @property
    def tokens_per_character(self) -> float:
        """0 where there is no text."""
        return self.tokens / self.characters if self.characters else 0.0

    @property
    def bytes_per_token(self) -> float:
        """0 where there is no text."""
        return self.bytes / self.tokens if self.tokens else 0.0

    @property
    def single_byte_share(self) -> float:
        """Of the tokens, 0 to 1."""
        return self.single_bytes / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class VocabularyUse:
    """What a corpus makes of its vocabulary."""

    sources: list[Fertility]
    languages: list[Fertility]
    """The sources of each language together."""
    entries: int
    """Of the vocabulary, special tokens not counted."""
    unused: int
    """Of those, entries that no training text has."""
    longest: list[tuple[str, int]]
    """Longest entries in use, and how often each occurs."""
    most_frequent: list[tuple[str, int]]


def vocabulary_use(corpus: Corpus, longest: int, progress: Progress) -> VocabularyUse:
    """Count the tokens of the training text; reads it once, in bounded memory."""
    text = token_text(corpus.tokenizer_path)
    lengths = text.lengths
    broken = np.asarray([len(content) == 1 and content[0] >= 0x80 for content in text.contents])
    total = np.zeros(len(lengths), np.int64)
    sources = []
    stores = [(entry, corpus.store(entry["name"], "train")) for entry in corpus.manifest["sources"]]
    with progress.task("count tokens", sum(store.token_count for _, store in stores), "tokens") as task:
        for entry, store in stores:
            counts = np.zeros(len(lengths), np.int64)
            for ids in _chunks(store):
                counts += np.bincount(ids, minlength=len(lengths))
                task.advance(len(ids))
            counts[lengths == 0] = 0
            total += counts
            sources.append(_fertility(entry, counts, broken))
    used = np.flatnonzero(total)
    by_length = used[np.lexsort((used, -total[used], -lengths[used]))][:longest]
    by_count = used[np.lexsort((used, -total[used]))][:longest]
    return VocabularyUse(
        sources=sources,
        languages=_by_language(sources),
        entries=int((lengths > 0).sum()),
        unused=int((lengths > 0).sum()) - len(used),
        longest=_named(text.contents, by_length, total),
        most_frequent=_named(text.contents, by_count, total),
    )


def _fertility(entry: dict[str, Any], counts: npt.NDArray[np.int64], broken: npt.NDArray[np.bool_]) -> Fertility:
    train = entry["splits"]["train"]
    return Fertility(
        name=entry["name"],
        language=entry["language"],
        documents=train["documents"],
        tokens=int(counts.sum()),
        bytes=train["bytes"],
        characters=train["characters"],
        single_bytes=int(counts[broken].sum()),
    )


def _by_language(sources: list[Fertility]) -> list[Fertility]:
    languages = list(dict.fromkeys(source.language for source in sources))
    found = []
    for language in languages:
        own = [source for source in sources if source.language == language]
        sums = {
            field: sum(getattr(source, field) for source in own)
            for field in ("documents", "tokens", "bytes", "characters", "single_bytes")
        }
        found.append(Fertility(name=language or "not said", language=language, **sums))
    return found


def _chunks(store: TokenStore) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, store.token_count, _CHUNK):
        yield store.read(start, min(start + _CHUNK, store.token_count))


def _named(
    contents: tuple[bytes, ...], chosen: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> list[tuple[str, int]]:
    numbers = chosen.tolist()
    return list(zip(shown(contents, numbers), counts[chosen].tolist(), strict=True))
