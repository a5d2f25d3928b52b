"""Whether a recipe's text is prepared already, found without loading what preparing needs."""

from __future__ import annotations

from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.executors import worker_count
from stoker.data.fingerprint import take_inputs
from stoker.data.given_corpus import given_corpus
from stoker.data.more_memory import attempt_of
from stoker.data.place_of_url import is_url
from stoker.data.published import bring, url_in
from stoker.progress import Progress, Silent
from stoker.recipe.loading import LoadedRecipe


def find_prepared(loaded: LoadedRecipe, progress: Progress | None = None) -> Corpus | None:
    """The prepared corpus of a recipe if it is there already; nothing is made, but what is published is fetched.

    `progress` is told of the fetch. Raises what `published.bring` raises.
    """
    progress, prepared = progress or Silent(), loaded.recipe.data.prepared
    given = given_corpus(loaded, progress)
    if given is not None or not (is_url(prepared) or loaded.prepared_folder.is_dir()):
        return given
    inputs = take_inputs(loaded, worker_count(loaded.recipe.data.workers), Silent())
    fingerprint = attempt_of(loaded.prepared_folder, inputs.fingerprint)
    folder = loaded.prepared_folder / fingerprint
    if (url := url_in(prepared, fingerprint)) is not None and not bring(url, folder, progress):
        return None
    return Corpus.open(folder) if (folder / MANIFEST).is_file() else None
