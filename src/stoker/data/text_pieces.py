"""Where text may be cut so that its pieces have the very tokens of the whole.

Our own pattern: every alternative is bounded, so the longest pre-token is a property of the tokenizer, and text
without a single space costs no more than any other. Each match depends only on the text from its start to one
character behind its end, so a text of any kind can be cut into pieces of bounded length.

A given tokenizer: text is cut at the starts of lines, if it has been shown that no token reaches over one and
that splitting does not look over one. Otherwise it is not cut at all.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

_LONGEST = 64
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー々\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
PATTERN = "|".join(
    (
        # English contractions, where no letter follows: don|'t, but '|self
        r"'(?i:[sdmt]|ll|ve|re)(?![\p{L}\p{M}\p{N}])",
        # runs of scripts without spaces, apart from the Latin words and punctuation around them
        rf"[{_UNSPACED}]{{1,{_LONGEST}}}",
        # a word with the blank or sign before it
        rf"[^\r\n\p{{L}}\p{{M}}\p{{N}}]?[\p{{L}}\p{{M}}&&[^{_UNSPACED}]]{{1,{_LONGEST}}}",
        # each digit by itself
        r"\p{N}",
        # punctuation and symbols with the line ends behind them
        rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]{{1,{_LONGEST}}}[\r\n]{{0,{_LONGEST}}}",
        # line ends with the blanks before them
        rf"\s{{0,{_LONGEST}}}[\r\n]{{1,{_LONGEST}}}",
        # blanks but the last, which belongs to the word behind it
        rf"\s{{1,{_LONGEST}}}(?!\S)",
        rf"\s{{1,{_LONGEST}}}",
    )
)
_REACH = 2 * _LONGEST + 2
"""No match of `PATTERN` together with what it looks ahead at is longer, in characters."""
LONGEST_PIECE = 1 << 16
"""Longest piece of a text, in characters, wherever it may be cut at all."""

_LINE_START = re.compile("(?<=\\S\n)[A-Za-z0-9\u4e00-\u9fff]")
_STARTS_OF_LINES = "aZ7中"
_ENDS_OF_LINES = "aZé中あไع7²Ⅳ_-—(]»“.,;/'\"，。。+<$^`©\u0301\u0e31\u200d\x07\ufffd \t"
_SPACES_IN_VOCABULARIES = frozenset(" \t\r\n\u2581ĠĊĉčċĈ")


def own_pre_tokenizer() -> Any:
    """The pre-tokenizer of trained vocabularies: cut by `PATTERN`, then bytes."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )


def pieces_for(backend: Any) -> Callable[[str], Iterator[str]]:
    """How texts may be cut for a tokenizer: a function from a text to pieces that join to it."""
    if _splits_by_our_pattern(backend):
        return bounded_pieces
    return pieces_of_lines if _line_starts_are_safe(backend) else _whole


def bounded_pieces(text: str) -> Iterator[str]:
    """`text` in pieces of at most `LONGEST_PIECE` characters that end where `PATTERN` splits the whole text."""
    start = 0
    while len(text) - start > LONGEST_PIECE:
        stop = _split_before(text, start, start + LONGEST_PIECE)
        yield text[start:stop]
        start = stop
    yield text[start:]


def pieces_of_lines(text: str) -> Iterator[str]:
    """`text` in pieces of `LONGEST_PIECE` characters and the rest of a line, each cut before a line as above."""
    start = 0
    while len(text) - start > LONGEST_PIECE:
        found = _LINE_START.search(text, start + LONGEST_PIECE)
        if found is None:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def _whole(text: str) -> Iterator[str]:
    yield text


def _split_before(text: str, start: int, stop: int) -> int:
    """The last place before `stop` at which matching from `start`, where a match begins, begins another.

    A line end that is followed by a visible character is such a place wherever matching began: no alternative
    holds a line end before anything but line ends. Without one near `stop`, matching the whole stretch shows
    where matches begin; those that begin `_REACH` before its end have seen all that they can look at.
    """
    line_end = text.rfind("\n", max(start, stop - LONGEST_PIECE // 4), stop - 1)
    if line_end > start and text[line_end + 1].isprintable() and not text[line_end + 1].isspace():
        return line_end + 1
    spans: list[tuple[str, tuple[int, int]]] = _matcher().pre_tokenize_str(text[start:stop])
    return start + max(begin for _, (begin, _) in spans if begin <= stop - start - _REACH)


def _matcher() -> Any:
    return pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")


def _splits_by_our_pattern(backend: Any) -> bool:
    written = json.loads(backend.to_str())
    own = Backend(models.BPE())
    own.pre_tokenizer = own_pre_tokenizer()
    return (
        written["normalizer"] is None
        and written["pre_tokenizer"] == json.loads(own.to_str())["pre_tokenizer"]
        and all(token["special"] for token in written["added_tokens"])
    )


def _line_starts_are_safe(backend: Any) -> bool:
    """Whether a text may be cut before a line that starts with a letter or digit, behind a visible character.

    Two things are asked. No entry of the vocabulary, added ones included, holds a line end and then something
    that is no blank, so no token can reach over such a place. And no splitting or normalisation looks over it:
    for characters of every class on both sides, the whole has the tokens of its parts.
    """
    for token in backend.get_vocab(with_added_tokens=True):
        for line_end, behind in itertools.pairwise(token):
            if line_end in "\nĊ" and behind not in _SPACES_IN_VOCABULARIES:
                return False
    if any(not token.special for token in backend.get_added_tokens_decoder().values()):
        return False
    ends = [f"{one}{other}\n" for one in _ENDS_OF_LINES for other in _ENDS_OF_LINES if not other.isspace()]
    starts = [f"{start}{behind}" for start in _STARTS_OF_LINES for behind in "a. 中\n"]

    def ids(texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]

    parts = [end + start for end, start in itertools.product(ids(ends), ids(starts))]
    return ids([end + start for end, start in itertools.product(ends, starts)]) == parts
