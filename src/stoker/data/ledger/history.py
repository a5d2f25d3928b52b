"""The history of one document, in full: what its reason means, by how much, and beside which text it was judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.data.against import folders_of_earlier
from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.ledger.evidence import evidence
from stoker.data.ledger.excerpts import Excerpt, Excerpts
from stoker.data.ledger.meanings import meaning_of, rule_that_dropped
from stoker.data.ledger.reading import Ledger
from stoker.data.ledger.schema import CUTS, MEASURE
from stoker.errors import StokerError

if TYPE_CHECKING:
    from stoker.data.side_by_side import Differences
    from stoker.recipe.loading import LoadedRecipe

_SHARE_MEASURES = {
    "not_among_best": ("quality.score", "below"),
    "least_surprising": ("perplexity.bits_per_character", "below"),
    "most_surprising": ("perplexity.bits_per_character", "above"),
}
"""What the reasons that follow from a share of a group compare, and on which side documents are dropped."""
_EARLIER = re.compile(
    r"in the corpus (?P<fingerprint>[0-9a-f]+)/(?P<source>.+), training document (?P<document>\d+)"
)
_PLACES = 3
_NOT_COMPARED = ("exact_duplicate", "held_out_exact_duplicate")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A measure on the wrong side of a threshold."""

    measure: str
    value: float
    drops: str
    """`above` or `below`: on which side of the threshold documents are dropped."""
    threshold: float
    source: str
    """Where the threshold is from."""


@dataclass(frozen=True, slots=True)
class Original:
    """The document that one repeats."""

    identifier: str
    source: str
    """With the corpus's fingerprint before it, where it is in another."""
    similarity: float | None
    """Jaccard similarity of the two; None where they are identical."""
    fate: str | None
    """A reason or verdict of its own; None where that is not known."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of one document."""

    row: Mapping[str, Any]
    meaning: str | None
    """Of its reason."""
    judgement: Judgement | None
    original: Original | None
    excerpt: Excerpt
    """How it begins."""
    evidence: str | None
    """What the measure that decided found in the text."""
    differences: Differences | None
    """Where it differs from its original, or, where passages were cut, from what is left of it."""
    not_compared: str | None
    """Why there are no differences to show, where there might be."""

    def as_json(self) -> dict[str, Any]:
        """The row, with the rest as plain dictionaries and lists."""
        rest = {name: getattr(self, name) for name in ("judgement", "original", "differences")}
        return {
            **self.row,
            "meaning": self.meaning,
            "excerpt": self.excerpt.text,
            "excerpt_missing": self.excerpt.missing,
            "evidence": self.evidence,
            **{name: None if value is None else asdict(value) for name, value in rest.items()},
        }


def history(
    corpus: Corpus, ledger: Ledger, loaded: LoadedRecipe | None, row: Mapping[str, Any], characters: int
) -> History:
    """The history of the document of a row, with its first `characters`.

    `loaded` is the recipe whose sources hold the text; without it, only text that is in the corpus can be shown.
    """
    texts = Excerpts(corpus, loaded, None)
    own = Excerpt(None, row["detail"]) if row["verdict"] == "fault" else texts.as_read(row)
    original, found, why_not = None, None, None
    if row["duplicate_of"] is not None:
        original, other = _in_this_corpus(ledger, texts, row)
        if row["reason"] not in _NOT_COMPARED:
            found, why_not = _compared(own, other)
    elif row["reason"] == "in_earlier_corpus":
        original, other = _in_another_corpus(loaded, row)
        found, why_not = _compared(own, other)
    elif row["split"] is not None and any(row.get(cut) for cut in CUTS):
        found, why_not = _compared(own, texts.of([row])[0])
    judgement = _judgement(corpus, ledger, row)
    shown = own if own.text is None else Excerpt(own.text[:characters], None)
    told = None if judgement is None or own.text is None else evidence(judgement.measure, own.text)
    return History(row, meaning_of(row, ledger.description), judgement, original, shown, told, found, why_not)


def _judgement(corpus: Corpus, ledger: Ledger, row: Mapping[str, Any]) -> Judgement | None:
    rule = rule_that_dropped(row, ledger.description)
    if rule is not None:
        return Judgement(rule.measure, row[MEASURE + rule.measure], rule.drops, rule.threshold, rule.source)
    measure, drops = _SHARE_MEASURES.get(row["reason"], (None, ""))
    if measure is None or row.get(MEASURE + measure) is None:
        return None
    groups = (row["source"], f"{row['kind']} {row['language'] or 'unknown'}")
    for cut in corpus.manifest.get("shares_dropped", []):
        if cut["reason"] == row["reason"] and cut["group"] in groups:
            of = f"what the share came to among the {cut['measured']:,} documents of {cut['group']}"
            return Judgement(measure, row[MEASURE + measure], drops, cut["threshold"], of)
    return None


def _in_this_corpus(ledger: Ledger, texts: Excerpts, row: Mapping[str, Any]) -> tuple[Original, Excerpt]:
    similarity = None if row["reason"] in _NOT_COMPARED else row["similarity"]
    named = [one for one in ledger.named(row["duplicate_of"]) if one["source"] == row["duplicate_source"]]
    # Several documents may have one identifier; one that is in the corpus is likelier to be what was meant.
    named.sort(key=lambda one: one["split"] is None)
    fate = (named[0]["reason"] or named[0]["verdict"]) if named else None
    text = texts.as_read(named[0]) if named else Excerpt(None, "the ledger does not have it")
    return Original(row["duplicate_of"], row["duplicate_source"], similarity, fate), text


def _in_another_corpus(loaded: LoadedRecipe | None, row: Mapping[str, Any]) -> tuple[Original | None, Excerpt]:
    told = _EARLIER.fullmatch(row["detail"] or "")
    if told is None:
        return None, Excerpt(None, "the ledger does not say which document it repeats")
    fingerprint, source, document = told["fingerprint"], told["source"], int(told["document"])
    where = f"{fingerprint}/{source}"
    unknown = Original(f"training document {document}", where, row["similarity"], None)
    folder = None if loaded is None else _earlier_folder(loaded, fingerprint)
    if folder is None:
        return unknown, Excerpt(None, f"the corpus {fingerprint} is not in the recipe's data.deduplication.against")
    try:
        corpus = Corpus.open(folder)
        found = Ledger(folder).document(source, "train", document)
    except StokerError as error:
        return unknown, Excerpt(None, str(error))
    if found is None:
        return unknown, Excerpt(None, f"the corpus {fingerprint} has no such document")
    text = Excerpts(corpus, None, None).of([found])[0]
    return Original(found["identifier"], where, row["similarity"], found["verdict"]), text


def _earlier_folder(loaded: LoadedRecipe, fingerprint: str) -> Path | None:
    for _, folder in folders_of_earlier(loaded):
        try:
            if (folder / MANIFEST).is_file() and Corpus.open(folder).fingerprint == fingerprint:
                return folder
        except StokerError:
            continue
    return None


def _compared(first: Excerpt, second: Excerpt) -> tuple[Differences | None, str | None]:
    from stoker.data.side_by_side import differences

    if first.text is None or second.text is None:
        return None, first.missing or second.missing
    return differences(first.text, second.text, _PLACES), None
