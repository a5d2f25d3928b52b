"""Of which rows of a ledger a rule was asked: one for certain languages of no document in another."""

from __future__ import annotations

import polars as pl

from stoker.data.ledger.description import RuleNote


def is_asked(rule: RuleNote) -> pl.Expr:
    """Whether a row's document is in a language that `rule` is asked of (`zh` covers `zh-TW`)."""
    if rule.languages is None:
        return pl.lit(True)
    tag = pl.col("language").str.to_lowercase().str.replace_all("_", "-", literal=True).str.split("-").list.first()
    return tag.is_in(rule.languages).fill_null(False)
