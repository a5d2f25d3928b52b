"""What a step was trained on: its documents, where they came from, and how they read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from tokenizers import Tokenizer

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed, Span
from stoker.data.ledger import Ledger
from stoker.errors import BadInput, StokerError
from stoker.recipe import Recipe

Origin = tuple[str | None, str | None, str | None]
"""Identifier, file and position of a document."""
_UNKNOWN: Origin = (None, None, None)


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
    """How the stretch begins."""


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
    """Everything one step was trained on."""

    step: int
    digest: str
    """Equals `batch_digest` in the record of a run that was trained on these very tokens."""
    tokens: int
    """Targets that counted."""
    samples: tuple[ShownSample, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)


def show_step(corpus: Corpus, recipe: Recipe, step: int, excerpt_characters: int = 160) -> ShownStep:
    """The documents of `step` of a run of `recipe` on `corpus`, with the first characters of each stretch.

    Raises `BadInput` when the recipe has no such step.
    """
    if not 1 <= step <= recipe.training.steps:
        raise BadInput(f"step {step} does not exist: the run has steps 1 to {recipe.training.steps}")
    feed = Feed(corpus, recipe)
    spans = feed.spans(step)
    origins = _origins(corpus, spans)
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
    per_rank = recipe.layout.sequences_per_rank(recipe.training.batch_size_at(step))
    first = recipe.training.samples_before(step)
    samples = []
    for sample, group in groupby(spans, key=lambda span: span.sample):
        shown = tuple(_shown(corpus, tokenizer, span, origins, excerpt_characters) for span in group)
        samples.append(ShownSample(sample, (sample - first) // per_rank, shown[0].source, shown))
    return ShownStep(step, feed.digest(step), feed.valid_tokens(step), tuple(samples))


def _shown(
    corpus: Corpus,
    tokenizer: Tokenizer,
    span: Span,
    origins: dict[tuple[str, int], Origin],
    excerpt_characters: int,
) -> ShownSpan:
    store = corpus.store(span.source, "train")
    # A character takes at most a few tokens: enough to fill the excerpt without reading a whole book.
    ids = store.document_tokens(span.document)[span.start : min(span.stop, span.start + 4 * excerpt_characters)]
    # A stretch may begin or end inside a character.
    text = tokenizer.decode(ids.tolist(), skip_special_tokens=True).strip("\N{REPLACEMENT CHARACTER}")
    identifier, file, position = origins.get((span.source, span.document), _UNKNOWN)
    return ShownSpan(
        source=span.source,
        epoch=span.epoch,
        document=span.document,
        start=span.start,
        stop=span.stop,
        document_tokens=int(store.document_lengths[span.document]),
        identifier=identifier,
        file=file,
        position=position,
        excerpt=text[:excerpt_characters],
    )


def _origins(corpus: Corpus, spans: Iterable[Span]) -> dict[tuple[str, int], Origin]:
    """(identifier, file, position) of each (source, document) that the ledger has."""
    documents: dict[str, set[int]] = {}
    for span in spans:
        documents.setdefault(span.source, set()).add(span.document)
    try:
        ledger = Ledger(corpus.folder)
    except StokerError:  # the text can be shown all the same
        return {}
    return {
        (source, index): (row["identifier"], row["file"], row["position"])
        for source, indices in documents.items()
        for index, row in ledger.documents(source, "train", sorted(indices)).items()
    }
