"""Published rules for Chinese web pages.

ChineseWebText: Chen et al. 2023 (arXiv 2311.01149), the figures of its preprocessing stage. Its list of sensitive
words (see `data.cleaning.unsafe`) and its removal of all traditional text are not taken over.

FineWeb2: Penedo et al. 2025 (arXiv 2506.20920), the figures that its pipeline derives for Mandarin in Han
characters. Rules about runs of words need the word segmentation they were derived with and are not taken over.
"""

from __future__ import annotations

from typing import Literal

from stoker.data.filters.rule import Rule


def _rule(
    reason: str, measure: str, drops: Literal["above", "below"], threshold: float, source: str, meaning: str
) -> Rule:
    return Rule(reason, f"filter.{measure}", drops, threshold, ("prose",), ("zh",), source, meaning)


_CHEN = "Chen et al. 2023"
_PENEDO = "Penedo et al. 2025"

CHINESEWEBTEXT: tuple[Rule, ...] = (
    _rule("chinesewebtext_short", "characters", "below", 200, _CHEN, "fewer than 200 characters"),
    _rule("chinesewebtext_lines", "mean_line_length", "below", 10, _CHEN, "the mean line is under 10 characters"),
    _rule("chinesewebtext_han", "han_share", "below", 0.3, _CHEN, "under 30% of the characters are Chinese"),
    _rule(
        "chinesewebtext_repetition",
        "repeated_13_character_share",
        "above",
        0.5,
        _CHEN,
        "over half of the runs of 13 characters occur more than once",
    ),
)
FINEWEB2_CHINESE: tuple[Rule, ...] = (
    _rule(
        "fineweb2_line_ends",
        "sentence_line_share",
        "below",
        0.106,
        _PENEDO,
        "under 10.6% of the lines end a sentence",
    ),
    _rule(
        "fineweb2_lines", "duplicate_line_share", "above", 0.287, _PENEDO, "over 28.7% of the lines are repeated"
    ),
    _rule("fineweb2_stop_words", "chinese_stop_words", "below", 2, _PENEDO, "fewer than 2 of 22 stop words"),
)
