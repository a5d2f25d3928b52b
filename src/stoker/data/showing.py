"""What a step was trained on: its documents, where they came from, and how they read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed, Span
from stoker.data.ledger import Ledger
from stoker.errors import BadInput, StokerError
from stoker.recipe import Recipe

Origin = tuple[str | None, str | None, str | None]
"""Identifier, file and position of a document."""
FEW_STEPS = 4
"""Up to so many steps are found sooner without putting an epoch's documents in order."""
_UNKNOWN: Origin = (None, None, None)
_UNSPACED = ("\u0e00\u0eff", "\u1000\u109f", "\u1780\u17ff", "\u2e80\u9fff", "\uf900\ufaff", "\U00020000\U0003ffff")
"""First and last characters of scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, Han, kana."""


@dataclass(frozen=True)
class ShownSpan:
    """A stretch of a document that a sample holds."""

    source: str
    epoch: int
    """How many times the whole source had been taken before, from 0."""
    document: int
    """Index within the source's `train` split."""
    start: int
    """First token within the document."""
    stop: int
    """After the last token within the document."""
    document_tokens: int
    """Length of the whole document."""
    identifier: str | None
    """The ledger's name of the document; None where the ledger does not have it."""
    file: str | None
    position: str | None
    """Where in the file."""
    excerpt: str
    """How the stretch begins, or reads around what was looked for."""


@dataclass(frozen=True)
class ShownSample:
    """One sequence of a step."""

    sample: int
    rank: int
    """Data-parallel rank that had it, in the recipe's layout."""
    source: str
    spans: tuple[ShownSpan, ...]


@dataclass(frozen=True)
class ShownStep:
    """What one step was trained on: everything, or the stretches that mention something."""

    step: int
    digest: str
    """Equals `batch_digest` in the record of a run that was trained on these very tokens."""
    tokens: int
    """Targets that counted."""
    sequences: dict[str, int]
    """Sequences of each source in the whole step: what the mixture in force came to."""
    shares: dict[str, float]
    """Share of each source in the mixture in force."""
    samples: tuple[ShownSample, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)


def show_step(corpus: Corpus, recipe: Recipe, step: int, excerpt_characters: int = 160) -> ShownStep:
    """The documents of `step` of a run of `recipe` on `corpus`, with the first characters of each stretch.

    Raises `BadInput` when the recipe has no such step.
    """
    return next(show_steps(corpus, recipe, range(step, step + 1), excerpt_characters))


