"""Texts for `deduplication.py`, by kind, and a slow, separate statement of what a shingle is."""

from __future__ import annotations

import gzip
import json
import random
import re
import sysconfig
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from opencc import OpenCC

KINDS = ("english", "chinese", "code", "mathematics")
_FILES = {
    "english": ("linux-doc-6-1-rst", "python3-11-doc", "rust-rfcs"),
    "chinese": (
        "libreoffice-help-zh-cn",
        "libreoffice-help-zh-tw",
        "chinese-poetry",
        "pingcap-docs-cn",
        "manpages-zh",
        "d2l-zh",
        "oi-wiki-md",
        "linux-doc-6-1-zh-translations",
    ),
    "mathematics": ("stacks-project-tex", "gsm8k-train-test", "metamath-set-mm"),
}
_HAN = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_SIGNS = "-*/%&@#\\"


def texts_of_kind(kind: str, corpus: Path) -> list[str]:
    """All texts of one kind; code is that of the standard library and of installed packages."""
    if kind == "code":
        folders = [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
        files = [file for folder in folders for file in sorted(folder.rglob("*.py")) if file.is_file()]
        texts = [file.read_bytes().decode("utf-8", "ignore") for file in dict.fromkeys(files)]
        return [text for text in texts if text.strip()][::3]
    found: list[str] = []
    for name in _FILES[kind]:
        with gzip.open(corpus / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
            found += [json.loads(line)["text"] for line in stream]
    return found


def opened(file: Path) -> Iterator[str]:
    """The texts of a JSONL file."""
    with open(file, encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)["text"]


def changed(text: str, draw: random.Random) -> str:
    """A copy as they occur: words changed here and there, a passage cut off, or another script, case or spacing."""
    manner = draw.randrange(6)
    if manner == 0:
        return OpenCC("s2t").convert(text) if _HAN.search(text) else text.upper()
    if manner == 1:
        return "  ".join(text.split(" "))
    if manner == 2:
        return text[int(len(text) * draw.uniform(0, 0.2)) :]
    pieces = re.split(r"(\W)", text)
    places = [i for i, piece in enumerate(pieces) if piece.strip()]
    share = draw.uniform(0, 0.035)
    for place in draw.sample(places, int(len(places) * share)):
        piece = pieces[place]
        cut = draw.randrange(len(piece))
        pieces[place] = piece[:cut] + draw.choice("qxzj好的人") + piece[cut + 1 :]
    return "".join(pieces)


_SIMPLIFIED = OpenCC("t2s")


def plain_tokens(text: str) -> list[str]:
    """Words, single Han and kana, single signs; width, case, script, spacing and punctuation aside."""
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    tokens: list[str] = []
    word = ""
    for character in normal:
        category = unicodedata.category(character)
        letter = category[0] in "LMN" or category in ("Pc", "Co")
        if letter and not _HAN.match(character):
            word += character
            continue
        if category == "Cf":
            continue
        if word:
            tokens.append(word)
            word = ""
        if letter or category[0] == "S" or character in _SIGNS:
            tokens.append(_simplified(character) if letter else character)
    return [*tokens, word] if word else tokens


_KNOWN: dict[str, str] = {}


def _simplified(character: str) -> str:
    if character not in _KNOWN:
        _KNOWN[character] = _SIMPLIFIED.convert(character)
    return _KNOWN[character]


def plain_shingles(text: str, size: int) -> frozenset[str]:
    """Runs of `size` tokens; a shorter text is one."""
    tokens = plain_tokens(text)
    if not tokens:
        return frozenset()
    return frozenset("\0".join(tokens[i : i + size]) for i in range(max(1, len(tokens) - size + 1)))
