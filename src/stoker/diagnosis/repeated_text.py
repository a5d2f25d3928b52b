"""Steps many of whose documents repeat themselves: their loss is low, so that nothing else shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoker.diagnosis.finding import Evidence, Finding, confidence_of
from stoker.diagnosis.recent_past import Steps
from stoker.diagnosis.remedies import remedy
from stoker.diagnosis.text_at import Stretch, Text

MEASURE = "share of the step's documents that repeat themselves"
CAUSE = "repeated_text"
_GRAM = 4
"""Tokens in a row; one that came before in the same stretch is repeated."""
_FEWEST_TOKENS = 16
_REPEATS = 0.4
"""Of a stretch's grams: tables and verse have fewer."""
_ENOUGH_STRETCHES = 10_000
"""That are read, of steps that lie evenly in the run, but at least …"""
_ENOUGH_STEPS = 64
"""… so many steps, and …"""
_MOST_STRETCHES = 100_000
"""… never more than this: of large steps then a part, evenly spaced."""
_FEWEST_STEPS = 16
_HASH_BITS, _REST = np.uint64(44), np.uint64(20)
_FACTORS = np.random.default_rng(0).integers(2**62, 2**63, _GRAM, np.uint64) * np.uint64(2) + np.uint64(1)
"""Of a gram's tokens; the highest bits of the sum of products hash it (multiply-shift, Dietzfelbinger 1996)."""
_LEAST_SCORE = 3.0
_NOTABLE, _NOTABLE_SCORE = 0.25, math.log(1000)
"""Share of a step's documents, and nats: of a thousand runs whose text is sound one has such a step by chance."""


@dataclass(frozen=True)
class _Step:
    step: int
    stretches: int
    repetitive: tuple[Stretch, ...]

    @property
    def share(self) -> float:
        return len(self.repetitive) / self.stretches


def find_repeated_text(text: Text, steps: Steps) -> list[Finding]:
    """Steps with more repetitive documents than the others by chance, as stretches of neighbours.

    A stretch of a document is repetitive when four tenths of its 4-grams of tokens came before in it. Under the
    run's own share of such stretches a step has k of its n with the likelihood of a binomial distribution; the
    score is its logarithm's distance from the share that was seen, less the logarithm of the number of steps. The
    share is first that of most steps; what stands out then is held against all others, since tables and lists are
    rare and half of the steps have none. Of steps with more stretches than there is time for a part is read.
    """
    looked = [one for one in _looked_at(text, steps) if one.stretches]
    if len(looked) < _FEWEST_STEPS:
        return []
    # Half of the steps know nothing of a fault of a few: what is usual is what most have.
    ordered = sorted(looked, key=lambda one: one.share)[: -(-len(looked) * 9 // 10)]
    usual = _usual(ordered)
    scores = [_nats(len(one.repetitive), one.stretches, usual) - math.log(len(looked)) for one in looked]
    found: list[list[tuple[_Step, float]]] = []
    for number, (one, score) in enumerate(zip(looked, scores, strict=True)):
        if score < _LEAST_SCORE:
            continue
        if found and looked[number - 1].step == found[-1][-1][0].step:
            found[-1].append((one, score))
        else:
            found.append([(one, score)])
    told = [_against_others(text, looked, group) for group in found]
    return [finding for finding in told if finding is not None]


def _against_others(text: Text, looked: Sequence[_Step], group: Sequence[tuple[_Step, float]]) -> Finding | None:
    first, last = group[0][0].step, group[-1][0].step
    others = [one for one in looked if not first <= one.step <= last]
    usual = _usual(others)
    scored = [(one, _nats(len(one.repetitive), one.stretches, usual) - math.log(len(looked))) for one, _ in group]
    return _finding(text, scored, usual) if max(score for _, score in scored) >= _LEAST_SCORE else None


def _usual(steps: Sequence[_Step]) -> float:
    return (sum(len(one.repetitive) for one in steps) + 1) / (sum(one.stretches for one in steps) + 2)


def _looked_at(text: Text, steps: Steps) -> Iterable[_Step]:
    if not steps.size:
        return
    each = max(len(text.spans(int(steps[0]))), 1)
    number = min(steps.size, max(_ENOUGH_STRETCHES // each, _ENOUGH_STEPS))
    for step in steps[np.linspace(0, steps.size - 1, number).astype(int)].tolist():
        read = text.stretches(step, _MOST_STRETCHES // number)
        own = [one for one in read if one.ids.size >= _FEWEST_TOKENS]
        repetitive = repetitions([one.ids for one in own]) > _REPEATS
        yield _Step(step, len(own), tuple(own[place] for place in np.flatnonzero(repetitive).tolist()))


def repetitions(stretches: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float64]:
    """Of each of fewer than 2^20 stretches of token ids the share of its 4-grams that came before in it.

    All are sorted at once, by the stretch and 44 bits of a hash: two of the thousand grams of a stretch share those
    by chance in one stretch of 30 million.
    """
    sizes = np.array([ids.size for ids in stretches], np.int64)
    grams = np.maximum(sizes - _GRAM + 1, 0)
    if not grams.sum():
        return np.zeros(sizes.size)
    ids = np.concatenate([*stretches, np.zeros(_GRAM - 1, np.int64)]).view(np.uint64)
    keys = ids[: 1 - _GRAM] * _FACTORS[0]
    for place in range(1, _GRAM):
        keys += ids[place : ids.size + place + 1 - _GRAM] * _FACTORS[place]
    keys >>= _REST
    keys |= np.repeat(np.arange(sizes.size, dtype=np.uint64) << _HASH_BITS, sizes)
    # A gram begins at each place of a stretch but its last three.
    begins = np.ones(keys.size, bool)
    for place in range(1, _GRAM):
        begins[(np.cumsum(sizes) - place)[sizes >= place]] = False
    ordered = np.sort(keys[begins])
    again = ordered[1:] == ordered[:-1]
    repeated = np.bincount((ordered[1:][again] >> _HASH_BITS).astype(np.int64), minlength=sizes.size)
    return np.asarray(repeated / np.maximum(grams, 1))


def _nats(found: int, of: int, usual: float) -> float:
    """Of the binomial likelihood of the share that was found over that of the usual one; 0 where it is no more."""
    share = found / of
    if share <= usual:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - usual)) if share < 1 else 0.0
    return of * (share * math.log(share / usual) + rest)


def _finding(text: Text, group: Sequence[tuple[_Step, float]], usual: float) -> Finding:
    (first, _), (last, _) = group[0], group[-1]
    worst, score = max(group, key=lambda one: one[1])
    stretches = [one for own, _ in group for one in own.repetitive]
    samples = sorted({one.span.sample for one in stretches})
    return Finding(
        kind="repeated_data",
        cause=CAUSE,
        severity="warning" if worst.share > _NOTABLE and score > _NOTABLE_SCORE else "note",
        first_step=first.step,
        last_step=last.step,
        documents=tuple((sample, sample) for sample in samples),
        names=tuple(text.names([(one.span.source, one.span.document) for one in stretches])),
        sources=tuple(dict.fromkeys(one.span.source for one in stretches)),
        confidence=confidence_of(score, _LEAST_SCORE),
        evidence=(Evidence(measure=MEASURE, expected=usual, observed=worst.share, step=worst.step),),
        remedy=remedy("leave_out_documents", step=first.step),
    )
