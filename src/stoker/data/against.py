"""The prepared corpora that a recipe names under `data.deduplication.against`."""

from __future__ import annotations

from pathlib import Path

from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.place_of_url import is_url
from stoker.data.published import bring, folder_of_url
from stoker.errors import BadInput
from stoker.progress import Progress
from stoker.recipe.loading import LoadedRecipe


def earlier_corpora(loaded: LoadedRecipe, progress: Progress) -> list[Corpus]:
    """Those corpora, opened in the order given, fetched where a URL names one.

    Raises `BadInput` where there is none, and what `published.bring` raises.
    """
    corpora = []
    for written, folder in folders_of_earlier(loaded):
        if is_url(written):
            if not bring(written, folder, progress):
                raise BadInput(
                    f"data.deduplication.against: there is no prepared corpus at {written} (it has no {MANIFEST})"
                )
        elif not (folder / MANIFEST).is_file():
            raise BadInput(
                f"data.deduplication.against: {folder} holds no prepared corpus; name the folder that has its "
                f"{MANIFEST}"
            )
        corpora.append(Corpus.open(folder))
    return corpora


def folders_of_earlier(loaded: LoadedRecipe) -> list[tuple[str, Path]]:
    """What is written there, and the folder of this machine that it stands for: of a URL, where it is kept."""
    return [
        (written, folder_of_url(loaded.prepared_folder, written) if is_url(written) else loaded.resolve(written))
        for written in loaded.recipe.data.deduplication.against
    ]
