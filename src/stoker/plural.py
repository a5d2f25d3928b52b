"""One thing or several: how messages count."""

from __future__ import annotations


def counted(number: float, many: str) -> str:
    """`1 rank`, `2 ranks`, `1,200 accumulated micro-batches`: `many` is the word for several."""
    return f"{number:,.0f} {one_of(many) if number == 1 else many}"


def one_of(many: str) -> str:
    """The word for one: `rank` of `ranks`, `entry` of `entries`; a word that has no plural stays as it is."""
    if many.endswith("ies"):
        return many.removesuffix("ies") + "y"
    return many.removesuffix("es") if many.endswith(("sses", "ches")) else many.removesuffix("s")
