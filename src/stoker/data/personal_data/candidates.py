"""One pass that finds the few places of a text where personal data could stand; only these are read closely."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.kernels import compiled

DIGITS, TOKEN, ACCOUNT = 0, 1, 2
"""What stands at a place: a row of digits with single separators, a long word with a digit in it, or two capital
letters before two digits."""
_LEAST_DIGITS = 7
_LEAST_TOKEN = 20
_PLAIN, _DIGIT, _UPPER, _LOWER, _JOINT, _SEPARATOR = range(6)


def _classes() -> npt.NDArray[np.uint8]:
    table = np.zeros(128, np.uint8)
    for characters, own in (
        ("0123456789", _DIGIT),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", _UPPER),
        ("abcdefghijklmnopqrstuvwxyz", _LOWER),
        ("_-", _JOINT),
        (" .()", _SEPARATOR),
    ):
        table[[ord(character) for character in characters]] = own
    return table


_CLASSES = _classes()


def candidates(code_points: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Where to look, in order: rows (first character, one past the last, what stands there) [places, 3]."""
    found: npt.NDArray[np.int64] = _candidates(code_points, _CLASSES)
    return found


@compiled
def _row_of_digits(own: Any, start: int, classes: Any) -> Any:
    digits, dots, stop, i = 0, 0, start, start
    while i < own.size:
        what = classes[min(own[i], 127)]
        if what == _DIGIT:
            digits += 1
            stop = i + 1
        elif (what == _SEPARATOR or own[i] == 45) and i - stop < 2:
            dots += own[i] == 46
        else:
            break
        i += 1
    return stop, digits, dots


@compiled
def _in_word(character: Any, classes: Any) -> Any:
    return _DIGIT <= classes[min(character, 127)] <= _JOINT


@compiled
def _candidates(own: Any, classes: Any) -> Any:
    found = np.empty((16, 3), np.int64)
    count, i, word_until, row_until = 0, 0, 0, 0
    while i < own.size:
        if own[i] < 48 or own[i] > 57:
            i += 1
            continue
        if count + 3 > found.shape[0]:
            grown = np.empty((2 * found.shape[0], 3), np.int64)
            grown[:count] = found[:count]
            found = grown
        if i >= word_until:
            first = i
            while first > word_until and _in_word(own[first - 1], classes):
                first -= 1
            word_until = i + 1
            while word_until < own.size and _in_word(own[word_until], classes):
                word_until += 1
            if word_until - first >= _LEAST_TOKEN:
                found[count, 0], found[count, 1], found[count, 2] = first, word_until, TOKEN
                count += 1
            apart = i - first == 2 and 65 <= own[first] <= 90 and 65 <= own[first + 1] <= 90
            if apart and i + 1 < own.size and 48 <= own[i + 1] <= 57:
                found[count, 0], found[count, 1], found[count, 2] = first, i + 2, ACCOUNT
                count += 1
        if i >= row_until and (i == 0 or not _in_word(own[i - 1], classes) or own[i - 1] == 45):
            row_until, digits, dots = _row_of_digits(own, i, classes)
            if digits >= _LEAST_DIGITS or (dots >= 3 and digits >= 4):
                found[count, 0], found[count, 1], found[count, 2] = i, row_until, DIGITS
                count += 1
        while i < own.size and 48 <= own[i] <= 57:
            i += 1
    return found[:count]
