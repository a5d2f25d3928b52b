"""How figures are spelled for people."""

from __future__ import annotations

import math
import time
from typing import Any, TypeGuard

NOTHING = "–"
_LAST_TIME = 253_402_300_800.0
"""The end of the year 9999, in unix seconds: calendars go no further."""
_LARGEST = 1e300
"""A whole number beyond it has no float."""


def _is_known(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number: what a record of somebody else's making holds may be anything."""
    return isinstance(value, int | float) and -_LARGEST < value < _LARGEST


def count(value: float | None) -> str:
    """A number of things: 1,234 below ten thousand, then 12.3k, 4.56M, 7.89B, 1.23T."""
    if not _is_known(value):
        return NOTHING
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)}{letter}"
    return f"{value:,.0f}"


def _three_digits(value: float) -> str:
    """1.20, 12.0, 120, 1,200: at most three digits that count."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{decimals}f}"


def exact(value: float | None) -> str:
    """A whole number with thousands separated."""
    return f"{value:,.0f}" if _is_known(value) else NOTHING


def size(value: float | None) -> str:
    """A number of bytes."""
    if not _is_known(value):
        return NOTHING
    for unit, letter in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= unit:
            return f"{_three_digits(value / unit)} {letter}"
    return f"{value:.0f} B"


def duration(seconds: float | None) -> str:
    """A stretch of time in two units at most."""
    if not _is_known(seconds):
        return NOTHING
    if seconds < 1:
        return f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 60:
        return f"{_three_digits(seconds)} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def figure(value: float | None, digits: int = 4) -> str:
    """A measured figure with `digits` significant digits; NaN and Inf are named."""
    if value is None:
        return NOTHING
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - (math.floor(math.log10(abs(value))) if value else 0))
    return f"{value:,.{min(decimals, 8)}f}"


def percent(share: float | None) -> str:
    """A share of one as a percentage."""
    if not _is_known(share):
        return NOTHING
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share * 100:.1f}%" if share < 0.9995 or share > 1.0005 else "100%"


def moment(unix_time: float | None) -> str:
    """A point in time, in UTC."""
    if not _is_known(unix_time) or not 0 <= unix_time < _LAST_TIME:
        return NOTHING
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix_time))


def detail(value: Any) -> str:
    """The free-form detail of an event in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {detail(part)}" for key, part in value.items() if part is not None and part != [])
    if isinstance(value, list):
        return "–".join(detail(part) for part in value) if len(value) == 2 else ", ".join(map(detail, value))
    if isinstance(value, float):
        return figure(value)
    return str(value)


def words(name: str) -> str:
    """A field's name as words."""
    return name.replace("_", " ")


def one_line(text: str, most: int) -> str:
    """`text` in one line of at most `most` characters, without any that move a cursor or have no shape."""
    shown = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
