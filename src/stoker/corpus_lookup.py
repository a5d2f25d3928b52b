"""Which prepared corpus a path on the command line means."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.data.corpus import Corpus
from stoker.data.ledger import Ledger
from stoker.data.place_of_url import is_url
from stoker.data.published import bring, folder_of_url
from stoker.errors import BadInput
from stoker.plural import counted, first_of
from stoker.progress import Progress, Silent
from stoker.run_directory import RunDirectory
from stoker.training.origin import corpus_of

if TYPE_CHECKING:  # a corpus's own folder is looked into without loading what recipes need
    from stoker.data.feeding.as_recorded import Stretches
    from stoker.recipe.loading import LoadedRecipe

_FILES_NAMED = 12
_PLACE = re.compile(r"(?P<file>.+?)(?::|, )(?P<place>(?:[a-z]+ )?(?P<number>\d+))")
"""A place in a file, written `FILE:7` or as it is printed: `FILE, line 7`."""
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/([^/].*)", re.IGNORECASE)


def history_of(corpus: Corpus, name: str, most: int | None = None) -> list[dict[str, Any]]:
    """Ledger rows of a document, by identifier, or of a file: as the ledger has it, by path, or by its last parts;
    or of what stands at a place of such a file: `FILE:7`, `FILE, line 7`.

    Of a file, at most the first `most` documents and faults. Raises `BadInput` when there is none, or when the name
    is that of several files.
    """
    ledger = Ledger(corpus.folder)
    rows = ledger.why(name, most)
    if rows:
        return rows
    file = _file_meant(ledger, name)
    if file is not None:
        return ledger.why(file, most)
    place = _PLACE.fullmatch(name)
    file = _file_meant(ledger, place["file"]) if place else None
    if place and file is not None:
        if rows := ledger.standing_at(file, int(place["number"])):
            return rows
        raise BadInput(f"the ledger knows no document at {place['place']} of {file}")
    raise BadInput(
        f"the ledger knows no document and no file named {name!r}; `stoker data sample` shows some names"
    )


def _file_meant(ledger: Ledger, name: str) -> str | None:
    """The file that a path or its last parts mean, None when there is none; `BadInput` when there are several."""
    if ledger.rows_of(name):
        return name
    path = Path(name).expanduser()
    files = ledger.files_like(str(path.absolute()) if path.exists() else str(path))
    if len(files) > 1:
        more = f", and {len(files) - _FILES_NAMED:,} more" if len(files) > _FILES_NAMED else ""
        raise BadInput(
            f"{name!r} may be one of {counted(len(files), 'files')}; name one in full: "
            f"{', '.join(files[:_FILES_NAMED])}{more}"
        )
    return files[0] if files else None


def recorded_steps(run: RunDirectory) -> tuple[dict[int, Stretches], dict[int, str]]:
    """By step, as the run's record has them: the samples of those that were given others than the recipe's, and the
    digests of all batches. Empty where nothing is recorded yet."""
    from stoker.record import Record
    from stoker.record.given_samples import given_stretches

    rows = Record(run.record).steps(["given_samples", "batch_digest"])

    def of(name: str) -> list[tuple[int, str]]:
        return list(rows.select("step", name).drop_nulls().iter_rows()) if name in rows.columns else []

    given = {step: given_stretches(told) for step, told in of("given_samples")}
    return {step: stretches for step, stretches in given.items() if stretches}, dict(of("batch_digest"))


def recipe_at(path: Path) -> LoadedRecipe | None:
    """The recipe in whose files the text of `corpus_at(path)` lies; None where that is not known or gone."""
    from stoker.recipe.loading import load_recipe

    if path.is_file():
        return load_recipe(path)
    if not path.is_dir() or (path / "manifest.json").is_file():
        return None
    run = RunDirectory(path)
    recipe = _recipe_behind(run) if run.origin.is_file() else run.recipe
    return load_recipe(recipe) if recipe is not None and recipe.is_file() else None


def _recipe_behind(run: RunDirectory) -> Path | None:
    try:
        return Path(json.loads(run.origin.read_text(encoding="utf-8"))["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def url_of(path: Path) -> str | None:
    """The URL that a path of the command line was written as: a `Path` keeps one of its two slashes."""
    found = _URL.fullmatch(str(path))
    return None if found is None or path.exists() else f"{found[1]}://{'/' if found[1] == 'file' else ''}{found[2]}"


def _cache() -> Path:
    """Where corpora are kept that the command line named by their URL, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stoker" / "corpora"


def corpus_at(path: Path, progress: Progress | None = None) -> Corpus:
    """The corpus of a recipe (a file), of a run, at a prepared corpus's own folder, or at the URL of one.

    What stands under a URL is fetched once, of which `progress` is told. Raises `BadInput` when the path is none of
    these, or when the recipe's text is not prepared yet.
    """
    if (url := url_of(path)) is not None:
        folder = folder_of_url(_cache(), url)
        if not bring(url, folder, progress or Silent()):
            raise BadInput(f"there is no prepared corpus at {url} (it has no manifest.json)")
        return Corpus.open(folder)
    if path.is_dir():
        if (path / "manifest.json").is_file():
            return Corpus.open(path)
        run = RunDirectory(path)
        if run.origin.is_file():
            return corpus_of(run)
        if not run.recipe.is_file():
            raise BadInput(f"{path} is neither a run nor a prepared corpus; give a recipe, a run or a corpus")
        path = run.recipe  # a folder that holds a recipe and no run
    from stoker.data.prepared import find_prepared
    from stoker.recipe.loading import load_recipe

    loaded = load_recipe(path)
    corpus = find_prepared(loaded, progress)
    if corpus is None:
        raise BadInput(
            f"the text of {path} is not prepared yet; run `stoker prepare {path}` first{_other_corpora(loaded)}"
        )
    return corpus


def _other_corpora(loaded: LoadedRecipe) -> str:
    """The corpora where the recipe's would be, newest first: it may have been prepared with overrides."""
    if is_url(loaded.recipe.data.prepared):
        return ""
    manifests = sorted(loaded.prepared_folder.glob("*/manifest.json"), key=lambda file: -file.stat().st_mtime)
    if not manifests:
        return ""
    names = first_of([str(manifest.parent) for manifest in manifests], most=2)
    return f". What was prepared of other settings, such as overrides, is named by its own folder: {names}"
