"""Under which licence each source's text comes."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.data.reading.packages import package_licence
from stoker.recipe import Source
from stoker.recipe.loading import LoadedRecipe

NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class Licence:
    """One line of `stoker data licences`."""

    source: str
    origin: str
    """A package, or the source's paths."""
    licence: str
    stated_by: str
    """`recipe`, `package` or `nobody`."""


def licences(loaded: LoadedRecipe) -> list[Licence]:
    """The licence of every source, package by package. What nobody states is `not stated`."""
    return [line for source in loaded.recipe.data.sources for line in _of_source(source)]


def _of_source(source: Source) -> list[Licence]:
    if source.paths:
        stated = source.licence is not None
        return [
            Licence(
                source.name,
                ", ".join(source.paths),
                source.licence or NOT_STATED,
                "recipe" if stated else "nobody",
            )
        ]
    lines = []
    for package in dict.fromkeys(wanted.package for wanted in source.packages):
        declared = package_licence(package)
        if source.licence is not None:
            lines.append(Licence(source.name, package, source.licence, "recipe"))
        elif declared is not None:
            lines.append(Licence(source.name, package, declared, "package"))
        else:
            lines.append(Licence(source.name, package, NOT_STATED, "nobody"))
    return lines


def licence_of(source: Source) -> str:
    """A source's licence in one line, for the manifest."""
    return ", ".join(dict.fromkeys(line.licence for line in _of_source(source)))
