"""Whether a line is furniture of a web page: navigation, sharing, cookies, copyright, comments.

A line is judged by its words. It is furniture for certain when it opens as furniture does (`Share on …`,
`责任编辑：…`) and is short, when it holds nothing but words of furniture with one among them that is used for
nothing else, or when it is a row of links with separators; it may be furniture when all its words could be.
Words and openings are in `furniture.txt`, in English and Chinese.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

NOT, MAYBE, SURE = 0, 1, 2
LONGEST = 160
"""Characters of the longest line that can be furniture."""
_WORDS = re.compile(r"[^\W_]+(?:-[^\W_]+)?")
_HAN = re.compile("[\u3400-\u9fff]")
_SEPARATOR = re.compile(r"[|｜·•»›>/–—]|\s{3}")
_ROW = re.compile(r"\s*(?:[|｜·•»›>/–—]|\s{3,})\s*")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_FRAME = " \t\u3000*#•·-–—>»›«‹|[]()（）【】:：.。!！,，…↑→←▲▼►+×"
_SENTENCE_END = (".", "。", "？", "?", "；", ";", "”")
_COPYRIGHT = re.compile(
    r"(?:copyright|©|\(c\)|&copy;)\s*(?:©|\(c\))?\s*(?:by\s)?.{0,40}(?:19|20)\d\d.{0,80}(?:reserved|版权|保留|权利)"
    r"|^\W*(?:copyright\s*)?©\s*(?:19|20)\d\d.{0,60}$|版权所有(?!者|的)|all rights reserved|保留(?:所有|一切)权利",
    re.IGNORECASE,
)
_RECORD_NUMBER = re.compile(r"ICP[备证]\s*\d{5,}|公网安备|网备\d{6,}")
_COUNT = re.compile(
    r"\d[\d,.]*[kKw万]?\s*(?:comments?|replies|shares|likes|views|followers|reads"
    r"|[条个次人]?\s*(?:评论|回复|阅读|浏览|点赞|收藏|转发|分享|关注|粉丝|喜欢))"
    r"|(?:comments?|replies|shares|likes|views|(?:阅读|浏览|点击|评论|点赞|收藏|转发|分享)(?:量|数|次数)?)\s*[:：(（]\s*\d[\d,.]*[kKw万]?\s*次?"
)
_LABELLED = re.compile(
    r"(?:tags?|tagged|categor(?:y|ies)|labels?|filed under|share|previous|next|older|newer)\s*:\s+\S.{0,60}"
)
_HOME = re.compile(r"(?:home|首页|主页|您(?:的|所在|现在)?(?:当前)?的?位置)\s*[:：]?\s*[>»›/]", re.IGNORECASE)
_MOST_AFTER_OPENING = 20
_MOST_HAN_AFTER_OPENING = 40
_LEAST_COVERED = 0.8


@dataclass(frozen=True)
class _Vocabulary:
    sure: frozenset[str]
    words: frozenset[str]
    fillers: frozenset[str]
    openings: frozenset[str]
    starts: frozenset[str]
    """First words of the openings; of Chinese, their first two characters."""
    every: frozenset[str]
    """Words and fillers."""
    letters: frozenset[str]
    """Characters of all words."""
    longest_opening: int
    """In words; of Chinese, in characters."""
    longest_word: int


@lru_cache(maxsize=1)
def _vocabularies() -> tuple[_Vocabulary, _Vocabulary]:
    """(English, Chinese)."""
    sections: dict[str, list[str]] = {}
    text = files("stoker.data.line_cleaning").joinpath("furniture.txt").read_text(encoding="utf-8")
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            lines.append(line.lower())

    def of(prefix: str) -> _Vocabulary:
        sure, words, fillers = (
            frozenset(" ".join(sections[f"{prefix}{name}"]).split()) for name in ("sure", "words", "fillers")
        )
        openings = frozenset(sections[f"{prefix}openings"])
        starts = frozenset(one[:2] if prefix else one.split()[0] for one in openings)
        every = words | sure | fillers
        size = max(len(one) if prefix else len(one.split()) for one in openings)
        letters = frozenset("".join(every))
        return _Vocabulary(
            sure, words | sure, fillers, openings, starts, every, letters, size, max(map(len, every))
        )

    return of(""), of("中文 ")


def judge_line(line: str) -> int:
    """`SURE`, `MAYBE` or `NOT`, for one line without its line end."""
    if len(line) > LONGEST or line.startswith(("#", "![")):  # a heading, a picture
        return NOT
    plain = (_LINK.sub(r"\1", line) if "](" in line else line).strip(_FRAME).lower()
    if not plain:
        return NOT
    if _is_notice(line) or _is_labelled(plain):
        return SURE
    if _may_be_separated(plain) and _SEPARATOR.search(plain) and (_HOME.match(plain) or _is_row_of_links(plain)):
        return SURE
    return _judged(plain, line.rstrip().endswith(_SENTENCE_END))


def _is_labelled(plain: str) -> bool:
    """Whether a line is a count (`12 comments`, `likes: 3`) or has a label of furniture (`tags: …`)."""
    if ":" in plain and _LABELLED.fullmatch(plain):
        return True
    may_count = plain[0].isdecimal() or ":" in plain or "(" in plain or "：" in plain or "（" in plain
    return may_count and _COUNT.fullmatch(plain) is not None


def _may_be_separated(plain: str) -> bool:
    """False for most lines without a separator, which a regular expression would take longer to see."""
    if not plain.isascii() or not plain.isprintable():
        return True
    return "|" in plain or "/" in plain or ">" in plain or "   " in plain


def _is_notice(line: str) -> bool:
    """Whether a line says whose the rights are, or under which number a site is registered."""
    if "©" in line or "版权" in line or "eserved" in line or "权利" in line or "(c)" in line or "(C)" in line:
        return _COPYRIGHT.search(line) is not None
    return "备" in line and _RECORD_NUMBER.search(line) is not None


def _is_row_of_links(plain: str) -> bool:
    items = [item for item in _ROW.split(plain) if item]
    if len(items) < 3:
        return False
    return sum(len(item) <= 24 and _judged(item, False) > NOT for item in items) >= 0.6 * len(items)


def _judged(plain: str, ends_as_sentence: bool) -> int:
    if plain.isascii() or not _HAN.search(plain):
        return _judged_english(plain, ends_as_sentence)
    return _judged_chinese(plain, ends_as_sentence)


def _judged_english(plain: str, ends_as_sentence: bool) -> int:
    english, _ = _vocabularies()
    words = plain.split()
    starts = words[0].rstrip(",:") in english.starts
    if not starts and (
        len(words) > 12 or ends_as_sentence or len(english.every.intersection(words)) < len(words) / 3
    ):
        return NOT
    tokens = _WORDS.findall(plain)
    if starts and (opened := _opening(tokens, english)):
        rest = len(tokens) - opened
        only_on_pages = "cookie" in plain or "javascript" in plain
        if rest <= (2 if opened <= 2 else 6) or (only_on_pages and opened >= 3):
            return SURE
        if opened >= 3 and rest <= _MOST_AFTER_OPENING and not ends_as_sentence and opened >= rest / 3:
            return SURE
    if not tokens or len(tokens) > 12 or ends_as_sentence:
        return NOT
    telling = [token for token in tokens if token not in english.fillers and not token.isdigit()]
    known = sum(token in english.words for token in telling)
    if not telling or known < _LEAST_COVERED * len(telling):
        return NOT
    return SURE if any(token in english.sure for token in telling) else MAYBE


def _opening(tokens: list[str], english: _Vocabulary) -> int:
    """How many words the line opens with as furniture does."""
    for size in range(min(english.longest_opening, len(tokens)), 0, -1):
        if " ".join(tokens[:size]) in english.openings:
            return size
    return 0


def _judged_chinese(plain: str, ends_as_sentence: bool) -> int:
    _, chinese = _vocabularies()
    if plain[:2] in chinese.starts:
        for size in range(min(chinese.longest_opening, len(plain)), 1, -1):
            if plain[:size] in chinese.openings:
                rest = plain[size:]
                if len(rest) > _MOST_HAN_AFTER_OPENING or "。" in rest:
                    return MAYBE
                if size >= 4 or not rest or not rest[0].isalnum():
                    return SURE
                if len(rest) <= 4 and not ends_as_sentence:
                    return SURE
                break
    if len(plain) > 40 or ends_as_sentence or len(set(plain) - chinese.letters) > 4 + len(plain) // 4:
        return NOT
    covered, total, sure = _covered(plain, chinese)
    if not total or covered < _LEAST_COVERED * total:
        return NOT
    return SURE if sure else MAYBE


def _covered(plain: str, chinese: _Vocabulary) -> tuple[int, int, bool]:
    """(characters in words of furniture, characters that tell, whether one of the words is certain)."""
    at, covered, total, sure = 0, 0, 0, False
    while at < len(plain):
        size = 1
        if plain[at].isalpha():
            for size in range(min(chinese.longest_word, len(plain) - at), 0, -1):
                word = plain[at : at + size]
                if word in chinese.words:
                    covered, total, sure = covered + size, total + size, sure or word in chinese.sure
                    break
                if word in chinese.fillers:
                    break
            else:
                size, total = 1, total + 1
        at += size
    return covered, total, sure
