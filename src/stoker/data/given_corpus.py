"""The corpus that a recipe names instead of text to prepare."""

from __future__ import annotations

from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.place_of_url import is_url
from stoker.data.published import bring, folder_of_url
from stoker.errors import BadInput
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe


def given_corpus(loaded: LoadedRecipe, progress: Progress) -> Corpus | None:
    """The corpus at `data.corpus`, fetched where that is a URL; None where the recipe has none.

    Raises `BadInput` when there is none at that place, or when its sources are not the recipe's.
    """
    given = loaded.recipe.data.corpus
    if given is None:
        return None
    data = loaded.recipe.data
    kept = loaded.resolve(data.prepared_cache or data.prepared_here)
    folder = folder_of_url(kept, given) if is_url(given) else loaded.resolve(given)
    if is_url(given) and not bring(given, folder, progress):
        raise BadInput(f"data.corpus: there is no prepared corpus at {given} (it has no {MANIFEST})")
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
