"""What of a text can be measured, and how the text of some steps differs from that of a run's other steps."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stoker.diagnosis.recent_past import deviation
from stoker.diagnosis.text_at import Passage

MOST_OF_A_FEATURE = 12.0
"""Nats: one feature alone says no more."""
_TELLING = 2.0
_CHARACTERS = 2000
_FEWEST_CHARACTERS = 12
_LEARNT = ("surprise", "script")
"""Features that depend on a model of usual text."""
_GRAIN = 1.5
"""Characters of a passage that are in no deviation: one that was cut is not garbled."""
_REPEATED = 12
"""Characters in a row that do not come twice by chance."""
_MARKUP = re.compile(r"</?[a-zA-Z!][^<>]{0,300}>|&(?:#x?[0-9a-fA-F]+|[a-zA-Z]{2,8});")
_MISREAD = re.compile(r"[\u00c2\u00c3\u00e2][\u0080-\u00bf\u20ac\u2122\u0153\u201a-\u201e]")
_WORD = re.compile(r"\S{3,}")
_JUMBLED = re.compile(r"\w[^\w\s'’.,:;/@-]+\w|[^\W\d_]\d+[^\W\d_]|[a-z][A-Z][a-z]*[A-Z]|[A-Z][a-z]+[A-Z][a-z]*\d")
_LEAST = {
    "markup": 0.004, "damage": 0.004, "jumble": 0.02, "script": 0.05, "surprise": 0.15, "repetition": 0.05,
    "evenness": 0.15, "respelling": 0.02, "sameness": 0.02,
}  # fmt: skip
"""Deviations below these are not told apart from none: the grain of a short passage."""
WORDS = {
    "markup": "share of HTML tags and entities in the text",
    "damage": "share of replacement, control and misread characters in the text",
    "jumble": "share of words that mix letters, digits and signs",
    "script": "share of characters of scripts that the source does not use",
    "surprise": "nats a letter under a model of the run's other text",
    "repetition": "share of the text that repeats itself within a passage",
    "evenness": "entropy of the letters, in nats",
    "respelling": "share of tokens that the tokenizer would not make of their text",
    "sameness": "share of the step's passages that come twice in it",
}
"""Each feature as evidence tells it."""


@dataclass(frozen=True)
class Contrast:
    """How one feature of suspected passages stands out from other text of the same source."""

    feature: str
    expected: float
    observed: float
    step: int
    score: float
    """Nats: the sum of what single passages say (Student's t with 3 degrees of freedom, and no more than as many
    usual passages can tell), less the choice among those looked at."""
    passages: tuple[Passage, ...]
    """Those that stand out."""


class Spelling:
    """How often characters follow each other in given text: a trigram model with add-one smoothing, backed off."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._threes: Counter[str] = Counter()
        self._twos: Counter[str] = Counter()
        self._ones: Counter[str] = Counter()
        for text in map(_letters, texts):
            self._threes.update(text[i : i + 3] for i in range(len(text) - 2))
            self._twos.update(text[i : i + 2] for i in range(len(text) - 1))
            self._ones.update(text)
        self._all = max(sum(self._ones.values()), 1)

    def surprise(self, text: str) -> float:
        """Mean nats a letter, or space between words; 0 where there are hardly any."""
        text = _letters(text)
        if len(text) < _FEWEST_CHARACTERS:
            return 0.0
        total, characters = 0.0, max(len(self._ones), 2)
        for i in range(2, len(text)):
            one = (self._ones[text[i]] + 1) / (self._all + 10 * characters)
            two = (self._twos[text[i - 1 : i + 1]] + 4 * one) / (self._ones[text[i - 1]] + 4)
            three = (self._threes[text[i - 2 : i + 1]] + 2 * two) / (self._twos[text[i - 2 : i]] + 2)
            total -= math.log(three)
        return total / max(len(text) - 2, 1)


def _letters(text: str) -> str:
    """Only which letters follow each other: figures and signs are of no language."""
    return " ".join("".join(one if one.isalpha() else " " for one in text).lower().split())


def contrasts(suspected: Sequence[Passage], usual: Sequence[Passage]) -> dict[str, Contrast]:
    """By feature: how `suspected` passages stand out from `usual` ones of their source (of all, where few)."""
    suspected = [one for one in suspected if len(one.text) >= _FEWEST_CHARACTERS]
    usual = [one for one in usual if len(one.text) >= _FEWEST_CHARACTERS]
    found: dict[str, list[_Judged]] = {}
    for source in sorted({one.source for one in suspected}):
        same = [one for one in usual if one.source == source]
        own = [one for one in suspected if one.source == source]
        for feature, judged in _of_source(own, same if len(same) >= 8 else usual).items():
            found.setdefault(feature, []).extend(judged)
    return {feature: _contrast(feature, judged) for feature, judged in found.items() if judged}


