"""Tiny runs in this process with faults of training dynamics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stoker.data.corpus import Corpus
from stoker.parallel import single_process_world
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.recovery.faults import parse_fault
from stoker.recovery.injection import Injection
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.data.corpora import corpus_of_lines

STEPS = 12


def small_corpus(folder: Path) -> Corpus:
    """Two sources, one of them larger."""
    texts = {
        "one": [f"The {i}th line of a first source, {'again ' * (i % 5)}end. It is {i * i}." for i in range(90)],
        "two": [f"{i} 第二个来源的一行，{i * 7}。" for i in range(60)],
    }
    return corpus_of_lines(folder, texts)


def recipe_for(corpus: Corpus, **changes: Any) -> Recipe:
    """A recipe of `STEPS` steps; `changes` are dotted fields with `__` for the dot."""
    content: dict[str, Any] = {
        "name": "dynamics",
        "data": {
            "sources": [{"name": "one", "paths": ["x"], "weight": 3}, {"name": "two", "paths": ["x"], "weight": 1}]
        },
        "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32},
        "training": {
            "steps": STEPS,
            "sequence_length": 32,
            "global_batch_size": 8,
            "micro_batch_size": 2,
            "gradient_clip": None,
            "schedule": {"name": "constant"},
            "device": "cpu",
            "threads": 1,
        },
        "checkpoint": {"every": 100},
        "recovery": {"spot_check_every": 0, "on_large_update": "wait", "on_divergence": "wait"},
    }
    for dotted, value in changes.items():
        *path, leaf = dotted.split("__")
        target = content
        for part in path:
            target = target.setdefault(part, {})
        target[leaf] = value
    return Recipe.model_validate(content)


def trainer_with(recipe: Recipe, corpus: Corpus, run: Path, *faults: str) -> tuple[Trainer, list[str]]:
    """A trainer that has these faults, and where it tells that one has come."""
    told: list[str] = []
    trainer = build_trainer(
        Job(recipe, run, corpus.folder, 1),
        single_process_world(torch.device("cpu")),
        StopRequest(),
        lambda said: None,
    )
    injection = Injection([parse_fault(one) for one in faults], 1, lambda said: told.append(said["fault"]))
    trainer.clock.marks.heard = injection.heard
    injection.attach(trainer)
    return trainer, told


def trained(recipe: Recipe, corpus: Corpus, run: Path, *faults: str) -> Record:
    """The record of a run with these faults, all of which came."""
    trainer, told = trainer_with(recipe, corpus, run, *faults)
    try:
        trainer.fit()
    finally:
        trainer.close()
    assert told == [str(parse_fault(one)) for one in faults]
    return Record(run / "record")
