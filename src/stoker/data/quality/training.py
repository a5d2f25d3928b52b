"""Training of a classifier from text that is held up as good and text that is held up as bad.

Logistic regression by stochastic gradient descent: steps by AdaGrad (Duchi, Hazan & Singer 2011), weights averaged
over all steps (Polyak & Juditsky 1992), both classes weighing the same however many documents they have. Words and
form are learnt together; which forms are usual is learnt from the good text alone. One thread, documents in an
order drawn from the seed: the same text and settings give the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.counter_random import key_of, permutation
from stoker.data.kernels import compiled
from stoker.data.quality.classifier import Classifier, Form, quantised
from stoker.data.quality.evaluation import Judged, Report, report_of
from stoker.data.quality.features import BUCKETS, buckets_of, tokens_of
from stoker.data.quality.form import NAMES, form_of
from stoker.data.quality.telling import TellingRun, telling_runs
from stoker.data.quality.texts import TextDigest, content_draw, group_of, require_texts
from stoker.data.quality.usual_form import usual_forms
from stoker.errors import BadInput

_LEAST = 20
"""Documents of each side below which nothing is learnt, and nothing could be said of how well."""
_SAME_AT_MOST = 0.5
"""Share of either side's documents that may stand on the other too. Beyond it most of what is learnt contradicts
itself."""
_LONGEST_TEXT = 1 << 16
"""Characters of a document that are learnt from: its beginning."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a classifier is trained."""

    longest: int = 2
    """Tokens of the longest run that is looked at: words, or characters of scripts without spaces."""
    epochs: int = 5
    """How often each document is learnt from."""
    rate: float = 0.1
    """Size of a step of AdaGrad."""
    held_out: float = 0.2
    """Share of the documents that is judged on and not learnt from, chosen by their content."""
    seed: int = 0
    form: bool = True
    """Whether the form of text has a say, or words alone."""


@dataclass(frozen=True)
class Trained:
    """A classifier and what was found out about it."""

    classifier: Classifier
    report: Report
    good: tuple[TellingRun, ...]
    """Runs that speak most for a text, over all text learnt from; and those that speak most against one."""
    bad: tuple[TellingRun, ...]
    on_both_sides: int
    """Different documents that were held up as good and as bad."""
    share_on_both_sides: float
    """Of the documents of the side that has fewer."""


@dataclass(frozen=True)
class _Sample:
    texts: list[str]
    good: list[bool]

    @property
    def sides(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.good, np.bool_)


def train_classifier(positive: Iterable[str], negative: Iterable[str], settings: Settings) -> Trained:
    """A classifier that tells `positive` texts from `negative` ones. Equal texts count once for each side.

    Raises `BadInput` where either has too few documents to learn from or to judge on, or where half of either are
    on the other side, too.
    """
    digests = TextDigest(), TextDigest()
    learnt, judged = _Sample([], []), _Sample([], [])
    sides: list[set[bytes]] = []
    for good, texts, digest in ((True, positive, digests[0]), (False, negative, digests[1])):
        sides.append(set())
        for text in _distinct(digest.through(texts), sides[-1]):
            sample = judged if content_draw(text) < settings.held_out else learnt
            sample.texts.append(text)
            sample.good.append(good)
        name = "positive" if good else "negative"
        require_texts(learnt.good.count(good), _LEAST, f"the {name} text")
        require_texts(judged.good.count(good), 1, f"the {name} text that is held out")
    both, share = _shared(*sides)
    classifier = _fitted(learnt, settings)
    description = {
        "settings": {name: getattr(settings, name) for name in Settings.__slots__},
        "positive": digests[0].as_json(),
        "negative": digests[1].as_json(),
    }
    found = [Judged(classifier.score(text), good, group_of(text)) for text, good in _pairs(judged)]
    report = report_of(found)
    described = replace(classifier, description=description | {"held_out": report.as_json()})
    return Trained(described, report, *telling_runs(learnt.texts, learnt.sides, described), both, share)


