"""Which character encoding bytes are in, and their text; never a guess that makes noise of good text.

UTF-8 that decodes strictly is UTF-8. Otherwise each candidate is judged by how common the characters are that it
yields, which tells GBK from Big5 and Korean in a word or two; what two candidates explain equally well is no text.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

import charset_normalizer

from stoker.data.commonness import commonness_of_decoding
from stoker.data.frequent_characters import FREQUENT, likeness


class Undecodable(Exception):
    """The bytes are no text. `reason` is `undecodable` or `binary`, `byte` the first offending one."""

    def __init__(self, reason: str, byte: int, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.byte, self.detail = reason, byte, detail


_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"\x84\x31\x95\x33", "gb18030"),
)
_EAST_ASIAN = ("gb18030", "big5hkscs", "cp950", "euc_jp", "shift_jis", "euc_kr")
_BIG5 = frozenset(("big5hkscs", "cp950"))  # the same but for some signs
_CHINESE = _BIG5 | {"gb18030"}
_SINGLE_BYTE_WORDS = (
    "cp1250 cp1251 cp1252 cp1253 cp1254 cp1256 cp1257 iso8859_1 latin_1 iso8859_2 iso8859_5 iso8859_7 "
    "iso8859_9 iso8859_15 koi8_r koi8_u mac_roman"
)
_SINGLE_BYTE = frozenset(_SINGLE_BYTE_WORDS.split())
_MAGIC = (
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"%PDF-",
    b"PK\x03\x04",
    b"\x7fELF",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"BZh",
    b"\xfd7zXZ",
    b"PAR1",
    b"SQLite format 3\0",
)
_TYPOGRAPHY = frozenset("“”‘’„‚–—…«»¿¡°§©®€£·•½¼¾×÷²³\xa0")
_WESTERN = frozenset("éèàçêâîôûëïùüöäßñóíáúãõåæøœÉÈÀÇÊÂÎÔÛËÏÙÜÖÄÑÓÍÁÚÃÕÅÆØŒ")
"""Letters of French, German, Spanish, Portuguese and the Nordic languages."""
_LEAST_BYTES_OF_A_LINE = 5
_LIKENESS_OF_A_LINE = 0.4
_LIKENESS, _COMMON, _LEAST_COMMONNESS = 0.2, -9.5, -11.0
"""Share of frequent characters that East Asian text has; mean logarithm of the frequency of its characters, without
that share and with it."""
_NATS_AHEAD, _NATS_AGREED = 4.0, 1.0
"""How much likelier a reading must be than the next one; the same where it has most frequent characters, too."""
_NATS_OF_KANA = -5.0
_MANY_CHARACTERS = 20
_LETTER = "[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
_LONE = re.compile(f"(?<=[A-Za-z]){_LETTER}(?![^\x00-\x7f])|(?<![^\x00-\x7f]){_LETTER}(?=[A-Za-z])")
_KANA = re.compile("[\u3041-\u30ff]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decode(raw: bytes, encoding: str | None = None) -> str:
    """The text of a whole file or line, without a byte order mark.

    `encoding` is what the user or the file itself declares; where nothing is declared and no one encoding fits,
    each line is read in its own. Raises `Undecodable`.
    """
    if encoding is not None:
        return decode_as(raw, encoding)
    try:
        return decode_as(raw, detect_encoding(raw, whole=True))
    except Undecodable as error:
        mixed = _decode_lines(raw) if error.reason == "undecodable" else None
        if mixed is None:
            raise
        return mixed


def decode_line(content: bytes, usual: str) -> str:
    """The text of a line in a file that is in the encoding `usual`, or in another that certainly fits this line.

    Raises `Undecodable` about `usual` where none does.
    """
    try:
        return decode_as(content, usual)
    except Undecodable:
        encoding = _encoding_of_line(content)
        if encoding is None:
            raise
        return decode_as(content, encoding)


def _decode_lines(raw: bytes) -> str | None:
    """Lines of several encodings, as files put together from others have them; None where a line fits none."""
    try:
        return "\n".join(decode_line(line, "utf-8") for line in raw.split(b"\n"))
    except Undecodable:
        return None


def _encoding_of_line(content: bytes) -> str | None:
    """The encoding of a line that is not in that of its file, where there is enough of it to be certain."""
    if len(content) - len(content.decode("ascii", "ignore")) < _LEAST_BYTES_OF_A_LINE:
        return None
    best = _east_asian(content, whole=True)
    if best is not None and likeness(content.decode(best)) >= _LIKENESS_OF_A_LINE:
        return best
    western = _decoded_sample(content, "cp1252", True)
    return "cp1252" if western is not None and _is_likely(western, _WESTERN) else None


def decode_as(raw: bytes, encoding: str) -> str:
    """The text of `raw` in `encoding`, strictly. Raises `Undecodable` naming the first bad byte."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        found = raw[error.start : error.start + 4].hex(" ")
        raise Undecodable(
            "undecodable", error.start, f"expected {encoding} text, found the bytes {found} ({error.reason})"
        ) from None
    text = text.removeprefix("\ufeff")
    if not text.isprintable() and (controls := _CONTROLS.findall(text)) and len(controls) * 100 > len(text):
        before = text[: text.index(controls[0])]
        byte = len(before.encode(encoding, errors="replace"))
        raise Undecodable("binary", byte, f"{len(controls)} of {len(text)} characters are control characters")
    return text


