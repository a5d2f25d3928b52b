"""Whether a recipe's text is prepared already, found without loading what preparing needs."""

from __future__ import annotations

from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.executors import worker_count
from stoker.data.fingerprint import take_inputs
from stoker.data.given_corpus import given_corpus
from stoker.progress import Silent
from stoker.recipe.loading import LoadedRecipe


def find_prepared(loaded: LoadedRecipe) -> Corpus | None:
    """The prepared corpus of a recipe if it is there already; nothing is made."""
    given = given_corpus(loaded)
    if given is not None or not loaded.prepared_folder.is_dir():
        return given
    inputs = take_inputs(loaded, worker_count(loaded.recipe.data.workers), Silent())
    folder = loaded.prepared_folder / inputs.fingerprint
    return Corpus.open(folder) if (folder / MANIFEST).is_file() else None
