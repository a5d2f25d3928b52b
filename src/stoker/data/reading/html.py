"""The text of an HTML file's bytes: what encoding a page is in, by mark, by declaration, or by detection."""

from __future__ import annotations

import codecs
import re

from stoker.data.reading.decoding import Undecodable, decode, decode_as

_FITS_EVERYTHING = frozenset(("cp1252", "iso8859-1", "ascii"))
"""What servers and editors declare for any page, and what nearly any bytes are text in."""
_BEYOND_ASCII = re.compile("[\u0080-\u02ff\u2010-\u2122]+")
_ENOUGH, _MOSTLY = 8, 0.6
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)


def declared_encoding(raw: bytes) -> str | None:
    """What the page's own `<meta charset>` says, if it is an encoding this Python knows."""
    match = _META_CHARSET.search(raw[:4096])
    if match is None:
        return None
    return known_encoding(match.group(1).decode("ascii", errors="replace"))


def known_encoding(name: str) -> str | None:
    """The encoding that a web page means by a name, None where this Python has none of that name."""
    name = name.strip().lower()
    # What browsers do: pages that claim the smaller set often use the larger.
    name = {"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "iso-8859-1": "cp1252"}.get(name, name)
    try:
        "文".encode(name, errors="replace").decode(name)
    except (LookupError, ValueError):  # unknown, or something that is no encoding of text, such as rot13
        return None
    return name


def decode_page(raw: bytes, declared: str | None = None) -> str:
    """A page's text: a byte order mark first, valid UTF-8 next, then what the page declares, then detection.

    A declared Latin-1, which fits any bytes, is not believed where the text would be accented letters in rows.

    `declared` is what was said outside of the page, such as in an HTTP header. Raises `Undecodable`.
    """
    try:
        return decode_as(raw, "utf-8-sig")
    except Undecodable:
        pass
    if not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        for name in (declared, declared_encoding(raw)):
            if name is None:
                continue
            try:
                text = decode_as(raw, name)
            except Undecodable:
                continue  # pages often declare what they are not
            if codecs.lookup(name).name not in _FITS_EVERYTHING or not _side_by_side(text):
                return text
    return decode(raw)


def _side_by_side(text: str) -> bool:
    """Whether most characters beyond ASCII stand beside another, as accented letters do in no language."""
    found = [len(one) for one in _BEYOND_ASCII.findall(text)]
    return sum(found) >= _ENOUGH and sum(size for size in found if size > 1) > _MOSTLY * sum(found)
