"""How well a classifier tells good text from bad: on text that it was not trained on, group by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.quality.texts import TextGroup


@dataclass(frozen=True, slots=True)
class Judged:
    """A text with its score, the side it is really on, and the group it is counted in."""

    score: float
    good: bool
    group: TextGroup


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Of the texts of one group."""

    group: str
    """`all`, a kind of text, or a language."""
    good: int
    bad: int
    """How many texts of each side."""
    accuracy: float
    """Mean of the shares of good and of bad texts on their side of 0.5, so that neither side outweighs the other;
    where there are texts of one side only, its share."""
    auc: float | None
    """Chance that a good text scores above a bad one (area under the ROC curve); None where one side has none."""
    mean_good: float | None
    mean_bad: float | None
    """Mean scores."""


@dataclass(frozen=True, slots=True)
class Report:
    """Results on all held-out text, by kind and by language."""

    groups: tuple[GroupResult, ...]

    @property
    def whole(self) -> GroupResult:
        """Of all of it."""
        return self.groups[0]

    def as_json(self) -> list[dict[str, Any]]:
        """As plain dictionaries."""
        return [asdict(group) for group in self.groups]


def report_of(judged: Sequence[Judged]) -> Report:
    """The report of some texts; kinds and languages in the order of their number."""
    groups = [_result("all", judged)]
    for names in ([one.group.kind for one in judged], [one.group.language for one in judged]):
        for name in sorted(set(names), key=_rarity(names)):
            if not any(result.group == name for result in groups):  # `code` is a kind and a label of language
                groups.append(_result(name, [one for one, own in zip(judged, names, strict=True) if own == name]))
    return Report(tuple(groups))


def _rarity(names: Sequence[str]) -> Callable[[str], tuple[int, str]]:
    """Puts the commonest name first."""
    counts = Counter(names)
    return lambda name: (-counts[name], name)


def _result(name: str, judged: Iterable[Judged]) -> GroupResult:
    own = list(judged)
    scores = np.asarray([one.score for one in own])
    good = np.asarray([one.good for one in own], np.bool_)
    rights = [(scores[good] > 0.5), (scores[~good] < 0.5)]
    sides = [float(right.mean()) for right in rights if len(right)]
    return GroupResult(
        name,
        int(good.sum()),
        int((~good).sum()),
        sum(sides) / len(sides),
        area_under_curve(scores, good),
        float(scores[good].mean()) if good.any() else None,
        float(scores[~good].mean()) if not good.all() else None,
    )


def area_under_curve(scores: npt.NDArray[np.float64], good: npt.NDArray[np.bool_]) -> float | None:
    """Chance that one of the `good` scores above one of the others, ties counting half; None without both.

    The statistic of Mann and Whitney (1947) from ranks: scores and good are [texts].
    """
    count, others = int(good.sum()), int((~good).sum())
    if not count or not others:
        return None
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[good].sum() - count * (count + 1) / 2) / (count * others))
