"""Keeping what several generators agree on: by the answer they come to, or by saying much the same.

Of the answers to one prompt the one with most votes wins (self-consistency, Wang et al. 2023) where its share is
large enough; every answer has its reason for being kept or not.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Literal

from stoker.data.minhash import jaccard, shingle_set
from stoker.errors import BadInput

By = Literal["answer", "text"]
REASONS: Mapping[str, str] = {
    "no_answer": "no answer was found in the text",
    "outvoted": "another answer to the prompt has more votes",
    "no_agreement": "no answer to the prompt has enough votes, or two have the same number",
    "repeats_the_winner": "agrees with the answer that was kept",
}
"""Why a row is not kept."""
_ANSWERS = (
    re.compile(r"####\s*(.+)"),
    re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"),
    re.compile(r"(?i)\b(?:the )?(?:final )?answer(?: is)?\s*[:：]?\s*(.+?)[.。]?\s*$", re.MULTILINE),
    re.compile(r"答案(?:是|为)?\s*[:：]?\s*(.+?)[。.]?\s*$", re.MULTILINE),
    re.compile(r"(-?\d[\d,]*(?:\.\d+)?)"),
)
"""How answers are marked, in order of how sure a mark it is; the last takes the last number."""
_SHINGLE = 3
_WRITTEN_OUT = 400
"""Places of a number that is compared by its value; that of any other is its text."""
_EXACT = Context(prec=2 * _WRITTEN_OUT, traps=[InvalidOperation])
"""Python's own context would round to 28 digits, and take two numbers for one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of an agreement."""

    by: By = "answer"
    least_share: float = 0.5
    """Votes for an answer, of all rows of the prompt, those without an answer included: more than this or equal."""
    least_votes: int = 2
    similarity: float = 0.6
    """`text`: Jaccard similarity with the first of a group from which a text counts as saying the same."""
    pattern: str | None = None
    """`answer`: regular expression whose first group is the answer, instead of the usual marks; the last match
    counts."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What became of one row."""

    row: Mapping[str, Any]
    answer: str | None
    """As it was compared; None where there is none, or where texts were compared."""
    votes: int
    """Rows of the prompt that agree with it, itself included."""
    of: int
    """Rows of the prompt."""
    models: int
    """Different models among those that agree."""
    reason: str | None
    """Why it is not kept; None where it is."""


def vote(rows: Iterable[Mapping[str, Any]], rules: Rules) -> list[Vote]:
    """The fate of each row, in the order given. Rows have `prompt`, `text` and, if known, `model`.

    Of those that agree the first is kept. The outcome does not depend on the order of prompts. Raises `BadInput`
    where the pattern is no regular expression.
    """
    patterns = _patterns(rules.pattern)
    by_prompt: dict[str, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_prompt[str(row["prompt"])].append((place, row))
    fates: dict[int, Vote] = {}
    for own in by_prompt.values():
        answers = [_answer(str(row["text"]), patterns) if rules.by == "answer" else None for _, row in own]
        groups = _groups(answers, [str(row["text"]) for _, row in own], rules)
        fates |= _judged(own, answers, groups, rules)
    return [fates[place] for place in sorted(fates)]


def _judged(
    own: Sequence[tuple[int, Mapping[str, Any]]],
    answers: Sequence[str | None],
    groups: Sequence[int | None],
    rules: Rules,
) -> dict[int, Vote]:
    counts = Counter(group for group in groups if group is not None)
    ranked = counts.most_common(2)
    agreed = (
        bool(ranked)
        and ranked[0][1] >= max(rules.least_votes, rules.least_share * len(own))
        and (len(ranked) == 1 or ranked[0][1] > ranked[1][1])
    )
    fates: dict[int, Vote] = {}
    kept = False
    for (place, row), answer, group in zip(own, answers, groups, strict=True):
        if group is None:
            reason: str | None = "no_answer"
        elif not agreed:
            reason = "no_agreement"
        elif group != ranked[0][0]:
            reason = "outvoted"
        else:
            reason, kept = ("repeats_the_winner", True) if kept else (None, True)
        models = {
            str(other.get("model"))
            for (_, other), other_group in zip(own, groups, strict=True)
            if group is not None and other_group == group
        }
        votes = 0 if group is None else counts[group]
        fates[place] = Vote(row, answer, votes, len(own), len(models), reason)
    return fates


def _groups(answers: Sequence[str | None], texts: Sequence[str], rules: Rules) -> list[int | None]:
    """The number of the group of each row; None where it has no answer."""
    if rules.by == "answer":
        numbers: dict[str, int] = {}
        return [None if answer is None else numbers.setdefault(answer, len(numbers)) for answer in answers]
    firsts: list[Any] = []
    groups: list[int | None] = []
    for text in texts:
        shingles = shingle_set(text, _SHINGLE)
        if not len(shingles):
            groups.append(None)
            continue
        likeness = [jaccard(shingles, first) for first in firsts]
        if likeness and max(likeness) >= rules.similarity:
            groups.append(likeness.index(max(likeness)))
        else:
            groups.append(len(firsts))
            firsts.append(shingles)
    return groups


def _patterns(given: str | None) -> Sequence[re.Pattern[str]]:
    if given is None:
        return _ANSWERS
    try:
        return (re.compile(given, re.MULTILINE),)
    except re.error as error:
        raise BadInput(f"{given!r} is not a regular expression: {error}; correct it") from None


def _answer(text: str, patterns: Sequence[re.Pattern[str]]) -> str | None:
    for pattern in patterns:
        if found := pattern.findall(text):
            return normalised(found[-1] if isinstance(found[-1], str) else found[-1][0]) or None
    return None


def normalised(answer: str) -> str:
    """An answer in the form in which answers are compared: `$1,200.0` and `１２００` are both `1200`."""
    plain = unicodedata.normalize("NFKC", answer).strip().strip("$*_`\"' ")
    plain = re.sub(r"\\(?:text|mathrm|left|right|[,!;])", "", plain).rstrip(".。 ").strip("$ ").casefold()
    number = re.sub(r"(?<=\d),(?=\d{3})", "", plain)
    try:
        value = Decimal(number)
        # Written out, `1e999999` would be a million digits.
        short = value.is_finite() and abs(value.adjusted()) <= _WRITTEN_OUT
        return format(value.normalize(_EXACT), "f") if short else plain
    except InvalidOperation:
        return re.sub(r"\s+", " ", plain)