def detect_encoding(sample: bytes, *, whole: bool) -> str:
    """The encoding of a file from its first bytes (`whole`: from all of them).

    Raises `Undecodable` when it is no text. For a part of a file in which only some places are damaged
    the answer is what the rest is in, so that the lines around them can be read.
    """
    for mark, marked in _BOMS:
        if sample.startswith(mark):
            return marked
    if b"\0" in sample and (wide := _utf16_without_mark(sample, whole)) is not None:
        return wide
    error = _strict_error(sample, "utf-8", whole)
    if error is None:
        return "utf-8"
    if sample.startswith(_MAGIC):
        raise Undecodable("binary", 0, f"begins with {sample[:4].hex(' ')}, the mark of a binary format")
    if len(_CONTROL_BYTES.findall(sample)) * 100 > len(sample):
        raise Undecodable("binary", error.start, "control characters, and neither UTF-8 nor UTF-16 text")
    if not _mostly_utf8(sample):
        encoding, is_east_asian = _judged_east_asian(sample, whole)
        fitting = encoding if is_east_asian else encoding or _single_byte(sample)
        if fitting is not None:
            return fitting
    if whole:
        found = sample[error.start : error.start + 4].hex(" ")
        raise Undecodable(
            "undecodable",
            error.start,
            f"not valid UTF-8 (bytes {found}: {error.reason}) and no other encoding fits; "
            "name it with `encoding`, or repair the file",
        )
    return "utf-8"


def _strict_error(sample: bytes, encoding: str, whole: bool) -> UnicodeDecodeError | None:
    try:
        # A sample may end in the middle of a character; only the incremental decoder forgives that.
        codecs.getincrementaldecoder(encoding)(errors="strict").decode(sample, final=whole)
    except UnicodeDecodeError as error:
        return error
    return None


def _decoded_sample(sample: bytes, encoding: str, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)(errors="strict").decode(sample, final=whole)
    except UnicodeDecodeError:
        return None


def _mostly_utf8(sample: bytes) -> bool:
    replaced = sample.decode("utf-8", errors="replace")
    bad = replaced.count("\ufffd") - sample.count(b"\xef\xbf\xbd")
    good = sum(1 for character in replaced if character > "\x7f") - bad
    return good >= 4 * bad


def _utf16_without_mark(sample: bytes, whole: bool) -> str | None:
    even = sample[: len(sample) // 2 * 2]
    for encoding in ("utf-16-le", "utf-16-be"):
        text = _decoded_sample(even, encoding, whole and len(even) == len(sample))
        if not text:
            continue
        plain = sum(" " <= c <= "~" or c in "\t\r\n" or c in FREQUENT or "\u3400" <= c <= "\u9fff" for c in text)
        if plain >= 0.9 * len(text):
            return encoding
    return None


def _east_asian(sample: bytes, whole: bool) -> str | None:
    """The encoding in which the characters of `sample` are as common as in text, and commoner than in others."""
    return _judged_east_asian(sample, whole)[0]


def _judged_east_asian(sample: bytes, whole: bool) -> tuple[str | None, bool]:
    """(the encoding; whether it is likely some East Asian one, also where two readings are too near to choose)."""
    scores: dict[str, tuple[float, int, str]] = {}
    for encoding in (*_EAST_ASIAN, "utf-16-le", "utf-16-be"):
        text = _decoded_sample(sample, encoding, whole)
        if text is None or (encoding.startswith("utf-16") and not _has_no_odd_characters(text)):
            continue
        text = text[:20000]
        found = (*_commonness(text, encoding), encoding)
        if text not in scores or found[0] > scores[text][0]:
            scores[text] = found
    if not scores:
        return None, False
    best, *others = sorted(scores, key=lambda text: scores[text][0], reverse=True)
    mean, count, encoding = scores[best]
    others = [text for text in others if not {encoding, scores[text][2]} <= _BIG5]
    ahead = (mean - scores[others[0]][0]) * count if others else _NATS_AHEAD
    most_frequent = max(scores, key=likeness)
    if likeness(most_frequent) < _LIKENESS:
        is_likely = mean >= _COMMON and re.search(_LETTER, best) is not None  # signs alone are of many encodings
        return (encoding if is_likely and ahead >= _NATS_AHEAD else None), is_likely
    if mean >= _LEAST_COMMONNESS and (ahead >= _NATS_AHEAD or (best == most_frequent and ahead >= _NATS_AGREED)):
        return encoding, True
    return (scores[most_frequent][2] if count >= _MANY_CHARACTERS else None), mean >= _LEAST_COMMONNESS


def _commonness(text: str, encoding: str) -> tuple[float, int]:
    """How common the characters of a reading are, and their number.

    A lone character within a Latin word is an accented letter that swallowed the next one; kana are Japanese.
    """
    mean, count = commonness_of_decoding(_LONE.sub("\ue000", text))
    kana = len(_KANA.findall(text)) if encoding in _CHINESE else 0
    return (mean + _NATS_OF_KANA * kana / count if kana else mean), count


def _has_no_odd_characters(text: str) -> bool:
    odd = sum(unicodedata.category(character) in ("Cn", "Co", "Cc") for character in text[:2000])
    return odd * 20 <= min(len(text), 2000)


def _single_byte(sample: bytes) -> str | None:
    western = _decoded_sample(sample, "cp1252", True)
    if western is not None and _is_likely(western, _WESTERN):
        return "cp1252"  # what is told apart from its neighbours in short texts only by frequency
    match = charset_normalizer.from_bytes(sample[: 1 << 16], cp_isolation=sorted(_SINGLE_BYTE)).best()
    return match.encoding if match is not None and _is_likely(str(match), None) else None


def _is_likely(text: str, letters: frozenset[str] | None) -> bool:
    """Whether there are enough characters beyond ASCII, and nearly all are these letters (None: any letter)."""
    beyond = [character for character in text if character > "\x7f"]
    likely = sum(
        character in _TYPOGRAPHY or (character.isalpha() if letters is None else character in letters)
        for character in beyond
    )
    return len(beyond) >= 5 and likely >= 0.9 * len(beyond)
