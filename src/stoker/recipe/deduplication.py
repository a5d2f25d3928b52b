"""The `data.deduplication` section: which repetitions are removed."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from stoker.recipe.section import Section
from stoker.recipe.source import Kind

_CHANCE_WANTED = 0.98
"""Probability with which a pair at the threshold must be proposed."""


class Deduplication(Section):
    """Removal of what is repeated, across all sources."""

    exact: bool = True
    """Remove documents whose cleaned text is identical to that of a preferred one."""
    near: bool = True
    """Remove near-duplicates (MinHash-LSH candidates, then verified by Jaccard similarity)."""
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Jaccard similarity of shingles at or above which two documents count as near-duplicates."""
    shingle_size: int = Field(default=5, ge=1, le=64)
    """Length of a shingle: words in spaced scripts, characters in scripts without spaces."""
    permutations: int = Field(default=128, ge=16, le=1024)
    """Length of a MinHash signature."""
    bands: int | None = Field(default=None, ge=1, le=1024)
    """Bands into which a signature is cut; by default computed from the threshold."""
    rows: int | None = Field(default=None, ge=1, le=1024)
    """Entries of a signature in each band; given together with `bands`."""
    clusters: Literal["direct", "connected"] = "direct"
    """A document goes when it resembles one that is kept (`direct`), or when a chain of resemblances links it with
    one (`connected`): then it may differ from the one kept by more than the threshold."""
    keep: Literal["earliest", "longest", "best"] = "earliest"
    """Which of several is kept: that of the earliest source, file and line, the longest, or that of the highest
    `quality`."""
    quality: str | None = None
    """Measure by which `keep: best` compares, as the ledger names it."""

    paragraph_copies: int | None = Field(default=None, ge=1)
    """Copies of a paragraph that stay; those that come after are cut out of their documents. None cuts nothing."""
    paragraph_characters: int = Field(default=50, ge=1)
    """Paragraphs shorter than this stay."""
    line_copies: int | None = Field(default=None, ge=1)
    """Copies of a line that stay, after paragraphs have been cut. None cuts nothing."""
    line_characters: int = Field(default=20, ge=1)
    """Lines shorter than this stay."""
    substring_bytes: int | None = Field(default=None, ge=32)
    """Passages of at least this many bytes of UTF-8 that stand before, word for word, are cut, after lines."""
    against: tuple[str, ...] = ()
    """Folders of prepared corpora, relative to the recipe, or URLs of published ones, which are fetched: documents
    that reach the threshold with one that these train on are dropped, also from what is held out."""
    keep_signatures: bool = False
    """Publish the signatures with the corpus (4 bytes for each of `permutations` and each document), so that it
    need not be decoded where another recipe names it under `against`."""
    passages_of: tuple[Kind, ...] = Field(default=("prose", "dialogue"), min_length=1)
    """Kinds of text from which passages are cut; code and formulas are seldom whole without them."""

    host_furniture: Literal["off", "hosts", "hosts_and_sources"] = "hosts"
    """Cut lines of prose that recur in the same company on many pages of a host: menus, notices, footers. `hosts`
    does so where the address of a page is known (web archives, `url_field`); `hosts_and_sources` also takes a
    source without addresses for one host. It is done before passages are looked for, and in held-out text too."""

    @property
    def cuts_passages(self) -> bool:
        """Whether anything is cut out of documents."""
        return any(given is not None for given in (self.paragraph_copies, self.line_copies, self.substring_bytes))

    @model_validator(mode="after")
    def _can_find_what_it_seeks(self) -> Deduplication:
        if (self.bands is None) != (self.rows is None):
            raise ValueError("bands and rows go together; give both, or neither to have them computed")
        if (self.keep == "best") != (self.quality is not None):
            raise ValueError("`keep: best` wants the name of a measure in `quality`, and nothing else does")
        if self.bands is not None and self.rows is not None:
            self._check_bands(self.bands, self.rows)
            return self
        chance = 1 - (1 - self.threshold) ** self.permutations
        if self.near and chance < _CHANCE_WANTED:
            needed = math.ceil(math.log(1 - _CHANCE_WANTED) / math.log(1 - self.threshold))
            raise ValueError(
                f"with {self.permutations} permutations only {chance:.0%} of the pairs at threshold "
                f"{self.threshold} would be found; use at least {needed} permutations or a higher threshold"
            )
        return self

    def _check_bands(self, bands: int, rows: int) -> None:
        if bands * rows > self.permutations:
            raise ValueError(
                f"{bands} bands of {rows} rows want {bands * rows} permutations, and there are {self.permutations}"
            )
        chance = 1 - (1 - self.threshold**rows) ** bands
        if chance < _CHANCE_WANTED:
            raise ValueError(
                f"{bands} bands of {rows} rows find only {chance:.0%} of the pairs at threshold {self.threshold}; "
                "use more bands or fewer rows"
            )