@dataclass(frozen=True)
class _Judged:
    score: float
    """Nats that this passage alone speaks for the feature, at most what so many usual passages can tell."""
    expected: float
    observed: float
    passage: Passage


def _of_source(own: Sequence[Passage], usual: Sequence[Passage]) -> dict[str, list[_Judged]]:
    """For each feature how each passage stands out. Letters are learnt from half of the usual ones, and judged by
    the others."""
    if len(usual) < 8:
        return {}
    learnt, held = usual[::2], usual[1::2]
    spelling = Spelling([one.text[:_CHARACTERS] for one in learnt])
    scripts = _mean_scripts(learnt)
    doubled = Counter(one.text for one in own)
    known = [features(one, spelling, scripts, False) for one in held]
    more = known + [features(one, spelling, scripts, False) for one in learnt]
    judged: dict[str, list[_Judged]] = {}
    for one in own:
        for feature, value in features(one, spelling, scripts, doubled[one.text] > 1).items():
            past = np.array([row[feature] for row in (known if feature in _LEARNT else more)])
            grain = _GRAIN / len(one.text) if feature in ("markup", "damage") else 0.0
            middle, spread = float(np.median(past)), max(deviation(past), _LEAST[feature], grain)
            bar = max(float(np.quantile(past, 0.95)), middle + 2 * spread)
            z = max(0.0, value - bar) / spread
            score = min(2 * math.log1p(z * z / 3), math.log(past.size + 1))
            judged.setdefault(feature, []).append(_Judged(score, middle, value, one))
    return judged


def _contrast(feature: str, judged: Sequence[_Judged]) -> Contrast:
    """Of all passages together: less the number of ways to choose those that stand out."""
    worst = max(judged, key=lambda one: (one.score, one.observed))
    telling = sorted((one for one in judged if one.score > _TELLING), key=lambda one: -one.score)
    # Stretches of one document are alike: only one of them counts.
    documents = {(one.passage.source, one.passage.document) for one in judged}
    counted: dict[tuple[str, int], float] = {}
    for one in telling:
        counted.setdefault((one.passage.source, one.passage.document), one.score)
    score = sum(counted.values()) - math.log(math.comb(len(documents), len(counted)))
    return Contrast(
        feature,
        worst.expected,
        worst.observed,
        worst.passage.step,
        min(score, MOST_OF_A_FEATURE),
        tuple(one.passage for one in telling),
    )


def features(passage: Passage, spelling: Spelling, scripts: Mapping[str, float], doubled: bool) -> dict[str, float]:
    """Every feature of a passage; `scripts` are the usual shares of its source."""
    text = passage.text[:_CHARACTERS]
    length = max(len(text), 1)
    words = _WORD.findall(text)
    own = _scripts(text)
    pieces = Counter(text[i : i + _REPEATED] for i in range(0, max(len(text) - _REPEATED, 1)))
    return {
        "markup": sum(len(found) for found in _MARKUP.findall(text)) / length,
        "damage": (sum(map(_is_damage, text)) + 2 * len(_MISREAD.findall(text))) / length,
        "jumble": sum(1 for word in words if _JUMBLED.search(word)) / max(len(words), 1),
        "script": sum(max(0.0, share - scripts.get(name, 0.0)) for name, share in own.items()),
        "surprise": spelling.surprise(text),
        "repetition": 1 - len(pieces) / max(sum(pieces.values()), 1),
        "evenness": _entropy(text),
        "respelling": passage.respelled,
        "sameness": float(doubled),
    }


def _is_damage(character: str) -> bool:
    if character == "\N{REPLACEMENT CHARACTER}":
        return True
    return character not in "\n\r\t" and unicodedata.category(character) in ("Cc", "Co", "Cn", "Cs")


def _entropy(text: str) -> float:
    counts = np.array(list(Counter(text).values()), dtype=np.float64)
    shares = counts / counts.sum() if counts.size else counts
    return float(-(shares * np.log(shares)).sum())


def _scripts(text: str) -> dict[str, float]:
    """Shares of letters by script: the first word of their Unicode names; all else counts as nothing."""
    counts = Counter(unicodedata.name(one, "unnamed ").split()[0] for one in text if one.isalpha())
    total = max(sum(counts.values()), 1)
    return {name: count / total for name, count in counts.items()}


def _mean_scripts(passages: Sequence[Passage]) -> dict[str, float]:
    each = [_scripts(one.text[:_CHARACTERS]) for one in passages]
    return {name: sum(one.get(name, 0.0) for one in each) / len(each) for name in {n for one in each for n in one}}
