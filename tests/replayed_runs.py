"""Runs with a planted fault that were trained in this process, with the checkpoints that a replay needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stoker.data.corpus import Corpus
from stoker.durable_files import write_bytes, write_text
from stoker.recipe.loading import dump_recipe
from stoker.recovery.dynamics.spoiled_corpus import spoil_corpus
from stoker.recovery.faults import parse_fault
from stoker.run_directory import RunDirectory
from stoker.training.origin import write_origin
from tests.recovery.dynamic_runs import recipe_for, trained

AT = 73
"""The step that has the fault; the state of the step before is saved."""
SETTINGS: dict[str, Any] = {
    "training__steps": 96,
    "checkpoint__every": 12,
    "checkpoint__keep_last": 20,
    "recovery__on_spike": "wait",
    "recovery__replay": False,
    "training__gradient_clip": 1.0,
    "telemetry__modules_every": 1,
}


def run_with(corpus: Corpus, folder: Path, fault: str, learning_rate: float = 3e-4) -> RunDirectory:
    """A run of one rank with this fault."""
    optimizer = {"name": "adamw", "learning_rate": learning_rate}
    recipe, run = recipe_for(corpus, training__optimizer=optimizer, **SETTINGS), RunDirectory(folder / "run")
    run.path.mkdir(parents=True)
    own = corpus.folder
    if fault.startswith("bad_data"):
        own = folder / "corpus"
        spoil_corpus(corpus.folder, recipe, [parse_fault(fault)], own)
        trained(recipe, Corpus.open(own), run.path)
    else:
        trained(recipe, corpus, run.path, fault)
    write_text(run.recipe, dump_recipe(recipe))
    write_text(run.plan, "{}")
    write_bytes(run.corpus, (own / "manifest.json").read_bytes())
    write_origin(run, run.recipe, own)
    return run
