"""Of two ranks that disagree about a gradient: how often the loss tells which one is wrong, by the error's size.

    .venv/bin/python benchmarks/arbiter.py --precision bf16

Two copies of a small model over gloo, one thread each. In each draw one rank spoils one gradient, each time that it
computes it: a bit of one element is flipped, noise is added to all of it, or what `stoker drill` does happens
(`bitflip_local_gradient`: a bit of the first element of the first parameter). Votes of two are even, so that
without the arbiter every draw stays undecided; the tables say what the loss makes of it, by the bit and by the
error's norm over the gradient's. Weights are the same in all draws, samples are not.
"""

from __future__ import annotations

import argparse
import math
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
DECADES = range(2, -6, -1)
"""Sizes of errors are told from 10 to the power of each; noise is drawn of all of them alike."""
VERDICTS = ("unseen", "right", "undecided", "wrong")


class Fault(NamedTuple):
    """How one gradient is spoilt."""

    kind: str
    """`bit`, `noise` or `drill`."""
    how: float
    """Which bit, or how much noise, over the norm of the gradient."""
    rank: int
    leaf: float
    """Which parameter, as a share of all."""
    place: float
    """Which element: the share of those that are not zero which are smaller."""

    def spoil(self, gradient: torch.Tensor) -> torch.Tensor:
        """A wrong copy of it."""
        wrong = gradient.clone()
        flat = wrong.view(-1)
        if self.kind == "drill":
            _flip(wrong, int(self.how))
        elif self.kind == "bit":
            zeros = int((flat == 0).sum())
            at = int(flat.abs().argsort()[min(zeros + int(self.place * (len(flat) - zeros)), len(flat) - 1)])
            _flip(flat[at : at + 1], int(self.how))
        else:
            draw = torch.Generator().manual_seed(int(self.place * 2**31))
            noise = torch.randn(flat.shape, generator=draw)
            flat += self.how * flat.norm() / noise.norm() * noise
        return wrong

    def size(self, gradient: torch.Tensor, wrong: torch.Tensor) -> float:
        """The norm of the error over that of the gradient."""
        return float((wrong.double() - gradient.double()).norm() / gradient.double().norm())


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
    """`draws` of each bit and of each decade of noise, and as many of drills as there are of bits in all."""
    dice = random.Random(seed)
    kinds = [("bit", float(bit)) for bit in BITS for _ in range(draws)]
    kinds += [("noise", 10 ** (decade + dice.random())) for decade in DECADES for _ in range(draws)]
    found = [Fault(*one, number % RANKS, dice.random(), dice.random()) for number, one in enumerate(kinds)]
    drills = range(draws * len(BITS))
    return found + [Fault("drill", float(dice.randrange(32)), one % RANKS, 0.0, 0.0) for one in drills]


def measure(rank: int, store: str, precision: str, faults: list[Fault]) -> list[Any]:
    """The verdict on each fault and, where this rank has it, its size; and what finding out took, in steps."""
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
        own, verdicts, seconds = leaves(model), [], []
        for number, fault in enumerate(faults, WARMED_UP + 1):
            leaf, sizes = own[int(fault.leaf * len(own))], [0.0]

            def spoilt(gradient: torch.Tensor, fault: Fault = fault, sizes: list[float] = sizes) -> torch.Tensor:
                wrong = fault.spoil(gradient)
                sizes.append(fault.size(gradient, wrong))
                return wrong

            handle = leaf.register_hook(spoilt) if rank == fault.rank else None  # type: ignore[no-untyped-call]
            with opinion.asked(number, 1):
                step(number, feed.micro_batches(number, rank, RANKS))
            said = "unseen"
            if train.guard.doubted:
                verdict, spent = timed(partial(opinion.find, number, 1))
                seconds.append(spent / plain)
                by_votes = judge(verdict.votes, world.layout)
                assert by_votes is not None, "there was a disagreement"
                assert by_votes.kind == "undecided", "votes of two are even"
                said = "right" if verdict.ranks == (fault.rank,) else "wrong"
                said = "undecided" if verdict.kind == "undecided" else said
            if handle is not None:
                handle.remove()
            verdicts.append([said, sizes[-1]])
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
    found = on_ranks(measure, given.precision, faults)
    said = [verdict for verdict, _ in found[0][0]]
    sizes = [found[fault.rank][0][number][1] for number, fault in enumerate(faults)]
    print(f"{date.today()}, {given.precision}, {len(faults)} draws; finding out took {found[0][1]:.1f} steps")
    print(f"| fault | {' | '.join(VERDICTS)} |\n|---|---|---|---|---|")
    for bit in BITS:
        show(f"bit {bit}", [one for one, fault in zip(said, faults, strict=True) if fault[:2] == ("bit", bit)])
    for kind in ("bit", "noise", "drill"):
        own = [(size, one) for size, one, fault in zip(sizes, said, faults, strict=True) if fault.kind == kind]
        show(f"{kind}, all", [one for _, one in own])
        for decade in DECADES:
            bounds = 10.0**decade, 10.0 ** (decade + 1) if decade < DECADES[0] else math.inf
            show(f"{kind} of {bounds[0]:g} and more", [one for size, one in own if bounds[0] <= size < bounds[1]])
        show(f"{kind} of less", [one for size, one in own if size < 10.0 ** DECADES[-1]])


def show(what: str, said: Sequence[str]) -> None:
    """One row of the table, where there is anything to count."""
    if said:
        counted = Counter(said)
        print(f"| {what} | {' | '.join(str(counted[one]) for one in VERDICTS)} |")


if __name__ == "__main__":
    main()
