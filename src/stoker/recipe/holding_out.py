"""Sources of which probably nothing is held out: told before they are prepared, where their files say so."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from stoker.plural import counted
from stoker.recipe.given_text import PLAIN, files_in
from stoker.recipe.loading import LoadedRecipe
from stoker.recipe.source import Source

_ENOUGH_DOCUMENTS = 10
"""Of so many, preparation holds out one at least."""


def warnings_of(loaded: LoadedRecipe) -> tuple[str, ...]:
    """One line for each source that evaluations will likely have nothing of. What cannot be known is not told."""
    share = loaded.recipe.data.held_out
    if share == 0:
        return ("data.held_out is 0: nothing is held out, so evaluations have no text to score",)
    found = []
    for source in loaded.recipe.data.sources:
        documents = _documents(loaded, source)
        if documents is not None and documents < _ENOUGH_DOCUMENTS:
            found.append(
                f"source {source.name}: {counted(documents, 'documents')}. Of fewer than {_ENOUGH_DOCUMENTS} it is "
                f"left to chance whether any is held out ({1 - (1 - share) ** documents:.0%} with data.held_out "
                f"{share:g}); without one, evaluations have nothing of it to score. Raise data.held_out, or let "
                "`documents: paragraph` make more of them"
            )
    return tuple(found)


def _documents(loaded: LoadedRecipe, source: Source) -> int | None:
    """How many documents there are, up to ten; None where it takes reading the files to know."""
    as_files = source.documents == "file" and source.extract == "whole" and source.format in ("auto", "text")
    if not as_files or not source.paths:
        return None
    files = list(islice(dict.fromkeys(_files(loaded, source)), _ENOUGH_DOCUMENTS))
    return len(files) if all(file.suffix.lower() in PLAIN for file in files) else None


def _files(loaded: LoadedRecipe, source: Source) -> Iterator[Path]:
    for written in source.paths:
        path = loaded.resolve(written)
        if path.exists():
            yield from files_in(path)
        else:
            yield from map(Path, glob.iglob(str(path), recursive=True))  # noqa: PTH207, patterns may be absolute
