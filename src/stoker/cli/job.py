"""The verbs that take a recipe: `run`, `prepare`, `train`. The recipe is judged before torch is loaded."""

from __future__ import annotations

import gc
import os
import sys
from shlex import quote

from stoker.cli.address_space import require_address_space
from stoker.cli.arguments import AsJson, Overrides, RecipePath, RunFolder, load
from stoker.console import print_json, print_result, progress_for
from stoker.plural import counted


def run(recipe: RecipePath, overrides: Overrides = None, run: RunFolder = None, json: AsJson = False) -> None:
    """The main job: prepare the text, plan, train, evaluate and write the report.

    Does only what is not yet done; kill it at any moment and run it again.

    Example: `stoker run examples/quickstart/recipe.yaml training.steps=100`
    """
    require_address_space()
    loaded = load(recipe, overrides, run, choose_layout=True)
    clean = "torch" not in sys.modules
    from stoker.main_job import run_main_job
    from stoker.recovery import standby

    with standby(forked=clean) as ready:
        outcome = run_main_job(loaded, progress_for(json), ready)
    print_json(outcome.as_json()) if json else print_result(outcome.as_text())


def prepare(recipe: RecipePath, overrides: Overrides = None, json: AsJson = False) -> None:
    """Turn raw text into token shards, with a ledger of every document.

    Example: `stoker prepare recipe.yaml data.workers=2`
    """
    # Preparing has no use for threads of BLAS, and only a process without other threads can fork its workers.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from stoker.data.light_imports import leave_pandas_out, without_looking_for_garbage

    with without_looking_for_garbage():
        loaded = load(recipe, overrides)
        from stoker.data.prepare import prepare as prepare_corpus
        from stoker.data.statistics import corpus_table

        leave_pandas_out()
    gc.freeze()  # once here: it would be looked through at every turn, in a tenth of a second
    corpus = prepare_corpus(loaded, progress_for(json))
    if json:
        print_json({"folder": str(corpus.folder), **corpus.manifest})
    else:
        print_result(corpus_table(corpus))


def train(recipe: RecipePath, overrides: Overrides = None, run: RunFolder = None, json: AsJson = False) -> None:
    """Train, from the newest checkpoint if there is one.

    Example: `stoker train recipe.yaml training.steps=2000 --run runs/longer`
    """
    require_address_space()
    loaded = load(recipe, overrides, run, choose_layout=True)
    clean = "torch" not in sys.modules
    from stoker.recovery import standby
    from stoker.recovery import train as train_run

    with standby(forked=clean) as ready:
        outcome = train_run(loaded, loaded.run, progress_for(json), ready)
    if json:
        print_json(
            {
                "run": str(outcome.run.path),
                "steps": outcome.steps,
                "checkpoint": str(outcome.checkpoint),
                "trained_now": outcome.trained_now,
            }
        )
    else:
        done = "trained" if outcome.trained_now else "already trained"
        run_folder = quote(str(outcome.run.path))
        print_result(
            f"{done}: {counted(outcome.steps, 'steps')}\ncheckpoint: {outcome.checkpoint}\n"
            f"next: stoker diagnose {run_folder}; stoker report {run_folder}"
        )
