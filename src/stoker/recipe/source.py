"""One body of text: where it lies, how it is read, what share of the mixture it has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.section import Section

Kind = Literal["prose", "code", "mathematics", "dialogue"]


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
    format: Literal["auto", "text", "jsonl", "parquet", "html", "warc", "code"] = "auto"
    """How files are read; `auto` decides by file name. `code` reads a tree of source files, `warc` web archives."""
    extract: Literal["whole", "docstrings", "strings"] = "whole"
    """`docstrings` keeps the docstrings of Python files, `strings` their long string literals."""
    extraction: Literal["stoker", "trafilatura", "resiliparse"] = "stoker"
    """What takes the main text out of web pages; the others are libraries, extras of the same names."""
    documents: Literal["file", "line", "paragraph"] = "file"
    """What one document of a text file is: the file, each line, or each blank-line-separated paragraph."""
    remove_pattern: str | None = None
    """Regular expression whose matches are deleted from each document before cleaning (tags, for instance)."""
    text_field: str = "text"
    """Field (JSON) or column (parquet) that holds the text."""
    id_field: str | None = None
    """Field or column that identifies a document; by default file name and position do."""
    url_field: str | None = None
    """Field or column with the address of the page that a document was taken from. It stands in the ledger behind
    the position, and `data.deduplication.host_furniture` goes by its host. Web archives say it themselves."""
    encoding: str | None = None
    """Character encoding of the files; detected when not given."""
    synthetic: bool = False
    """Whether a model wrote it: counted against `data.synthetic_share_at_most`."""
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
