"""What every section of a recipe is: a typed, frozen value that refuses keys it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all recipe sections. `use_attribute_docstrings` turns field docstrings into schema descriptions."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, strict=False, allow_inf_nan=False
    )
