"""The corpus that a recipe names instead of text to prepare."""

from __future__ import annotations

from stoker.data.corpus import MANIFEST, Corpus
from stoker.errors import BadInput
from stoker.recipe.loading import LoadedRecipe


def given_corpus(loaded: LoadedRecipe) -> Corpus | None:
    """The corpus at `data.corpus`, None where the recipe has none.

    Raises `BadInput` when there is none at that place, or when its sources are not the recipe's.
    """
    given = loaded.recipe.data.corpus
    if given is None:
        return None
    folder = loaded.resolve(given)
    if not (folder / MANIFEST).is_file():
        raise BadInput(f"data.corpus: {folder} is no prepared corpus (it has no {MANIFEST})")
    corpus = Corpus.open(folder)
    names = [source.name for source in loaded.recipe.data.sources]
    if sorted(names) != sorted(corpus.source_names):
        raise BadInput(
            f"data.corpus: {folder} has the sources {', '.join(corpus.source_names)}, data.sources those named "
            f"{', '.join(names)}; name the same (a weight of 0 leaves one out)"
        )
    return corpus
