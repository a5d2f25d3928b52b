"""What looking for silent corruption costs a run in which there is none.

    .venv/bin/python benchmarks/corruption.py --layout dp_replicate

Two ranks over gloo, one thread each, in turns: a plain step, one that is checked by the other rank, the comparison
of replicas, and what every step does for it. By processor time, which other work on the machine enters little. A
step has one micro-batch, the worst case: of more, still only the first is computed again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stoker.data.feeding import MicroBatch
from stoker.parallel import join_world
from stoker.parallel.alone import leaves
from stoker.recipe import Recipe, Recovery
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.rank import build_model
from stoker.training.replicas import Replicas
from stoker.training.second_opinion import SecondOpinion
from stoker.training.step import TrainingStep
from stoker.training.update_norm import UpdateNorm

RANKS, VOCABULARY, LENGTH, SEQUENCES = 2, 4096, 512, 2


class MadeUp:
    """Made-up tokens by step and rank: one micro-batch of each rank in each step."""

    def __init__(self, vocabulary: int = VOCABULARY, length: int = LENGTH, sequences: int = SEQUENCES) -> None:
        self._vocabulary, self._length, self._sequences = vocabulary, length, sequences

    def micro_batches(self, step: int, rank: int, ranks: int) -> list[MicroBatch]:
        generator = torch.Generator().manual_seed(step * ranks + rank)
        count, length = self._sequences, self._length
        tokens = torch.randint(0, self._vocabulary, (count, length + 1), generator=generator)
        places = torch.arange(length).expand(count, length).contiguous()
        documents = torch.zeros(count, length, dtype=torch.int32)
        sources = torch.zeros(count, dtype=torch.int64)
        first = ((step - 1) * ranks + rank) * count
        samples = torch.arange(first, first + count)
        return [MicroBatch(tokens[:, :-1].clone(), tokens[:, 1:].clone(), places, documents, sources, samples)]

    def valid_tokens(self, step: int) -> int:
        return RANKS * self._sequences * self._length


def recipe_of(layout: str) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "corruption",
            "data": {"sources": [{"name": "made-up", "paths": ["none"]}]},
            "model": {"hidden_size": 256, "layers": 6, "heads": 4, "ffn_hidden_size": 704},
            "training": {
                "steps": 1_000_000,
                "sequence_length": LENGTH,
                "global_batch_size": RANKS * SEQUENCES,
                "micro_batch_size": SEQUENCES,
                "document_mask": False,
                "device": "cpu",
            },
            "layout": {layout: RANKS},
        }
    )


def measure(rank: int, store: str, layout: str, rounds: int) -> list[Any]:
    torch.set_num_threads(1)
    recipe, feed = recipe_of(layout), MadeUp()
    with join_world(recipe.layout, rank, torch.device("cpu"), dist.FileStore(store, RANKS), 600) as world:
        model = build_model(recipe, VOCABULARY, world)
        optimizer = build_optimizer(model.held, recipe.training)
        train = TrainingStep(recipe, ["made-up"], model, optimizer, None, PhaseClock(world.device))
        opinion = SecondOpinion(feed, train)  # type: ignore[arg-type]
        replicas = Replicas(model.held, optimizer, world, Path(store).parent / "suspicion")
        number = 0

        def step(checked: bool) -> None:
            nonlocal number
            number += 1
            with opinion.asked(number, 1) if checked else nullcontext():
                train(number, feed.micro_batches(number, rank, RANKS), with_modules=False, stop=False)
            assert not train.guard.doubted, "the ranks agree"

        def compare() -> None:
            if replicas.exist:
                assert replicas.compare(number) is None, "the replicas agree"

        step(False)
        norm = UpdateNorm(model.held, build_optimizer(model.held, recipe.training), world)

        def measure_update() -> None:
            norm._note()
            norm._compare()
            norm.take()

        def glance() -> None:
            opinion.glance.begin()
            for vector in vectors:
                opinion.glance._add(id(vector), [vector])

        step(True)
        vectors = [leaf.detach() for leaf in leaves(model) if leaf.ndim == 1]
        seconds = [
            [timed(lambda: step(False)), timed(lambda: step(True)), *map(timed, (compare, measure_update, glance))]
            for _ in range(rounds)
        ]
        weights = sum(one.tensor.numel() for one in model.held)
    return [seconds, weights]


def on_ranks(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(rank, store, *arguments)` on each of `RANKS` processes; what they return, as JSON has it.

    Where one of them fails the others are ended, and its traceback is raised: nobody waits for who is gone.
    """
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_on_rank, (folder, function, arguments), nprocs=RANKS)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(RANKS)]


def _on_rank(rank: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    found = function(rank, f"{folder}/store", *arguments)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))


def timed(function: Callable[[], None]) -> float:
    begun = time.process_time()
    function()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", choices=["dp_replicate", "dp_shard"], default="dp_replicate")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    found = on_ranks(measure, given.layout, given.rounds)
    rows = [row for seconds, _ in found for row in seconds]
    plain = statistics.median(row[0] for row in rows)
    check = statistics.median(row[1] - row[0] for row in rows) / plain
    compare, update, glance = (statistics.median(row[place] for row in rows) / plain for place in (2, 3, 4))
    every = Recovery()
    print(f"{date.today()}, {given.layout}={RANKS}, {found[0][1] / 1e6:.1f}M weights a rank, step {plain:.2f} s")
    print(f"spot check {check:.3f} of a step, comparison {compare:.4f}")
    print(f"every step: update norm {update:.3%}, vectors' gradients {glance:.3%}")
    idle = check / every.spot_check_every + compare / every.compare_every + update + glance
    print(f"with the defaults ({every.spot_check_every}, {every.compare_every}, every step): {idle:.3%} of a step")


if __name__ == "__main__":
    main()
