"""The text that steps were trained on, read from the run's prepared corpus: where it can be opened, and only when
asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from stoker.errors import StokerError
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from stoker.data.corpus import Corpus
    from stoker.data.feeding import Feed, Span

_MOST_TOKENS = 1024
"""Of a stretch; a book is not read whole."""


@dataclass(frozen=True)
class Passage:
    """A stretch of a document that a sample of a step holds."""

    step: int
    sample: int
    place: int
    """Where in the sample it begins."""
    source: str
    document: int
    text: str
    respelled: float
    """Share of its tokens that the corpus's tokenizer would not make of its text."""


@dataclass(frozen=True)
class Stretch:
    """The token ids of a stretch of a document, special ones left out."""

    span: Span
    ids: npt.NDArray[np.int64]


def evenly(spans: Sequence[Span], most: int) -> Sequence[Span]:
    """`most` of `spans` that lie evenly among them; all where there are no more."""
    places = np.arange(min(len(spans), most)) * len(spans) // max(min(len(spans), most), 1)
    return [spans[place] for place in places.tolist()]


class Text:
    """Reads passages of a run's steps. The corpus is opened when the first is asked for."""

    few_steps = False
    """Whether so few are asked for that the work which pays over a whole epoch does not."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self._folder = folder
        self._recipe = recipe

    @classmethod
    def of(cls, run: RunDirectory, recipe: Recipe | None) -> Self | None:
        """Of the corpus that the run was trained on; None where that is not known or is gone."""
        try:
            folder = Path(json.loads(run.origin.read_text(encoding="utf-8"))["corpus"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(folder, recipe) if recipe is not None and (folder / "manifest.json").is_file() else None

    def spans(self, step: int) -> list[Span]:
        """Where the samples of `step` come from; empty where the corpus cannot be read or there is no such step."""
        try:
            return self._feed.spans(step)
        except (StokerError, OSError, ValueError):
            return []

    def digest(self, step: int) -> str | None:
        """What the record's `batch_digest` of `step` is when it is trained on the samples that the recipe gives
        it."""
        try:
            return self._feed.digest(step)
        except (StokerError, OSError, ValueError):
            return None

    def read(self, step: int, spans: Iterable[Span]) -> list[Passage]:
        """The text of each span."""
        return [self._passage(step, span) for span in spans]

    def stretches(self, step: int, most: int) -> list[Stretch]:
        """The tokens of the stretches of `step`, of `most` that lie evenly where there are more; empty where they
        cannot be read.
        """
        try:
            return [Stretch(span, self._ids(span)) for span in evenly(self.spans(step), most)]
        except (StokerError, OSError, ValueError):
            return []

    def names(self, wanted: Iterable[tuple[str, int]]) -> list[str]:
        """Identifiers of documents, given by source and index, where the ledger has them."""
        from stoker.data.ledger import Ledger

        documents: dict[str, set[int]] = {}
        for source, document in wanted:
            documents.setdefault(source, set()).add(document)
        try:
            ledger = Ledger(self._corpus.folder)
            found = [ledger.documents(source, "train", sorted(own)) for source, own in documents.items()]
        except (StokerError, OSError):
            return []
        return [str(row["identifier"]) for rows in found for row in rows.values() if row.get("identifier")]

    @cached_property
    def _corpus(self) -> Corpus:
        from stoker.data.corpus import Corpus

        return Corpus.open(self._folder)

    @cached_property
    def _feed(self) -> Feed:
        from stoker.data.feeding import Feed

        return Feed(self._corpus, self._recipe, self.few_steps)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self._corpus.tokenizer_path))

    def _passage(self, step: int, span: Span) -> Passage:
        ids = self._ids(span).tolist()
        text = self._tokenizer.decode(ids, skip_special_tokens=True)
        respelled = self._respelled(ids, text)
        # A stretch may begin or end inside a character.
        text = text.strip("\N{REPLACEMENT CHARACTER}")
        return Passage(step, span.sample, span.place, span.source, span.document, text, respelled)

    def _ids(self, span: Span) -> npt.NDArray[np.int64]:
        store = self._corpus.store(span.source, "train")
        begin = int(store.document_starts[span.document]) + span.start
        ids = np.asarray(store.read(begin, begin + min(span.stop - span.start, _MOST_TOKENS)), np.int64)
        ordinary = (ids != self._corpus.bos_id) & (ids != self._corpus.eos_id)
        return np.asarray(ids[ordinary], np.int64)

    def _respelled(self, ids: list[int], text: str) -> float:
        again = Counter(self._tokenizer.encode(text, add_special_tokens=False).ids)
        kept = sum((Counter(ids) & again).values())
        return 1 - kept / max(len(ids), 1)
