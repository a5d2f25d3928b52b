"""Which forms good text has: how far from all of them another text stands.

Good text comes in several forms (an article, a list, a program, a verse in another script), so the measures of
`form.py` are grouped around prototypes by k-means (Lloyd 1982, begun as by Arthur & Vassilvitskii 2007). Two things
make a form strange: it is far from every prototype, or it repeats more than good text does. Both limits are those
of split conformal prediction (Vovk et al. 2005): they are set on good text that had no part in the prototypes, so
that of further good text from the same sources no more than 1 in 100 is expected beyond them. Bad text has no say,
and so a kind of it that nobody has shown is found as well as one that was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.counter_random import draw_u64, key_of, permutation
from stoker.data.kernels import compiled
from stoker.data.quality.form import NAMES, REPETITION

Floats = npt.NDArray[np.float64]
BEYOND = 0.01
"""Share of good text that may be found strange: half by its distance, half by what it repeats."""
LEAST = math.ceil(4 / BEYOND)
"""Good documents below which no limit can be set: each half of `BEYOND` needs 2 / `BEYOND` of them to stand in, and
the prototypes take as many."""
_PROTOTYPES = 64
_PER_PROTOTYPE = 20
_ROUNDS = 12
_FARTHEST = 4.0
"""Measures are cut off at so many spreads from the centre, so that one alone does not decide."""
_LEAST_SPREAD = 0.02
_STEEPNESS = 16


@dataclass(frozen=True)
class UsualForms:
    """The forms of the good text that was learnt from."""

    centre: Floats
    """Median of each measure [measures]."""
    spread: Floats
    """Half of what lies between the 16th and the 84th percentile [measures]."""
    prototypes: Floats
    """Standardised [prototypes, measures]."""
    radii: Floats
    """Root mean square distance of the documents of each prototype [prototypes]."""
    distance: float
    """From the nearest prototype in its radii, beyond which a form is strange."""
    repetition: float
    """Spreads above the centre beyond which repetition is strange."""

    def standardised(self, forms: Floats) -> Floats:
        """Forms [..., measures] in spreads from the centre, cut off at 4, over 4: -1 to 1."""
        found: Floats = np.clip((forms - self.centre) / self.spread, -_FARTHEST, _FARTHEST) / _FARTHEST
        return found

    def strangeness(self, form: Floats) -> float:
        """How strange a form [measures] is; 1 at the limit."""
        near = _nearest(self.standardised(form)[None], self.prototypes, self.radii)[1][0]
        repeated = ((form - self.centre) / self.spread)[REPETITION].max()
        return max(float(near) / self.distance, float(repeated) / self.repetition)

    def likelihood(self, form: Floats) -> float:
        """What the score of a text of this form is multiplied by: 1 for a usual one, 0.5 at the limit, then 0."""
        return 1 / (1 + min(max(self.strangeness(form), 0.0), 2.0) ** _STEEPNESS)


def usual_forms(forms: Floats, seed: int) -> UsualForms | None:
    """The forms of good documents [documents, measures]; None where there are fewer than `LEAST`."""
    if len(forms) < LEAST:
        return None
    centre = np.median(forms, axis=0)
    low, high = np.percentile(forms, [16, 84], axis=0)
    spread = np.maximum((high - low) / 2, _LEAST_SPREAD)
    plain = UsualForms(centre, spread, np.empty((0, len(NAMES))), np.empty(0), 1.0, 1.0)
    order = permutation(key_of(seed, "halves of good text"), len(forms))
    grouped, judged = (order[start::2] for start in (0, 1))
    small = plain.standardised(forms)
    prototypes = _prototypes(small[grouped], seed)
    radii = _radii(small[grouped], prototypes)
    distance = _limit(_nearest(small[judged], prototypes, radii)[1])
    repetition = _limit(((forms[judged] - centre) / spread)[:, REPETITION].max(axis=1))
    # Good text that is all of one form would leave no room at all.
    return UsualForms(centre, spread, prototypes, radii, max(distance, 1.0), max(repetition, 1.0))


def _limit(values: Floats) -> float:
    """What a further value lies above with a chance of half of `BEYOND` at most, where all are alike."""
    return float(np.sort(values)[math.ceil((len(values) + 1) * (1 - BEYOND / 2)) - 1])


def _prototypes(points: Floats, seed: int) -> Floats:
    """Centres of groups of `points` [points, measures]: [prototypes, measures]."""
    count = min(_PROTOTYPES, len(points) // _PER_PROTOTYPE)
    draws = draw_u64(key_of(seed, "prototypes"), np.arange(count, dtype=np.uint64)) / 2**64
    found = points[:1].copy()
    for draw in draws[1:].tolist():
        sums = np.cumsum(_nearest(points, found, np.ones(len(found)))[1] ** 2)
        chosen = min(int(np.searchsorted(sums, draw * sums[-1], side="right")), len(points) - 1)
        found = np.concatenate([found, points[chosen : chosen + 1]])
    for _ in range(_ROUNDS):
        own = _nearest(points, found, np.ones(len(found)))[0]
        for number in range(len(found)):
            if (own == number).any():
                found[number] = points[own == number].mean(axis=0)
    return found


def _radii(points: Floats, prototypes: Floats) -> Floats:
    """Of each prototype; of one with few documents the median, and of none less than half of that."""
    own, distances = _nearest(points, prototypes, np.ones(len(prototypes)))
    counts = np.bincount(own, minlength=len(prototypes))
    means = np.sqrt(np.bincount(own, distances**2, len(prototypes)) / np.maximum(counts, 1))
    usual = float(np.median(means[counts >= _PER_PROTOTYPE // 4])) or 1.0
    return np.maximum(np.where(counts >= _PER_PROTOTYPE // 4, means, usual), usual / 2)


@compiled
def _nearest(points: Any, prototypes: Any, radii: Any) -> Any:
    """(nearest prototype, distance from it in its radii) of each point."""
    own, distances = np.zeros(len(points), np.int64), np.full(len(points), np.inf)
    for i in range(len(points)):
        for j in range(len(prototypes)):
            total = 0.0
            for k in range(points.shape[1]):
                total += (points[i, k] - prototypes[j, k]) ** 2
            far = np.sqrt(total) / radii[j]
            if far < distances[i]:
                own[i], distances[i] = j, far
    return own, distances
