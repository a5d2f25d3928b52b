"""Mojibake: bytes that were read in the wrong encoding; undone where certain, else counted.

UTF-8 that was read as Latin-1, Windows-1252 or GBK is handled here, other mistakes in `misread.py`.
A line is repaired when every character of it can be turned back into a byte, the bytes are valid UTF-8, and
there is evidence enough that this is no accident. Text that lost a byte on the way (a `?` or U+FFFD in place
of it) cannot be repaired; `traces` counts what is left of it, and a filter drops such documents.
"""

from __future__ import annotations

import re
import unicodedata

from stoker.data import misread

_WINDOWS_1252 = {
    character: byte
    for byte in range(0x80, 0xA0)
    if (character := bytes([byte]).decode("cp1252", "replace")) != "\ufffd"
}
_TO_BYTE = {ord(character): byte for character, byte in _WINDOWS_1252.items()}
_CONTINUATION = "\u0080-\u00bf" + "".join(map(re.escape, _WINDOWS_1252))
_AS_LATIN = re.compile(
    f"[\u00c2-\u00df][{_CONTINUATION}]|[\u00e0-\u00ef][{_CONTINUATION}]{{2}}|\u00f0[{_CONTINUATION}]{{3}}"
)
_TRACE_OF_LATIN = re.compile(
    f"[\u00c2\u00c3][{_CONTINUATION} ]|\u00e2\u20ac|\u00ef\u00bf|[\u00e3-\u00e9][{_CONTINUATION}]{{2}}"
)
_AFTER_A_LETTER = re.compile(f"[A-Za-z]\u00c3[{_CONTINUATION}]")

# What common Chinese characters and punctuation become when their UTF-8 is read as GBK. Chosen by counting:
# together over 30% of the characters of such text, and under 0.1% of real Chinese, classical included.
COMMON_AS_GBK = (
    "涓紝锛鐨銆殑鍙浠鏈鍏鍒浜浣鍚屽澶瀹鏄鏂杩鍦鐢鏁灏勫竴琛屾鎴敤嬪瀛璇閫鏃"
    "寮姝傚涔暟璁瀵鍗鎵傛缁嶅閲湪鏍槸屼彲鐩腑鏉瑕鍑鍔搴濡笉鍜岃湁鍐閬闆骞鍥兘"
)
_AS_GBK = re.compile(f"[{COMMON_AS_GBK}]")
_HAN = re.compile("[\u3400-\u9fff]")
_LOST_FOR_GOOD = re.compile("锟斤拷|锟斤|斤拷|烫烫烫|屯屯屯|锘\\?|[\ufffd\ue000-\uf8ff]")
_SURE_SHARE_OF_HAN = 0.12
DRAWN_SIGNS = re.compile("[\u2550-\u256c\u2580-\u2593]")
"""Signs that frames of two lines and bars are drawn with, and that most bytes of Chinese are in code page 437."""
_OF_CODE_PAGE_437 = "\u00a1-\u00ff\u0192\u0393-\u03c6\u207f\u20a7\u2219-\u2265\u2310\u2320\u2321"
_AMONG_DRAWN = re.compile(f"[\u2500-\u2593](?=[{_OF_CODE_PAGE_437}])|[{_OF_CODE_PAGE_437}](?=[\u2500-\u2593])")
"""A sign of a frame beside a letter, as in `╩²`: frames have blanks, or their own text, inside."""


def repair(text: str) -> str:
    """`text` with those lines read again of which it is certain that they were read in the wrong encoding."""
    if text.isascii():
        return text
    text = _from_utf8(text)
    if damaged := misread.suspicious_lines(text):
        lines = text.split("\n")
        for number in damaged:
            lines[number] = misread.repair_line(lines[number]) or lines[number]
        text = "\n".join(lines)
    return text


def _from_utf8(text: str) -> str:
    """`text` with UTF-8 that was read as Latin-1, Windows-1252 or GBK read again."""
    if not (_AS_LATIN.search(text) or _looks_like_gbk(text)):
        return text
    whole = _read_again(text, least_evidence=2)
    if whole is not None:
        return whole
    lines = text.split("\n")
    return "\n".join(_read_again(line, least_evidence=4) or line for line in lines)


def traces(text: str) -> int:
    """Number of characters in `text` that look like the remains of a wrong decoding."""
    count = len(_LOST_FOR_GOOD.findall(text))
    if not text.isascii():
        count += 2 * len(_TRACE_OF_LATIN.findall(text))
        if _looks_like_gbk(text):
            count += len(_HAN.findall(text))
        if DRAWN_SIGNS.search(text):
            count += 2 * len(_AMONG_DRAWN.findall(text))
    return count


def _looks_like_gbk(text: str) -> bool:
    found = len(_AS_GBK.findall(text)) if _AS_GBK.search(text) else 0
    return found >= 2 and found >= _SURE_SHARE_OF_HAN * len(_HAN.findall(text))


def _read_again(text: str, least_evidence: int) -> str | None:
    """`text` decoded as it should have been, or None when that is impossible or could be chance."""
    if _AS_LATIN.search(text):
        decoded = _decoded(text.translate(_TO_BYTE), "latin-1")
        if decoded is not None:
            evidence = sum(len(character.encode()) - 1 for character in decoded if character > "\x7f")
            if evidence >= least_evidence or _AFTER_A_LETTER.search(text):
                return decoded
    if _looks_like_gbk(text):
        decoded = _decoded(text, "gb18030")
        if decoded is not None and sum(character >= "\u3000" for character in decoded) >= least_evidence:
            return decoded
    return None


def _decoded(text: str, misread_as: str) -> str | None:
    try:
        decoded = text.encode(misread_as).decode("utf-8")
    except UnicodeError:
        return None
    strange = any(unicodedata.category(character) in ("Cn", "Co", "Cs") for character in set(decoded))
    return None if strange else decoded
