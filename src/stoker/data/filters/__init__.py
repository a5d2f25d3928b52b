"""Filters: which documents are not worth training on, and why. What is asked depends on the kind of the source.

The rules are meant for junk, not for taste: short texts, verse, tables among prose and text full of special
characters pass. Every threshold was set on real text of its kind so that well under 2% of it is dropped.
"""

from __future__ import annotations

from stoker.data.filters.code import code_rejection
from stoker.data.filters.mathematics import mathematics_rejection
from stoker.data.filters.prose import prose_rejection
from stoker.recipe import Cleaning, Kind

__all__ = ["REASONS", "rejection"]

REASONS: dict[str, str] = {
    # every kind, whether or not data.cleaning.filters is on
    "empty": "nothing but blanks is left after cleaning",
    "too_short": "fewer characters than data.cleaning.minimum_characters",
    "too_large": "more bytes than data.cleaning.maximum_document_bytes",
    # every kind
    "replacement_characters": "over 1 in 200 characters is U+FFFD or lost for good: the text was decoded wrongly",
    "repetition": "most of the text is the same few lines, phrases or characters over and over",
    # prose
    "mojibake": "the text was decoded in a wrong encoding and cannot be repaired with certainty",
    "markup": "over a third of the text is HTML tags and entities",
    "symbols": "hardly any letters: most of the text is symbols and punctuation",
    "numbers": "hardly any letters: most of the text is digits",
    "word_length": "the mean word is shorter than 2 or longer than 12 letters (scripts with spaces only)",
    "boilerplate": "advertising or page furniture: many stock phrases for the length of the text",
    "links": "over four fifths of the text is web addresses",
    "no_function_words": "a long text without the commonest words of its language: a list of keywords or gibberish",
    # code
    "generated": "the head of the file says that a program wrote it",
    "minified": "code without the blanks and line ends of source that people write",
    "long_lines": "most of the file stands in lines of over 1000 characters",
    "binary_like": "most of the file is encoded bytes (base64, hexadecimal), not code",
    "data_table": "most of the file is numbers",
}
"""Reason codes that `rejection` gives, with their meaning."""


def rejection(text: str, kind: Kind, language: str | None, settings: Cleaning) -> str | None:
    """Why the cleaned `text` is dropped (a key of `REASONS`), or None when it is kept."""
    if not text or text.isspace():
        return "empty"
    if len(text) < settings.minimum_characters:
        return "too_short"
    limit = settings.maximum_document_bytes
    if len(text) > limit or (4 * len(text) > limit and len(text.encode()) > limit):
        return "too_large"
    if not settings.filters:
        return None
    if kind == "code":
        return code_rejection(text)
    if kind == "mathematics":
        return mathematics_rejection(text)
    return prose_rejection(text, language)
