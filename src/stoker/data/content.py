"""How much of a text is Chinese, formulae, code: so that a filter that removes one of these above all is noticed.

Estimates, made to be cheap: one pass over the characters. They decide nothing about a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker.data.kernels import compiled
from stoker.data.minhash import code_points

CJK_SHARE = 0.2
"""From this share of its characters on, a text counts as one in Chinese, Japanese or Korean."""
FORMULA_SHARE = 0.05
"""… as one with formulae."""
CODE_SHARE = 0.3
"""… as one with code."""

_LONGEST_FORMULA = 1000
_LINE_END, _TAB, _SPACE = 10, 9, 32
_WEAK, _STRONG = 1, 2


@dataclass(frozen=True, slots=True)
class Content:
    """Characters of a text by what they belong to; one may count more than once, most count not at all."""

    cjk: int
    """Han, kana and hangul."""
    formula: int
    r"""In `$…$`, `$$…$$`, `\(…\)`, `\[…\]`; commands of TeX; mathematical operators and alphabets of Unicode."""
    code: int
    """In lines that end, call, compare or are indented as lines of programs are."""


def content_of(text: str) -> Content:
    """Count the characters of `text`."""
    own = code_points(text)
    cjk, formula = _scripts_and_formulae(own)
    return Content(int(cjk), int(formula), int(_code(own)))


@compiled
def _is_letter(point: Any) -> Any:
    return 97 <= point <= 122 or 65 <= point <= 90


@compiled
def _scripts_and_formulae(own: Any) -> Any:
    cjk, formula, i = 0, 0, 0
    while i < own.size:
        point = own[i]
        if point < 0x80:
            length = _formula_length(own, i) if point == 36 or point == 92 else 0
            formula += length
            i += max(length, 1)
            continue
        cjk += (
            0x3040 <= point <= 0x30FF
            or 0x3400 <= point <= 0x4DBF
            or 0x4E00 <= point <= 0x9FFF
            or 0xAC00 <= point <= 0xD7A3
            or 0xF900 <= point <= 0xFAFF
            or 0x20000 <= point <= 0x3FFFF
        )
        formula += 0x2200 <= point <= 0x22FF or 0x27C0 <= point <= 0x2AFF or 0x1D400 <= point <= 0x1D7FF
        i += 1
    return cjk, formula


@compiled
def _formula_length(own: Any, start: Any) -> Any:
    """Characters of the formula or command of TeX that begins at a dollar sign or a backslash; 0 when none does."""
    last = min(own.size, start + _LONGEST_FORMULA)
    if own[start] == 92:
        if start + 1 >= own.size:
            return 0
        closing = 41 if own[start + 1] == 40 else 93 if own[start + 1] == 91 else 0
        if closing:
            for i in range(start + 2, last - 1):
                if own[i] == 92 and own[i + 1] == closing:
                    return i + 2 - start
            return 0
        i = start + 1
        if i + 1 < own.size and own[i] == 102 and 65 <= own[i + 1] <= 90:
            return 0  # \fB, \fI: a change of font in a manual page
        while i < own.size and _is_letter(own[i]):
            i += 1
        return i - start if i - start > 2 else 0
    double = start + 1 < own.size and own[start + 1] == 36
    begin = start + 2 if double else start + 1
    # As in Pandoc: no blank inside of either sign and no digit behind, or it is an amount of money or a variable.
    if begin >= own.size or (not double and own[begin] <= _SPACE):
        return 0
    for i in range(begin + 1, last):
        if own[i] == _LINE_END and (not double) and own[i - 1] == _LINE_END:
            return 0
        if own[i] == 36 and own[i - 1] != 92:
            if double:
                return i + 2 - start if i + 1 < own.size and own[i + 1] == 36 else 0
            follows = own[i + 1] if i + 1 < own.size else _SPACE
            if own[i - 1] <= _SPACE or 48 <= follows <= 57 or _is_letter(follows):
                return 0
            return i + 1 - start
    return 0


@compiled
def _code(own: Any) -> Any:
    found, begin = 0, 0
    for i in range(own.size + 1):
        if i == own.size or own[i] == _LINE_END:
            if _looks_like_code(own, begin, i):
                found += i - begin
            begin = i + 1
    return found


@compiled
def _looks_like_code(own: Any, begin: Any, end: Any) -> Any:
    """Whether the line holds one strong or two weak signs of code."""
    first = begin
    while first < end and own[first] <= _SPACE:
        first += 1
    while end > first and own[end - 1] <= _SPACE:
        end -= 1
    if first == end:
        return False
    is_item = own[first] == 45 and first + 1 < end and own[first + 1] == _SPACE  # of a list inside of a list
    signs = _WEAK if (first - begin >= 2 and not is_item) or own[begin] == _TAB else 0
    closes = own[end - 1]
    if closes == 59 or closes == 123 or closes == 125:  # ; { }
        signs += _STRONG
    elif closes == 58 or closes == 44 or closes == 41 or closes == 40 or closes == 93 or closes == 91:
        # : , ) ( ] [
        signs += _WEAK
    opens, second = own[first], own[first + 1] if first + 1 < end else _SPACE
    if (opens == 35 and _is_letter(second)) or (opens == 47 and (second == 42 or second == 47)):
        signs += _STRONG  # #include, /*, //
    assigned = called = False
    for i in range(first, end - 1):
        one, two = own[i], own[i + 1]
        if one == 92 and _is_letter(two) and i + 2 < end and _is_letter(own[i + 2]):
            return False  # a command of TeX
        if two == 61:  # == != += -= :=
            signs += _STRONG if one == 61 or one == 33 or one == 43 or one == 58 else 0
        elif two == 62:  # -> =>
            signs += _STRONG if one == 45 or one == 61 else 0
        elif one == two and (one == 58 or one == 38 or one == 124):  # :: && ||
            signs += _STRONG
        elif two == 40 and (_is_letter(one) or one == 95):  # name(
            called = True
        elif one == 40 and two == 41:  # ()
            signs += _STRONG
        assigned = assigned or (one == 61 and two == _SPACE)
    return signs + _WEAK * called + _WEAK * assigned >= _STRONG
