"""One thing or several: how messages count."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, many: str) -> str:
    """`1 rank`, `2 ranks`, `1,200 accumulated micro-batches`: `many` is the word for several."""
    return f"{number:,.0f} {one_of(many) if number == 1 else many}"


def one_of(many: str) -> str:
    """The word for one: `rank` of `ranks`, `entry` of `entries`; a word that has no plural stays as it is."""
    if many.endswith("ies"):
        return many.removesuffix("ies") + "y"
    return many.removesuffix("es") if many.endswith(("sses", "ches")) else many.removesuffix("s")


def first_of(names: Sequence[str], most: int = 8, between: str = ", ") -> str:
    """`a, b`; of more than `most` the first ones, and how many there are beside them: `a, b and 1,998 more`."""
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
