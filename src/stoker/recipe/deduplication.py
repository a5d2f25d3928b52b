"""The `data.deduplication` section: which repetitions are removed."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from stoker.recipe.section import Section


class Deduplication(Section):
    """Removal of repeated documents, across all sources."""

    exact: bool = True
    """Remove documents whose cleaned text is identical to an earlier one's."""
    near: bool = True
    """Remove near-duplicates (MinHash-LSH candidates, then verified by Jaccard similarity)."""
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Jaccard similarity of shingles at or above which two documents count as near-duplicates."""
    shingle_size: int = Field(default=5, ge=1, le=64)
    """Length of a shingle: words in spaced scripts, characters in scripts without spaces."""
    permutations: int = Field(default=128, ge=16, le=1024)
    """Length of a MinHash signature."""

    @model_validator(mode="after")
    def _can_find_what_it_seeks(self) -> Deduplication:
        chance = 1 - (1 - self.threshold) ** self.permutations
        if self.near and chance < 0.98:
            needed = math.ceil(math.log(0.02) / math.log(1 - self.threshold))
            raise ValueError(
                f"with {self.permutations} permutations only {chance:.0%} of the pairs at threshold "
                f"{self.threshold} would be found; use at least {needed} permutations or a higher threshold"
            )
        return self
