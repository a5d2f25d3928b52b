"""The prepared corpora that a recipe names under `data.deduplication.against`."""

from __future__ import annotations

from stoker.data.corpus import MANIFEST, Corpus
from stoker.errors import BadInput
from stoker.recipe.loading import LoadedRecipe


def earlier_corpora(loaded: LoadedRecipe) -> list[Corpus]:
    """Those corpora, opened in the order given. Raises `BadInput` where a folder holds none."""
    corpora = []
    for written in loaded.recipe.data.deduplication.against:
        folder = loaded.resolve(written)
        if not (folder / MANIFEST).is_file():
            raise BadInput(
                f"data.deduplication.against: {folder} holds no prepared corpus; name the folder that has its "
                f"{MANIFEST}"
            )
        corpora.append(Corpus.open(folder))
    return corpora
