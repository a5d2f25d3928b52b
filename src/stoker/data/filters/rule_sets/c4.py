"""The page rules of C4, for prose; its line rules are edits (`stoker.data.filters.line_edits`).

Raffel et al. 2020, *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer*
(JMLR 21, section 2.2). Its list of bad words is not taken over (see `data.cleaning.unsafe`), nor is the removal of
spans of three sentences that occur in other pages.
"""

from __future__ import annotations

from typing import Literal

from stoker.data.filters.rule import Rule


def _rule(reason: str, measure: str, drops: Literal["above", "below"], threshold: float, meaning: str) -> Rule:
    return Rule(
        f"c4_{reason}", f"filter.{measure}", drops, threshold, ("prose",), None, "Raffel et al. 2020", meaning
    )


C4: tuple[Rule, ...] = (
    _rule("lorem_ipsum", "lorem_ipsum", "above", 0.5, "the page has the placeholder text lorem ipsum"),
    _rule("curly_bracket", "curly_brackets", "above", 0.5, "the page has a curly bracket: taken for code"),
    _rule("few_sentences", "sentences", "below", 5, "fewer than 5 sentences"),
)