def show_steps(
    corpus: Corpus,
    recipe: Recipe,
    steps: range,
    excerpt_characters: int = 160,
    mentions: re.Pattern[str] | None = None,
    feed: Feed | None = None,
) -> Iterator[ShownStep]:
    """Each of `steps`, as `show_step` gives it; with `mentions`, only stretches whose text the pattern is found in.

    `feed` is that of a run whose record says that steps were given other samples than the recipe's.
    The text of a stretch is that of its own tokens: what stands across the end of a sequence is in neither stretch.
    Raises `BadInput` when the recipe has no such steps.
    """
    for step in (steps.start, steps.stop - 1):
        if not 1 <= step <= recipe.training.steps:
            raise BadInput(f"step {step} does not exist: the run has steps 1 to {recipe.training.steps}")
    feed = feed or Feed(corpus, recipe, few_steps=len(steps) <= FEW_STEPS)
    reader = _StretchReader(corpus, excerpt_characters, few=len(steps) <= FEW_STEPS)
    for step in steps:
        spans = feed.spans(step)
        excerpts = reader.beginnings(spans) if mentions is None else reader.mentions(spans, mentions)
        # A sequence begins at place 0; a step that was given a sample twice has it in two sequences.
        numbers = np.cumsum([span.place == 0 for span in spans]) - 1
        shown = [
            (int(number), span, excerpt)
            for number, span, excerpt in zip(numbers, spans, excerpts, strict=True)
            if excerpt is not None
        ]
        origins = _origins(corpus, [span for _, span, _ in shown])
        per_rank = recipe.layout.sequences_per_rank(recipe.training.batch_size_at(step))
        samples = []
        for number, group in groupby(shown, key=lambda one: one[0]):
            members = list(group)
            own = tuple(_shown(corpus, span, origins, excerpt) for _, span, excerpt in members)
            samples.append(ShownSample(members[0][1].sample, number // per_rank, own[0].source, own))
        sequences = Counter(span.source for span in spans if span.place == 0)
        sources = {name: sequences[name] for name in corpus.source_names if sequences[name]}
        shares = feed.shares(step)
        yield ShownStep(step, feed.digest(step), feed.valid_tokens(step), sources, shares, tuple(samples))


@dataclass(frozen=True)
class Training:
    """A stretch of a document in a sequence of a step."""

    step: int
    sample: int
    epoch: int
    start: int
    """First token within the document."""
    stop: int
    """After the last token within the document."""


def trainings(
    corpus: Corpus, recipe: Recipe, documents: Iterable[tuple[str, int]], feed: Feed | None = None
) -> dict[tuple[str, int], list[Training]]:
    """Where in a whole run of `recipe` each document, by source and index of its `train` split, is trained on.

    Goes through the samples of all steps, some hundred thousand a second, and reads no text. `feed` as in
    `show_steps`.
    """
    found: dict[tuple[str, int], list[Training]] = {key: [] for key in documents}
    feed = feed or Feed(corpus, recipe)
    for step in range(1, recipe.training.steps + 1):
        for span in feed.spans(step):
            own = found.get((span.source, span.document))
            if own is not None:
                own.append(Training(step, span.sample, span.epoch, span.start, span.stop))
    return found


def mention_pattern(wanted: str) -> re.Pattern[str]:
    """What `wanted` is looked for as: `/…/` is a regular expression, anything else the words themselves.

    Case does not matter in words, blanks stand for any blanks, and a letter or digit of a script with spaces is not
    found inside a longer word; Chinese, which has none, is found anywhere. Raises `BadInput` for an empty or
    senseless one.
    """
    if len(wanted) > 2 and wanted.startswith("/") and wanted.endswith("/"):
        try:
            return re.compile(wanted[1:-1])
        except re.error as error:
            raise BadInput(f"--mentions {wanted}: not a valid regular expression: {error}") from None
    words = wanted.split()
    if not words:
        raise BadInput("--mentions: expected a word, or a regular expression between slashes")
    before = r"(?<!\w)" if _ends_a_word(words[0][0]) else ""
    behind = r"(?!\w)" if _ends_a_word(words[-1][-1]) else ""
    return re.compile(before + r"\s+".join(map(re.escape, words)) + behind, re.IGNORECASE)


def _ends_a_word(character: str) -> bool:
    """Whether a word that ends with the character ends there: not so in scripts without spaces."""
    return character.isalnum() and not any(span[0] <= character <= span[1] for span in _UNSPACED)


class _StretchReader:
    def __init__(self, corpus: Corpus, characters: int, few: bool) -> None:
        self._corpus, self._characters, self._few = corpus, characters, few
        self._tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))

    def beginnings(self, spans: Sequence[Span]) -> list[str | None]:
        """How each stretch begins."""
        # A character takes at most a few tokens: enough to fill the excerpt without reading a whole book.
        return [text[: self._characters] for text in self._texts(spans, 4 * self._characters)]

    def mentions(self, spans: Sequence[Span], pattern: re.Pattern[str]) -> list[str | None]:
        """How each stretch reads around the first place where `pattern` is found; None where it is not."""
        return [self._around(text, pattern.search(text)) for text in self._texts(spans, None)]

    def _around(self, text: str, found: re.Match[str] | None) -> str | None:
        if found is None:
            return None
        begin = max(0, found.start() - max(0, self._characters - (found.end() - found.start())) // 2)
        return ("…" if begin else "") + text[begin : begin + self._characters]

    def _texts(self, spans: Sequence[Span], most_tokens: int | None) -> list[str]:
        rows = []
        for span in spans:
            store = self._corpus.store(span.source, "train")
            start = int(store.starts_of(np.array([span.document]), self._few)[0])
            stop = span.stop if most_tokens is None else min(span.stop, span.start + most_tokens)
            rows.append(store.read(start + span.start, start + stop).tolist())
        # A stretch may begin or end inside a character.
        texts: list[str] = self._tokenizer.decode_batch(rows, skip_special_tokens=True)
        return [text.strip("\N{REPLACEMENT CHARACTER}") for text in texts]


def _shown(corpus: Corpus, span: Span, origins: dict[tuple[str, int], Origin], excerpt: str) -> ShownSpan:
    identifier, file, position = origins.get((span.source, span.document), _UNKNOWN)
    return ShownSpan(
        source=span.source,
        epoch=span.epoch,
        document=span.document,
        start=span.start,
        stop=span.stop,
        document_tokens=int(corpus.store(span.source, "train").document_lengths[span.document]),
        identifier=identifier,
        file=file,
        position=position,
        excerpt=excerpt,
    )


def _origins(corpus: Corpus, spans: Iterable[Span]) -> dict[tuple[str, int], Origin]:
    """(identifier, file, position) of each (source, document) that the ledger has."""
    documents: dict[str, set[int]] = {}
    for span in spans:
        documents.setdefault(span.source, set()).add(span.document)
    if not documents:
        return {}
    try:
        ledger = Ledger(corpus.folder)
        return {
            (source, index): (row["identifier"], row["file"], row["position"])
            for source, indices in documents.items()
            for index, row in ledger.documents(source, "train", sorted(indices)).items()
        }
    except StokerError:  # the text can be shown all the same
        return {}
