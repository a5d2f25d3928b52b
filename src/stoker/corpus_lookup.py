"""Which prepared corpus a path on the command line means."""

from __future__ import annotations

from pathlib import Path

from stoker.data.corpus import Corpus
from stoker.data.prepare import find_prepared
from stoker.errors import BadInput
from stoker.recipe.loading import load_recipe
from stoker.run_directory import RunDirectory
from stoker.training.origin import corpus_of


def corpus_at(path: Path) -> Corpus:
    """The corpus of a recipe (a file), of a run, or at a prepared corpus's own folder.

    Raises `BadInput` when the path is none of these, or when the recipe's text is not prepared yet.
    """
    if path.is_dir():
        if (path / "manifest.json").is_file():
            return Corpus.open(path)
        run = RunDirectory(path)
        if run.origin.is_file():
            return corpus_of(run)
        if not run.recipe.is_file():
            raise BadInput(f"{path} is neither a run nor a prepared corpus; give a recipe, a run or a corpus")
        path = run.recipe  # a folder that holds a recipe and no run
    corpus = find_prepared(load_recipe(path))
    if corpus is None:
        raise BadInput(f"the text of {path} is not prepared yet; run `stoker prepare {path}` first")
    return corpus
