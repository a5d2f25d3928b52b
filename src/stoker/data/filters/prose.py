"""What rejects a document of prose.

Repetition follows Gopher (Rae et al. 2021, table A1) in kind: repeated lines, repeated and commonest n-grams;
n-grams are of words, or of characters in scripts without spaces, and thresholds leave tables and verse alone.
"""

from __future__ import annotations

import re

from stoker.data import mojibake
from stoker.data.filters.measures import (
    Characters,
    characters,
    commonest_share,
    lost_share,
    repeated_line_share,
    repeated_share,
    share_matched,
    words,
)
from stoker.data.filters.phrases import stock_phrases
from stoker.data.minhash import Hashes

_TAG = re.compile(
    r"</?(?:a|abbr|b|body|br|button|center|div|em|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img|input"
    r"|label|li|link|meta|nav|ol|option|p|script|section|select|small|span|strong|style|svg|table|tbody|td|th|title"
    r"|tr|u|ul)\b(?:[^<>\n]{0,400}>)?|&(?:nbsp|amp|lt|gt|quot|copy|raquo|laquo|middot|#x?[0-9a-f]{2,5});",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>()\"'，。；、）]+", re.IGNORECASE)
_ENGLISH_FUNCTION_WORDS = (
    " the ",
    " of ",
    " to ",
    " and ",
    " in ",
    " is ",
    " for ",
    " that ",
    " a ",
    " with ",
    " you ",
    " we ",
)
_CHINESE_FUNCTION_CHARACTERS = re.compile(
    "[的一是不了在人有我他这這中大来來上个個们們为為和地到以之也者而其无無于於与與及可能会會就用下时時出生年此如何]"
)


def prose_rejection(text: str, language: str | None) -> str | None:
    """The reason to drop a text of prose, or None."""
    count = characters(text)
    if not count.visible:
        return "symbols"
    return (
        _wrong_decoding(text, count)
        or _not_language(text, count)
        or _web_page_junk(text, count)
        or _repetition(text, count)
        or _no_function_words(text, count, language)
    )


def _wrong_decoding(text: str, count: Characters) -> str | None:
    if lost_share(text) > 0.005:
        return "replacement_characters"
    found = 0 if text.isascii() else mojibake.traces(text)
    return "mojibake" if found >= 3 and found > 0.02 * count.visible else None


def _not_language(text: str, count: Characters) -> str | None:
    if count.visible >= 20 and count.letters < 0.15 * count.visible:
        return "numbers" if count.digits > count.symbols + count.punctuation else "symbols"
    spaced = count.spaced_letters > 200 and count.unspaced_letters < 0.05 * count.letters
    if spaced and not 2 <= count.spaced_letters / count.spaced_words <= 12:
        return "word_length"
    return None


def _web_page_junk(text: str, count: Characters) -> str | None:
    if ("<" in text or "&" in text) and share_matched(_TAG, text, count.visible) > 1 / 3:
        return "markup"
    if text.count("://") + text.count("www.") >= 3 and share_matched(_ADDRESS, text, count.visible) > 0.8:
        return "links"
    return None


def _repetition(text: str, count: Characters) -> str | None:
    if count.in_long_runs > 0.3 * count.visible:
        return "repetition"
    tokens = words(text)
    phrases, different = stock_phrases(text)
    if different >= 3 and phrases > 0.04 * len(tokens):
        return "boilerplate"
    return "repetition" if _repeats(text, tokens) else None


def _repeats(text: str, tokens: Hashes) -> bool:
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    if len(lines) >= 6 and repeated_line_share(lines) > 0.6:
        return True
    if len(tokens) < 40:
        return False
    return repeated_share(tokens, 10) > 0.7 or commonest_share(tokens, 3) > 0.4


def _no_function_words(text: str, count: Characters, language: str | None) -> str | None:
    tag = (language or "").lower()
    if tag.startswith("en") and count.spaced_letters > 500:
        if sum(word in text for word in _ENGLISH_FUNCTION_WORDS) >= 2:
            return None
        latin = sum(text.count(letter) for letter in "aeiou") > 0.15 * count.letters
        return "no_function_words" if latin else None
    if tag.startswith("zh") and count.unspaced_letters > 100:
        common = len(_CHINESE_FUNCTION_CHARACTERS.findall(text))
        return "no_function_words" if common < 0.01 * count.unspaced_letters else None
    return None