def _pairs(sample: _Sample) -> Iterator[tuple[str, bool]]:
    return zip(sample.texts, sample.good, strict=True)


def _shared(positive: set[bytes], negative: set[bytes]) -> tuple[int, float]:
    """How many documents are on both sides, and their share of the smaller one. Raises `BadInput` for too many."""
    both = len(positive & negative)
    share = both / min(len(positive), len(negative))
    if share >= _SAME_AT_MOST:
        raise BadInput(
            f"{both:,} of {len(positive):,} different positive and {len(negative):,} negative documents are the "
            f"same ({share:.0%} of the smaller side): what is good and bad teaches nothing; name different text"
        )
    return both, share


def _distinct(texts: Iterable[str], seen: set[bytes]) -> Iterator[str]:
    for text in texts:
        if (key := hashlib.sha256(text.encode()).digest()) not in seen:
            seen.add(key)
            yield text[:_LONGEST_TEXT]


def _fitted(sample: _Sample, settings: Settings) -> Classifier:
    tokens = [tokens_of(text) for text in sample.texts]
    rows: Sequence[npt.NDArray[np.int32]] = [buckets_of(own, settings.longest) for own in tokens]
    forms = np.stack([form_of(text, own) for text, own in zip(sample.texts, tokens, strict=True)])
    usual = usual_forms(forms[sample.sides], settings.seed) if settings.form else None
    seen = np.zeros((len(forms), len(NAMES))) if usual is None else usual.standardised(forms)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)])
    order = np.concatenate(
        [permutation(key_of(settings.seed, "epoch", epoch), len(rows)) for epoch in range(settings.epochs)]
    )
    targets = sample.sides.astype(np.float64)
    costs = 0.5 / np.where(targets > 0, targets.mean(), 1 - targets.mean())
    weights, of_form, bias = _descended(np.concatenate(rows), offsets, seen, targets, costs, order, settings.rate)
    small, step = quantised(weights)
    form = None if usual is None else Form(usual, of_form)
    return Classifier(small, step, float(bias), settings.longest, form, {})


@compiled
def _descended(buckets: Any, offsets: Any, forms: Any, targets: Any, costs: Any, order: Any, rate: float) -> Any:
    """Averaged (weights of buckets, weights of measures of form, bias) after a step for each entry of `order`."""
    weights, squares, late = np.zeros(BUCKETS), np.full(BUCKETS, 1e-8), np.zeros(BUCKETS)
    # The bias stands behind the measures of form, as that of a measure which is always 1.
    dense = np.ones((forms.shape[0], forms.shape[1] + 1))
    dense[:, :-1] = forms
    dense_weights, dense_late = np.zeros(dense.shape[1]), np.zeros(dense.shape[1])
    dense_squares = np.full(dense.shape[1], 1e-8)
    for turn in range(order.size):
        document = order[turn]
        own = buckets[offsets[document] : offsets[document + 1]]
        if own.size == 0:
            continue
        size = 1 / np.sqrt(own.size)
        value = (dense[document] * dense_weights).sum()
        for bucket in own:
            value += weights[bucket] * size
        wrong = costs[document] * (1 / (1 + np.exp(-min(max(value, -500.0), 500.0))) - targets[document])
        for bucket in own:
            gradient = wrong * size
            squares[bucket] += gradient * gradient
            change = rate * gradient / np.sqrt(squares[bucket])
            weights[bucket] -= change
            late[bucket] += change * turn
        gradients = wrong * dense[document]
        dense_squares += gradients * gradients
        changes = rate * gradients / np.sqrt(dense_squares)
        dense_weights -= changes
        dense_late += changes * turn
    # A change in turn t is missing from the first t of the averaged weights.
    averaged = dense_weights + dense_late / order.size
    return weights + late / order.size, averaged[:-1], averaged[-1]
