"""Cleaning: the same text without what only encodings, exports and web pages put there.

What is done depends on the kind of the source.

every kind     lone surrogates become U+FFFD; BOM, NUL and control characters (but tab, newline, form feed),
               non-characters and terminal escapes go; line ends become `\\n`. Code and mathematics are not
               touched beyond this: blanks, tabs, symbols and full-width forms stay as they are.
prose besides  text that was read in the wrong encoding is read again, when that is certain;
               NFC (never NFKC: full-width Chinese punctuation, superscripts and fractions stay); Latin
               ligatures of typesetting (U+FB00..FB06) are spelt out; zero-width characters, soft hyphens,
               fillers, tags and direction marks go, joiners stay between letters of scripts that need them;
               no-break, thin and other spaces but the ideographic one become spaces, Unicode line and
               paragraph separators newlines; blanks at line ends go, as do blank lines beyond one and blank
               lines at both ends.

Dialogue is cleaned as prose is. Cleaning a cleaned text changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from stoker.data import mojibake
from stoker.recipe import Kind

_TERMINAL_ESCAPE = re.compile("\x1b\\[[0-9;?]*[ -/]*[@-~]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JUNK = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufeff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff]")

_LINE_SEPARATOR = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\uffa0]")
_TAGS = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0001\U000e0020-\U000e007f]+")
_OTHER_BLANK = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f]")
_LIGATURE = re.compile("[\ufb00-\ufb06]")
_SPELT_OUT = {
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb05": "st",
    "\ufb06": "st",
}
_JOINERS = re.compile("[\u200c\u200d]+")
_JOINED = re.compile(
    "[\u00aa-\u1fff\u2190-\u2bff\ufe0f\ufb1d-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00010000-\U0001ffff]"
)
_TRAILING_BLANKS = re.compile("(?<![ \t\u3000])[ \t\u3000]++(?=\n)")
"""Begun where a run of blanks begins and never given back: a long run inside of a line is looked at once."""
_BLANKS = " \t\u3000"
_BLANK_LINES = re.compile("\n{3,}")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text as it should be trained on."""

    text: str
    reread: bool
    """Whether some of it had been read in the wrong encoding."""


def clean(text: str, kind: Kind) -> str:
    """The text of `cleaned`."""
    return cleaned(text, kind).text


def cleaned(text: str, kind: Kind) -> Cleaned:
    """`text` as it should be trained on, by the rules of its `kind` (see the head of this file).

    Idempotent. The result can always be encoded as UTF-8.
    """
    if kind not in ("prose", "dialogue"):
        return Cleaned(_without_junk(text), reread=False)
    reread = False
    while True:
        while (repaired := mojibake.repair(text)) != text:  # more than one round for text misread twice
            text, reread = repaired, True
        tidied = _tidy(text)
        if tidied == text or mojibake.repair(tidied) == tidied:
            return Cleaned(tidied, reread)
        text = tidied


def _without_junk(text: str) -> str:
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    if "\x1b" in text:
        text = _TERMINAL_ESCAPE.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _JUNK.sub("", text)


def _tidy(text: str) -> str:
    """Prose without what is not text: `clean`, but for reading misread text again."""
    if not text.isascii() or "\x0b" in text or "\x0c" in text:
        text = _LINE_SEPARATOR.sub("\n", text)
    text = _without_junk(text)
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
        text = _TAGS.sub("", text)  # written by none but to hide something; of flags they are a part
        text = _OTHER_BLANK.sub(" ", text)
        text = _LIGATURE.sub(lambda match: _SPELT_OUT[match[0]], text)
        text = unicodedata.normalize("NFC", text)
        if "\u200c" in text or "\u200d" in text:
            text = unicodedata.normalize("NFC", _JOINERS.sub(_needed_joiner, text))
    if any(f"{blank}\n" in text for blank in _BLANKS):
        text = _TRAILING_BLANKS.sub("", text)
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.lstrip("\n").rstrip(f"\n{_BLANKS}")


def _needed_joiner(match: re.Match[str]) -> str:
    """One joiner between letters or pictures that can join; elsewhere a joiner is invisible junk."""
    text, start, stop = match.string, match.start(), match.end()
    between = _JOINED.match(text[start - 1 : start]) and _JOINED.match(text[stop : stop + 1])
    return match[0][0] if between else ""
