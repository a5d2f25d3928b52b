"""What recording costs: a step's time with the default telemetry over that with all that can be off at its rarest.

    .venv/bin/python benchmarks/record.py --models quickstart --settings default
    .venv/bin/python benchmarks/record.py --models quickstart --parts

Two trainers of one model take turns in one process, a few steps each, and the median of their steps counts. Each
writes a record of its own to disk. `everything` records the modules and the timeline of each step as well. Whole
steps differ by more than recording costs on a machine with other work: with `--parts` each thing that is done for
the record is timed by itself, in processor time of the thread that trains.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.data.corpora import build_corpus

from stoker.data.corpus import Corpus
from stoker.parallel import activations as activations_module
from stoker.parallel import single_process_world
from stoker.parallel.activations import Activations
from stoker.recipe import Recipe
from stoker.training import step as step_module
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.telemetry import Telemetry
from stoker.training.trainer import Trainer

RAREST = {"modules_every": 10**9, "worst_documents": 0, "machine_seconds": 0, "timeline_every": 0}
SETTINGS: dict[str, dict[str, Any]] = {
    "rarest": RAREST,
    "default": {},
    "everything": {"modules_every": 1, "timeline_every": 1, "machine_seconds": 1.0},
}
MODELS: dict[str, dict[str, Any]] = {
    "quickstart": {
        "model": {"hidden_size": 128, "layers": 5, "heads": 4, "ffn_hidden_size": 352},
        "sequence_length": 256,
        "global_batch_size": 16,
        "micro_batch_size": 4,
    },
    "larger": {
        "model": {"hidden_size": 384, "layers": 8, "heads": 6, "ffn_hidden_size": 1024},
        "sequence_length": 512,
        "global_batch_size": 4,
        "micro_batch_size": 2,
    },
}
VOCABULARY = 4096


def corpus_of(folder: Path) -> Corpus:
    """Made-up tokens in documents of uneven lengths."""
    dice = np.random.default_rng(0)
    lengths = dice.integers(20, 800, size=600)
    documents = [dice.integers(0, VOCABULARY, size=length).tolist() for length in lengths]
    sources = {"made-up": {"train": documents, "held_out": documents[:2]}}
    return build_corpus(folder, sources, vocabulary_size=VOCABULARY, documents_per_shard=1000)


def trainer_of(model: str, telemetry: dict[str, Any], corpus: Corpus, run: Path) -> Trainer:
    """A trainer as `stoker train` builds it."""
    case = MODELS[model]
    recipe = Recipe.model_validate(
        {
            "name": "record",
            "data": {"sources": [{"name": "made-up", "paths": ["x"], "weight": 1}]},
            "model": case["model"],
            "training": {
                "steps": 10**6,
                "device": "cpu",
                "threads": torch.get_num_threads(),
                **{key: case[key] for key in ("sequence_length", "global_batch_size", "micro_batch_size")},
            },
            "checkpoint": {"every": 10**6},
            "telemetry": telemetry,
        }
    )
    job = Job(recipe, run, corpus.folder, 1)
    return build_trainer(job, single_process_world(torch.device("cpu")), StopRequest(), lambda message: None)


def steps_of(trainer: Trainer, clock: Callable[[], float]) -> Callable[[], float]:
    """A function that takes one step with all that the loop does for it; returns its seconds."""
    batches = trainer._batches()
    trainer.clock.begin()

    def step() -> float:
        number, batch = next(batches)  # made ahead in a thread: not what recording costs
        begun = clock()
        result = trainer._step(number, batch)
        trainer.moved = trainer.update_norm.take()
        trainer._responds(number, result)
        trainer.position.advance(number, result.tokens, None)
        trainer._record_step(number, result)
        return clock() - begun

    return step


def measure(
    model: str, names: list[str], rounds: int, turn: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of steps of each setting; they take turns of `turn` steps."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of(Path(folder) / "corpus")
        trainers = {name: trainer_of(model, SETTINGS[name], corpus, Path(folder) / name) for name in names}
        takes = {name: steps_of(trainer, clock) for name, trainer in trainers.items()}
        for take in takes.values():
            take()
        found: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            for name in names if number % 2 else reversed(names):
                # The mean of a turn: what is done now and then is in it as often as it is done.
                found[name].append(statistics.fmean(takes[name]() for _ in range(turn)))
        for trainer in trainers.values():
            trainer.close()
    return found


PARTS: dict[str, list[tuple[Any, str]]] = {
    "losses of documents": [(step_module, "worst_documents")],
    "sizes of outputs, units and logits": [(Activations, f"_see_{what}") for what in ("output", "units", "logits")],
    "attention": [(activations_module, "attention_figures")],
    "sums by module": [(Telemetry, "_look_at_modules")],
    "rows": [(Telemetry, "record_step")],
}
"""What is done for the record, by the functions that do it; `rows` does `sums by module` as well."""


def measure_parts(model: str, telemetry: dict[str, Any], turns: int, turn: int) -> tuple[float, dict[str, float]]:
    """Seconds of a step, and of what is done in it for the record: means over so many turns of `turn` steps."""
    spent = dict.fromkeys(PARTS, 0.0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        trainer = trainer_of(model, telemetry, corpus_of(Path(folder) / "corpus"), Path(folder) / "run")
        step = steps_of(trainer, time.thread_time)
        step()
        for part, functions in PARTS.items():
            for owner, name in functions:
                stack.enter_context(mock.patch.object(owner, name, _timed(getattr(owner, name), spent, part)))
        seconds = [step() for _ in range(turns * turn)]
        trainer.close()
    spent["rows"] -= spent["sums by module"]
    return statistics.fmean(seconds), {part: value / len(seconds) for part, value in spent.items()}


def _timed(function: Callable[..., Any], spent: dict[str, float], part: str) -> Callable[..., Any]:
    def measured(*arguments: Any, **named: Any) -> Any:
        begun = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            spent[part] += time.thread_time() - begun

    return measured


def print_parts(models: list[str], turns: int, turn: int) -> None:
    """A table of the parts of each model's step."""
    print("| model | what | ms a step | part of a step |\n|---|---|---|---|")
    for model in models:
        whole, parts = measure_parts(model, SETTINGS["default"], turns, turn)
        for part, seconds in [*parts.items(), ("together", sum(parts.values())), ("the whole step", whole)]:
            print(f"| {model} | {part} | {1000 * seconds:.2f} | {seconds / whole:.3%} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--settings", nargs="+", default=["default", "everything"], choices=SETTINGS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turn", type=int, default=10, help="steps of a turn; modules are recorded every tenth")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="processor: the time of this process's threads",
    )
    parser.add_argument("--parts", action="store_true", help="each thing done for the record, with the default")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.parts:
        print_parts(given.models, max(given.rounds // 10, 1), given.turn)
        return
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    print("| model | telemetry | s/step | over the rarest | quartiles over turns |\n|---|---|---|---|---|")
    for model in given.models:
        names = list(dict.fromkeys(["rarest", *given.settings]))
        found = measure(model, names, given.rounds, given.turn, clock)
        for name in names:
            ratios = [own / other for own, other in zip(found[name], found["rarest"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            seconds = statistics.median(found[name])
            print(f"| {model} | {name} | {seconds:.4f} | {middle:.4f} | {low:.4f} to {high:.4f} |", flush=True)


if __name__ == "__main__":
    main()
