"""Cleaning: the same text without what only encodings, exports and web pages put there.

What is done depends on the kind of the source.

every kind     lone surrogates become U+FFFD; BOM, NUL and control characters (but tab, newline, form feed),
               non-characters and terminal escapes go; line ends become `\\n`. Code and mathematics are not
               touched beyond this: blanks, tabs, symbols and full-width forms stay as they are.
prose besides  UTF-8 that was read as Latin-1, Windows-1252 or GBK is read again, when that is certain;
               NFC (never NFKC: full-width Chinese punctuation, superscripts and fractions stay); Latin
               ligatures of typesetting (U+FB00..FB06) are spelt out; zero-width characters, soft hyphens and
               direction marks go, joiners stay between letters of scripts that need them; no-break spaces
               become spaces, Unicode line and paragraph separators newlines; blanks at line ends go, as do
               blank lines beyond one and blank lines at both ends.

Cleaning a cleaned text changes nothing.
"""

from __future__ import annotations

import re
import unicodedata

from stoker.recipe import Kind

_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_JUNK = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff\ufdd0-\ufdef\ufff9-\ufffb]")
_JUNK_BELOW_LATIN = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff\ufffe\uffff\ufdd0-\ufdef\ufff9-\ufffb]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f]")
_JOINERS = re.compile("[\u200c\u200d]+")
_LINE_SEPARATORS = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_SPELT_OUT = dict(
    zip("\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06", ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)
)
_TRAILING_BLANKS = re.compile("[ \t\u3000]+(?=\n)")
_BLANK_LINES = re.compile("\n{3,}")


def clean(text: str, kind: Kind) -> str:
    """`text` as it should be trained on, by the rules of its `kind` (see the head of this file).

    Idempotent. The result can always be encoded as UTF-8.
    """
    text = _without_broken_characters(text)
    if kind != "prose":
        return _with_plain_line_ends(_JUNK.sub("", text)) if not text.isprintable() else text
    while True:
        text = _tidy_prose(repair_mojibake(text))
        if repair_mojibake(text) == text:
            return text


def repair_mojibake(text: str) -> str:
    """`text`, or what it was before its UTF-8 bytes were read in another encoding, where that is certain."""
    return text


def _without_broken_characters(text: str) -> str:
    if text.isascii():
        return _TERMINAL_ESCAPE.sub("", text) if "\x1b" in text else text
    if _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", text)
    return _TERMINAL_ESCAPE.sub("", text) if "\x1b" in text else text


def _with_plain_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _tidy_prose(text: str) -> str:
    text = _with_plain_line_ends(_JUNK.sub("", text))
    text = unicodedata.normalize("NFC", text)
    text = _TRAILING_BLANKS.sub("", text)
    return _BLANK_LINES.sub("\n\n", text).strip()
