"""Documents that a threshold only just dropped, or only just kept."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stoker.data.ledger.asked import is_asked
from stoker.data.ledger.description import RuleNote
from stoker.data.ledger.reading import Ledger
from stoker.data.ledger.schema import MEASURE

_SMALLEST = 1e-6
"""A threshold of 0 has no relative distances; then they are as they are."""


@dataclass(frozen=True, slots=True)
class Borderline:
    """One document beside a threshold."""

    row: int
    measure: str
    value: float
    threshold: float
    distance: float
    """How far the value is from the threshold, relative to the threshold."""


def rules_for(ledger: Ledger, reason: str) -> dict[str, list[RuleNote]]:
    """The rules that give a reason, by the source whose documents they are asked of; empty for other reasons."""
    found: dict[str, list[RuleNote]] = {}
    for source, _, rule in ledger.description.rules():
        if rule.reason == reason:
            found.setdefault(source.name, []).append(rule)
    return found


def borderline(ledger: Ledger, reason: str, count: int, kept: bool = False) -> list[Borderline]:
    """The `count` documents dropped for `reason`, or `kept` by its rules, that are nearest to the threshold.

    Nearest first; of several rules with one reason, a dropped document is as far as the farthest that rejects it.
    Documents that are kept may be held out, or repeat others. Empty when no rule with a threshold gives `reason`.
    """
    found: list[Borderline] = []
    for source, rules in rules_for(ledger, reason).items():
        frame = ledger.rows().with_row_index("row").filter(pl.col("source") == source)
        if kept:
            frame = frame.filter(pl.col("verdict").is_in(["kept", "held_out"]))
        else:
            frame = frame.filter(pl.col("reason") == reason)
        found += _nearest(ledger, frame, rules, count, kept)
    return sorted(found, key=lambda one: (one.distance, one.row))[:count]


def _nearest(
    ledger: Ledger, frame: pl.LazyFrame, rules: list[RuleNote], count: int, kept: bool
) -> list[Borderline]:
    distances = [_distance(rule, kept) for rule in rules]
    over = pl.min_horizontal(distances) if kept else pl.max_horizontal(distances)
    names = list(dict.fromkeys(MEASURE + rule.measure for rule in rules))
    nearest = ledger.collected(
        frame.select(
            "row",
            *names,
            *(one.alias(f"distance {place}") for place, one in enumerate(distances)),
            over.alias("over"),
        )
        .drop_nulls("over")
        .sort("over", "row")
        .head(count)
    )
    found = []
    for row in nearest.iter_rows(named=True):
        rule = next(rule for place, rule in enumerate(rules) if row[f"distance {place}"] == row["over"])
        value = row[MEASURE + rule.measure]
        found.append(Borderline(row["row"], rule.measure, value, rule.threshold, row["over"]))
    return found


def _distance(rule: RuleNote, kept: bool) -> pl.Expr:
    """Relative distance from the threshold on the side asked for; null on the other."""
    value = pl.col(MEASURE + rule.measure).cast(pl.Float64)
    beyond = value - rule.threshold if rule.drops == "above" else rule.threshold - value
    # A measure is kept in 32 bits: one that is its threshold to within these stands on either side.
    beyond = pl.when(beyond.abs() <= abs(rule.threshold) * 2**-24).then(0.0).otherwise(beyond)
    wanted = (beyond <= 0 if kept else beyond >= 0) & is_asked(rule)
    return pl.when(wanted).then(beyond.abs() / max(abs(rule.threshold), _SMALLEST)).otherwise(None)
