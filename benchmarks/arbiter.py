"""Of two ranks that disagree about a gradient: how often the loss tells which one is wrong, by the error's size.

    .venv/bin/python benchmarks/arbiter.py --precision bf16

Two copies of a small model over gloo, one thread each. In each draw one rank spoils one gradient, each time that it
computes it: a bit of one element is flipped, noise is added to all of it, or what `stoker drill` does happens
(`bitflip_local_gradient`: a bit of the first element of the first parameter). Votes of two are even, so that
without the arbiter every draw stays undecided; the table says what the loss makes of it. Weights and samples are
the same in all draws.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from corruption import RANKS, MadeUp, on_ranks
from stoker.parallel import join_world
from stoker.parallel.alone import leaves
from stoker.recipe import Recipe
from stoker.recovery.injection import _flip
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.rank import build_model
from stoker.training.second_opinion import SecondOpinion, judge
from stoker.training.step import TrainingStep

VOCABULARY, LENGTH, SEQUENCES, WIDTH = 256, 32, 2, 32
WARMED_UP = 12
"""Steps that are trained before anything goes wrong."""
BITS = (30, 29, 28, 27, 26, 25, 24, 23, 31, 22, 20, 16)
SIZES = (100.0, 10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)
"""Of noise: the norm of the error over that of the gradient."""
VERDICTS = ("unseen", "right", "undecided", "wrong")


class Fault(NamedTuple):
    """How one gradient is spoilt."""

    table: str
    """`bit`, `noise` or `drill`."""
    row: float
    """Which bit, or how much noise."""
    rank: int
    leaf: float
    """Which parameter, as a share of all."""
    place: float
    """Which element: the share of those that are not zero which are smaller."""

    def spoil(self, gradient: torch.Tensor) -> torch.Tensor:
        """A wrong copy of it."""
        wrong = gradient.clone()
        flat = wrong.view(-1)
        if self.table == "drill":
            _flip(wrong, int(self.row))
        elif self.table == "bit":
            zeros = int((flat == 0).sum())
            at = int(flat.abs().argsort()[min(zeros + int(self.place * (len(flat) - zeros)), len(flat) - 1)])
            _flip(flat[at : at + 1], int(self.row))
        else:
            draw = torch.Generator().manual_seed(int(self.place * 2**31))
            noise = torch.randn(flat.shape, generator=draw)
            flat += self.row * flat.norm() / noise.norm() * noise
        return wrong


def recipe_of(precision: str) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "arbiter",
            "data": {"sources": [{"name": "made-up", "paths": ["none"]}]},
            "model": {"hidden_size": WIDTH, "layers": 2, "heads": 2, "ffn_hidden_size": 3 * WIDTH},
            "training": {
                "steps": 1000,
                "sequence_length": LENGTH,
                "global_batch_size": RANKS * SEQUENCES,
                "micro_batch_size": SEQUENCES,
                "document_mask": False,
                "device": "cpu",
                "precision": precision,
            },
            "layout": {"dp_replicate": RANKS},
        }
    )


def faults_of(draws: int, seed: int) -> list[Fault]:
    """`draws` of each row of the first two tables, and as many of the third as there are bits in all."""
    dice = random.Random(seed)
    rows: list[tuple[str, float]] = [("bit", bit) for bit in BITS] + [("noise", size) for size in SIZES]
    found = [Fault(*row, number % RANKS, dice.random(), dice.random()) for row in rows for number in range(draws)]
    return found + [
        Fault("drill", dice.randrange(32), number % RANKS, 0.0, 0.0) for number in range(draws * len(BITS))
    ]


def measure(rank: int, store: str, precision: str, faults: list[Fault]) -> list[Any]:
    """A verdict on each fault, and the seconds of processor time of a step and of finding out."""
    torch.set_num_threads(1)
    recipe, feed = recipe_of(precision), MadeUp(VOCABULARY, LENGTH, SEQUENCES)
    with join_world(recipe.layout, rank, torch.device("cpu"), dist.FileStore(store, RANKS), 60) as world:
        model = build_model(recipe, VOCABULARY, world)
        optimizer = build_optimizer(model.held, recipe.training)
        train = TrainingStep(recipe, ["made-up"], model, optimizer, None, PhaseClock(world.device))
        opinion = SecondOpinion(feed, train)  # type: ignore[arg-type]
        step = partial(train, with_modules=False, stop=False)
        steps = [(number, feed.micro_batches(number, rank, RANKS)) for number in range(1, WARMED_UP + 1)]
        plain = statistics.median([timed(partial(step, *one))[1] for one in steps])
        number, own = WARMED_UP + 1, leaves(model)
        verdicts, seconds = [], []
        for fault in faults:
            leaf, handle = own[int(fault.leaf * len(own))], None
            if rank == fault.rank:
                handle = leaf.register_hook(fault.spoil)  # type: ignore[no-untyped-call]
            with opinion.asked(number, 1):
                step(number, feed.micro_batches(number, rank, RANKS))
            if train.guard.doubted:
                verdict, spent = timed(partial(opinion.find, number, 1))
                seconds.append(spent / plain)
                by_votes = judge(verdict.votes, world.layout)
                assert by_votes is not None, "there was a disagreement"
                assert by_votes.kind == "undecided", "votes of two are even"
                alone = "right" if verdict.ranks == (fault.rank,) else "wrong"
                verdicts.append("undecided" if verdict.kind == "undecided" else alone)
            else:
                verdicts.append("unseen")
            if handle is not None:
                handle.remove()
    return [verdicts, statistics.median(seconds)]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return function(), time.process_time() - begun


def main() -> None:
    """Print a table for each kind of fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = faults_of(given.draws, given.seed)
    (verdicts, ratio), *_ = on_ranks(measure, given.precision, faults)
    print(f"{date.today()}, {given.precision}, {len(faults)} draws; finding out took {ratio:.1f} steps")
    counted = Counter((fault.table, fault.row, verdict) for fault, verdict in zip(faults, verdicts, strict=True))
    print(f"| fault | {' | '.join(VERDICTS)} |\n|---|---|---|---|---|")
    shown: list[tuple[str, str, Sequence[float]]] = [("bit", f"{bit}", [bit]) for bit in BITS]
    shown += [("noise", f"{size:g}", [size]) for size in SIZES]
    shown += [("drill", f"{bits[0]} to {bits[-1]}", bits) for bits in (range(31, 22, -1), range(22, -1, -1))]
    shown += [
        (table, "all", [row for _, row in sorted({one[:2] for one in faults if one[0] == table})])
        for table in ("bit", "noise", "drill")
    ]
    for table, name, rows in shown:
        figures = [sum(counted[table, row, verdict] for row in rows) for verdict in VERDICTS]
        print(f"| {table} {name} | {' | '.join(map(str, figures))} |")


if __name__ == "__main__":
    main()
