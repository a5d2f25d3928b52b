"""The `data.cleaning.decontaminate` section: text of evaluation sets is kept out of training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from stoker.recipe.section import Section


class Decontamination(Section):
    """Documents that hold items of evaluation sets are dropped, or lose those lines. Without `paths` it is off."""

    paths: tuple[str, ...] = ()
    """Files, folders or globs of the evaluation sets, relative to the recipe: JSON lines, Parquet, or one item in
    each line of a text file."""
    fields: tuple[str, ...] = Field(default=("text",), min_length=1)
    """Fields (JSON) or columns (Parquet) that hold an item's texts; each is looked for by itself."""
    ngram: int = Field(default=13, ge=6, le=100)
    """Words in a row that are enough to take an item for found; shorter items are looked for whole."""
    ngram_characters: int = Field(default=26, ge=10, le=200)
    """The same in characters, for items in scripts without spaces such as Chinese."""
    action: Literal["drop", "cut"] = "drop"
    """`drop` the document, or `cut` the lines of it in which an item stands."""

    @field_validator("paths", "fields")
    @classmethod
    def _named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"named twice: {', '.join(repeated)}")
        return names

    def located(self, folder: Path) -> Decontamination:
        """The same with paths that do not depend on where the process stands; `folder` is the recipe's."""
        absolute = tuple(str(folder.absolute() / Path(path).expanduser()) for path in self.paths)
        return self.model_copy(update={"paths": absolute})
