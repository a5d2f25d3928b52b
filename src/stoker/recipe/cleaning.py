"""The `data.cleaning` section: what is done to each document, and which are dropped."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stoker.recipe.section import Section


class Cleaning(Section):
    """Cleaning and heuristic filters; what is applied depends on each source's kind."""

    filters: bool = True
    """Drop documents that the filters of their kind reject (each with a reason in the ledger)."""
    minimum_characters: int = Field(default=1, ge=1)
    """Shorter documents are dropped as `too_short`."""
    maximum_document_bytes: int = Field(default=16 * 2**20, ge=1024)
    """Larger documents are dropped as `too_large`; bounds memory, in bytes."""
    script: Literal["keep", "simplified", "traditional"] = "keep"
    """Bring the Chinese of prose and mathematics into one script, phrase by phrase (needs `stoker[chinese]`)."""
    half_width_letters: bool = False
    """Write full-width Latin letters and digits of Chinese text (`ＡＢＣ１`) in their usual width."""
