"""The `data` and `tokenizer` sections: which text, how it is cleaned, how it becomes tokens."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.section import Section

Kind = Literal["prose", "code", "mathematics"]
SMALLEST_VOCABULARY = 260
"""The 256 bytes, two special tokens, and a little that was learnt."""


class PackageFiles(Section):
    """Files inside an installed Python package, or inside the standard library."""

    package: str
    """Importable name, such as `sympy`; `stdlib` names the standard library."""
    files: tuple[str, ...] = Field(min_length=1)
    """Globs relative to the package's folder, such as `**/*.py`."""
    exclude: tuple[str, ...] = ()
    """Globs relative to the package's folder that are left out."""


class Source(Section):
    """One named body of text with a weight in the mixture."""

    name: str = Field(pattern=r"^\.*[\w-][\w.-]*$", max_length=64)
    """Unique name, used in the ledger, the record and the report."""
    kind: Kind = "prose"
    """What the text is; cleaning and filters depend on it."""
    language: str | None = None
    """Language tag such as `en` or `zh`; for the report and for filters that need it."""
    paths: tuple[str, ...] = ()
    """Files, folders or globs, relative to the recipe."""
    packages: tuple[PackageFiles, ...] = ()
    """Files inside installed packages."""
    format: Literal["auto", "text", "jsonl", "parquet", "html", "code"] = "auto"
    """How files are read; `auto` decides by file name. `code` reads a tree of source files."""
    extract: Literal["whole", "docstrings", "strings"] = "whole"
    """`docstrings` keeps the docstrings of Python files, `strings` their long string literals."""
    documents: Literal["file", "line", "paragraph"] = "file"
    """What one document of a text file is: the file, each line, or each blank-line-separated paragraph."""
    remove_pattern: str | None = None
    """Regular expression whose matches are deleted from each document before cleaning (tags, for instance)."""
    text_field: str = "text"
    """Field (JSON) or column (parquet) that holds the text."""
    id_field: str | None = None
    """Field or column that identifies a document; by default file name and position do."""
    encoding: str | None = None
    """Character encoding of the files; detected when not given."""
    weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Share in the mixture, relative to the other weights. Not given anywhere: in proportion to tokens."""
    licence: str | None = None
    """Licence shown by `stoker data licences`; for packages the package's own is looked up."""

    @model_validator(mode="after")
    def _has_something_to_read(self) -> Source:
        if bool(self.paths) == bool(self.packages):
            raise ValueError("give either `paths` or `packages` (one of the two, not both, not none)")
        return self

    @field_validator("remove_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        import re

        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a valid regular expression: {error}") from error
        return pattern


class Cleaning(Section):
    """Cleaning and heuristic filters; what is applied depends on each source's kind."""

    filters: bool = True
    """Drop documents that the filters of their kind reject (each with a reason in the ledger)."""
    minimum_characters: int = Field(default=1, ge=1)
    """Shorter documents are dropped as `too_short`."""
    maximum_document_bytes: int = Field(default=16 * 2**20, ge=1024)
    """Larger documents are dropped as `too_large`; bounds memory, in bytes."""


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


class Data(Section):
    """Which text is trained on and how it is prepared."""

    sources: tuple[Source, ...] = Field(min_length=1)
    """The bodies of text, in the order that decides which copy of a duplicate is kept (earlier wins)."""
    prepared: str = "prepared"
    """Folder for prepared corpora, relative to the recipe; each is kept under a fingerprint of its inputs."""
    on_error: Literal["skip", "stop"] = "skip"
    """A corrupt line, file or archive is counted, named in the ledger and skipped; or stops the run."""
    workers: int | None = Field(default=None, ge=1)
    """Worker processes for preparation; by default one for each processor, at most two. The output is the same."""
    cleaning: Cleaning = Cleaning()
    deduplication: Deduplication = Deduplication()
    held_out: float = Field(default=0.01, ge=0, lt=0.5)
    """Share of documents held out for evaluation, chosen by content hash before deduplication."""
    shard_tokens: int = Field(default=2**24, ge=1024)
    """Tokens per shard file."""

    @model_validator(mode="after")
    def _sources_fit_together(self) -> Data:
        names = [source.name for source in self.sources]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"source names must be unique; repeated: {', '.join(repeated)}")
        weights = [source.weight for source in self.sources]
        if any(weight is None for weight in weights) and any(weight is not None for weight in weights):
            missing = [source.name for source in self.sources if source.weight is None]
            raise ValueError(f"give every source a weight, or none; without one: {', '.join(missing)}")
        if all(weight is not None for weight in weights) and math.fsum(w or 0.0 for w in weights) <= 0:
            raise ValueError("all weights are zero; give at least one source a positive weight")
        return self


class Tokenizer(Section):
    """How text becomes tokens."""

    path: str | None = None
    """A given `tokenizer.json`, relative to the recipe; without it a byte-level BPE is trained."""
    vocabulary_size: int = Field(default=4096, ge=SMALLEST_VOCABULARY, le=2**20)
    """Entries of a trained vocabulary, the 256 bytes and the special tokens included. Ignored with `path`."""
    add_bos: bool = True
    """Put exactly one beginning-of-text token before each document."""
    add_eos: bool = True
    """Put exactly one end-of-text token after each document."""
    bos_token: str = "<|begin_of_text|>"
    eos_token: str = "<|end_of_text|>"
    training_megabytes: float = Field(default=64, gt=0)
    """Text the vocabulary is trained on: a sample balanced over sources, in 10^6 bytes."""
