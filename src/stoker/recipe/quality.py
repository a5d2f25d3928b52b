"""The `data.cleaning.quality` and `data.cleaning.perplexity` sections: models of ours that judge each document."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from stoker.recipe.section import Section
from stoker.recipe.source import Kind

_PROSE: tuple[Kind, ...] = ("prose", "dialogue")
_EVERYTHING: tuple[Kind, ...] = ("prose", "code", "mathematics", "dialogue")


class Quality(Section):
    """Scores by a classifier, kept as the measure `quality.score`. Without `model` it is off."""

    model: str | None = None
    """File that `stoker data train-classifier` wrote, relative to the recipe."""
    minimum: float | None = Field(default=None, gt=0, le=1)
    """Documents that score below are dropped as `low_quality`; scores go from 0 to 1. None drops none."""
    keep_best: float | None = Field(default=None, gt=0, lt=1)
    """Of each source, the share of its documents that is kept: the rest, which scores lowest, is dropped in
    selection as `not_among_best`. None drops none."""
    kinds: tuple[Kind, ...] = Field(default=_PROSE, min_length=1)
    """Kinds of text that are scored: those that the classifier was trained on."""

    @model_validator(mode="after")
    def _does_something(self) -> Quality:
        _require_model(self.model, {"minimum": self.minimum, "keep_best": self.keep_best})
        return self

    def located(self, folder: Path) -> Quality:
        """The same with a path that does not depend on where the process stands; `folder` is the recipe's."""
        return self.model_copy(update={"model": _absolute(self.model, folder)})


class Perplexity(Section):
    """How surprising each document is to a model of characters, kept as `perplexity.bits_per_character`. Without
    `model` it is off. Shares are of the documents of one kind and language: what is usual differs among them."""

    model: str | None = None
    """File that `stoker data train-perplexity` wrote, relative to the recipe."""
    drop_lowest: float = Field(default=0, ge=0, lt=0.5)
    """Share dropped as `least_surprising`: lists, templates, text that repeats itself."""
    drop_highest: float = Field(default=0, ge=0, lt=0.5)
    """Share dropped as `most_surprising`: text that was read wrongly, noise; but also verse and formulae."""
    kinds: tuple[Kind, ...] = Field(default=_EVERYTHING, min_length=1)
    """Kinds of text that are measured."""

    @model_validator(mode="after")
    def _does_something(self) -> Perplexity:
        _require_model(self.model, {"drop_lowest": self.drop_lowest, "drop_highest": self.drop_highest})
        return self

    def located(self, folder: Path) -> Perplexity:
        """The same with a path that does not depend on where the process stands; `folder` is the recipe's."""
        return self.model_copy(update={"model": _absolute(self.model, folder)})


def _require_model(model: str | None, wishes: dict[str, float | None]) -> None:
    if model is None and (given := [name for name, value in wishes.items() if value]):
        raise ValueError(f"{' and '.join(given)} have no effect without `model`")


def _absolute(path: str | None, folder: Path) -> str | None:
    return None if path is None else str(folder.absolute() / Path(path).expanduser())
