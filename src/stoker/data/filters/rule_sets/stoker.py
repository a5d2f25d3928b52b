"""Our own rules, in force by default.

They are meant for junk, not for taste: short texts, verse, tables among prose and text full of special characters
pass. Thresholds were set on real text of each kind so that well under 2% of it is dropped.
"""

from __future__ import annotations

from typing import Literal

from stoker.data.filters.rule import EVERY_KIND, OWN, Rule
from stoker.recipe import Kind

_PROSE: tuple[Kind, ...] = ("prose", "dialogue")
_CODE: tuple[Kind, ...] = ("code",)
_MATHEMATICS: tuple[Kind, ...] = ("mathematics",)


def _rule(
    reason: str,
    measure: str,
    drops: Literal["above", "below"],
    threshold: float,
    kinds: tuple[Kind, ...],
    meaning: str,
    languages: tuple[str, ...] | None = None,
) -> Rule:
    return Rule(reason, f"filter.{measure}", drops, threshold, kinds, languages, OWN, meaning)


_PHRASES = "most of the text is the same phrase over and over"
_LINES = "most of the text is the same few lines over and over"

STOKER: tuple[Rule, ...] = (
    _rule("generated", "says_generated", "above", 0.5, _CODE, "the head of the file says that a program wrote it"),
    _rule(
        "replacement_characters",
        "lost_share",
        "above",
        0.005,
        EVERY_KIND,
        "over 1 in 200 characters is U+FFFD: the text was decoded wrongly",
    ),
    _rule(
        "mojibake",
        "mojibake_share",
        "above",
        0.02,
        _PROSE,
        "the text was decoded in a wrong encoding and cannot be repaired with certainty",
    ),
    _rule("unassigned", "unassigned_share", "above", 0.01, _CODE, "bytes that are no text stand in the file"),
    _rule(
        "generator_names",
        "generator_name_ratio",
        "above",
        0.1,
        _CODE,
        "a program wrote the file: names that only generators give stand in it line after line",
    ),
    _rule("digests", "digest_share", "above", 0.15, _CODE, "a lock file: digests and addresses of packages"),
    _rule("binary_like", "encoded_share", "above", 0.4, _CODE, "much of the file is encoded bytes, not code"),
    _rule("data_table", "digit_share", "above", 0.5, _CODE, "most of the file is numbers"),
    _rule("minified", "dense_line_length", "above", 300, _CODE, "code without the blanks and line ends of source"),
    _rule("long_lines", "long_line_share", "above", 0.5, _CODE, "most of the file stands in lines of over 1000"),
    _rule("numbers", "digit_share", "above", 0.7, _PROSE, "most of the text is digits"),
    _rule("symbols", "letter_share", "below", 0.15, _PROSE, "hardly any letters: symbols, punctuation or digits"),
    _rule("short_words", "mean_word_length", "below", 2, _PROSE, "the mean word is shorter than 2 letters"),
    _rule("long_words", "mean_word_length", "above", 12, _PROSE, "the mean word is longer than 12 letters"),
    _rule("markup", "markup_share", "above", 1 / 3, _PROSE, "over a third of the text is HTML tags and entities"),
    _rule("links", "address_share", "above", 0.8, _PROSE, "over four fifths of the text is web addresses"),
    _rule(
        "boilerplate",
        "stock_phrase_share",
        "above",
        0.04,
        _PROSE,
        "advertising or page furniture: many stock phrases for the length of the text",
    ),
    _rule("repeated_characters", "long_run_share", "above", 0.3, _PROSE, "one character over and over"),
    _rule("repeated_lines", "repeated_line_share", "above", 0.6, _PROSE, _LINES),
    _rule("repeated_lines", "repeated_line_share", "above", 0.7, _MATHEMATICS, _LINES),
    _rule("repeated_lines", "repeated_line_share", "above", 0.8, _CODE, _LINES),
    _rule("repeated_phrases", "repeated_phrase_share", "above", 0.7, _PROSE, _PHRASES),
    _rule("repeated_phrases", "repeated_phrase_share", "above", 0.8, _MATHEMATICS, _PHRASES),
    _rule("commonest_phrase", "commonest_phrase_share", "above", 0.4, _PROSE, _PHRASES),
    _rule("commonest_phrase", "commonest_phrase_share", "above", 0.6, _MATHEMATICS, _PHRASES),
    _rule(
        "wrong_script",
        "foreign_script_share",
        "above",
        0.5,
        _PROSE,
        "most letters are of a script in which English is not written",
        ("en",),
    ),
    _rule(
        "wrong_script",
        "foreign_script_share",
        "above",
        0.2,
        _PROSE,
        "a fifth of the letters are of a script in which Chinese is not written, such as kana",
        ("zh",),
    ),
    _rule(
        "misread_script",
        "misread_script_share",
        "above",
        0.4,
        _PROSE,
        "beside Latin letters hardly any are Chinese: the text was decoded in a wrong encoding",
        ("zh",),
    ),
    _rule(
        "no_function_words",
        "function_word_share",
        "below",
        0.02,
        _PROSE,
        "a long text without the commonest words of English: keywords, gibberish or another language",
        ("en",),
    ),
    _rule(
        "no_function_words",
        "function_word_share",
        "below",
        0.01,
        _PROSE,
        "a long text without the commonest characters of Chinese: keywords or gibberish",
        ("zh",),
    ),
)
