"""Where a run came from: the recipe's file and the prepared corpus, which lie outside its folder."""

from __future__ import annotations

import json
from pathlib import Path

from stoker.data.corpus import Corpus
from stoker.durable_files import write_json
from stoker.errors import BadInput
from stoker.run_directory import RunDirectory


def write_origin(run: RunDirectory, recipe: Path, corpus: Path) -> None:
    """Note where recipe and corpus are."""
    write_json(run.origin, {"recipe": str(recipe.resolve()), "corpus": str(corpus.resolve())})


def corpus_of(run: RunDirectory) -> Corpus:
    """The corpus that `run` is trained on. Raises `BadInput` when it is gone."""
    run.require_run()
    if not run.origin.is_file():
        raise BadInput(f"{run.path} does not say where its corpus is ({run.origin.name} is missing)")
    try:
        origin = json.loads(run.origin.read_text(encoding="utf-8"))
        folder = Path(origin["corpus"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{run.origin} is damaged; `stoker train` on this run's recipe writes it anew") from error
    if not folder.is_dir():
        raise BadInput(
            f"the corpus of {run.path} is gone: {folder}; make it again with `stoker prepare {origin['recipe']}`"
        )
    return Corpus.open(folder)
