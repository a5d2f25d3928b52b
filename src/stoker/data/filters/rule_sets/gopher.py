"""The quality and repetition rules of MassiveText, for prose.

Rae et al. 2021, *Scaling Language Models: Methods, Analysis & Insights from Training Gopher* (arXiv 2112.11446),
appendix A1.1 and table A1. Words stand between blanks. Where the paper leaves it open, what is repeated is what
occurred before: the first occurrence is not counted.
"""

from __future__ import annotations

from typing import Literal

from stoker.data.filters.rule import Rule

_SOURCE = "Rae et al. 2021"


def _rule(
    reason: str,
    measure: str,
    drops: Literal["above", "below"],
    threshold: float,
    meaning: str,
    english: bool = False,
) -> Rule:
    languages = ("en",) if english else None
    return Rule(f"gopher_{reason}", f"filter.{measure}", drops, threshold, ("prose",), languages, _SOURCE, meaning)


_COMMONEST = {2: 0.20, 3: 0.18, 4: 0.16}
_REPEATED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}

GOPHER: tuple[Rule, ...] = (
    _rule("few_words", "spaced_words", "below", 50, "fewer than 50 words"),
    _rule("many_words", "spaced_words", "above", 100_000, "more than 100,000 words"),
    _rule("short_words", "spaced_word_length", "below", 3, "the mean word is shorter than 3 characters"),
    _rule("long_words", "spaced_word_length", "above", 10, "the mean word is longer than 10 characters"),
    _rule("hashes", "hash_ratio", "above", 0.1, "over 1 hash sign to 10 words"),
    _rule("ellipses", "ellipsis_ratio", "above", 0.1, "over 1 ellipsis to 10 words"),
    _rule("bullets", "bullet_line_share", "above", 0.9, "over 90% of the lines begin with a bullet"),
    _rule("ellipsis_lines", "ellipsis_line_share", "above", 0.3, "over 30% of the lines end in an ellipsis"),
    _rule("without_letters", "word_with_letter_share", "below", 0.8, "over 20% of the words have no letter"),
    _rule("stop_words", "english_stop_words", "below", 2, "fewer than 2 of 8 English stop words", english=True),
    _rule("lines", "duplicate_line_share", "above", 0.30, "over 30% of the lines are repeated"),
    _rule("paragraphs", "duplicate_paragraph_share", "above", 0.30, "over 30% of the paragraphs are repeated"),
    _rule("line_characters", "duplicate_line_character_share", "above", 0.20, "over 20% is repeated lines"),
    _rule(
        "paragraph_characters",
        "duplicate_paragraph_character_share",
        "above",
        0.20,
        "over 20% is repeated paragraphs",
    ),
    *(
        _rule(
            f"commonest_{n}",
            f"commonest_{n}_words_share",
            "above",
            most,
            f"over {most:.0%} is the commonest run of {n} words",
        )
        for n, most in _COMMONEST.items()
    ),
    *(
        _rule(
            f"repeated_{n}",
            f"repeated_{n}_words_share",
            "above",
            most,
            f"over {most:.0%} is repeated runs of {n} words",
        )
        for n, most in _REPEATED.items()
    ),
)
