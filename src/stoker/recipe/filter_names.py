"""Names of the rules of filters, for the recipe to know a wrong one. What they say is in `stoker.data.filters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

RuleSet = Literal["stoker", "gopher", "c4", "fineweb", "chinesewebtext", "fineweb2_chinese"]

LANGUAGE_RULES: tuple[str, ...] = ("wrong_language",)
"""Those of the identification of languages."""

RULES: Mapping[RuleSet, tuple[str, ...]] = {
    "stoker": (
        "generated",
        "replacement_characters",
        "mojibake",
        "unassigned",
        "generator_names",
        "digests",
        "binary_like",
        "data_table",
        "minified",
        "long_lines",
        "numbers",
        "symbols",
        "short_words",
        "long_words",
        "markup",
        "links",
        "boilerplate",
        "repeated_characters",
        "repeated_lines",
        "repeated_phrases",
        "commonest_phrase",
        "wrong_script",
        "misread_script",
        "no_function_words",
    ),
    "gopher": (
        "gopher_few_words",
        "gopher_many_words",
        "gopher_short_words",
        "gopher_long_words",
        "gopher_hashes",
        "gopher_ellipses",
        "gopher_bullets",
        "gopher_ellipsis_lines",
        "gopher_without_letters",
        "gopher_stop_words",
        "gopher_lines",
        "gopher_paragraphs",
        "gopher_line_characters",
        "gopher_paragraph_characters",
        "gopher_commonest_2",
        "gopher_commonest_3",
        "gopher_commonest_4",
        "gopher_repeated_5",
        "gopher_repeated_6",
        "gopher_repeated_7",
        "gopher_repeated_8",
        "gopher_repeated_9",
        "gopher_repeated_10",
    ),
    "c4": (
        "c4_lorem_ipsum",
        "c4_curly_bracket",
        "c4_few_sentences",
    ),
    "fineweb": (
        "fineweb_line_ends",
        "fineweb_line_characters",
        "fineweb_short_lines",
    ),
    "chinesewebtext": (
        "chinesewebtext_short",
        "chinesewebtext_lines",
        "chinesewebtext_han",
        "chinesewebtext_repetition",
    ),
    "fineweb2_chinese": (
        "fineweb2_line_ends",
        "fineweb2_lines",
        "fineweb2_stop_words",
    ),
}
"""Reasons of the rules of each set."""
EDITS: tuple[str, ...] = (
    "c4_line_end",
    "c4_line_words",
    "c4_line_long_word",
    "c4_line_javascript",
    "c4_line_policy",
    "c4_citations",
)
"""Edits of the set `c4`: they cut text out and have no threshold."""
UNSAFE, CONTAMINATED = "unsafe", "contaminated"
"""Reasons of rules in no set, in force by `data.cleaning.unsafe` and `data.cleaning.decontaminate`."""
