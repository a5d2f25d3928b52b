"""Of two gradients the wrong one is told by the loss, and asking the loss changes nothing."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.corpus import Corpus
from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.parallel.alone import leaves
from stoker.parallel.nudge import nudged
from stoker.parallel.placement import local
from stoker.recipe import Recipe
from stoker.training.arbiter import DISTANCES, Derivative, differing, extrapolated, worth_keeping, wrong_of
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from tests.distributed import run_ranks
from tests.training.test_second_opinion import MIXTURE, _recipe

SHARP = Derivative(1.0, 0.01, 0.1)


@given(st.floats(-3, 3), st.floats(0.01, 2), st.floats(0.2, 3))
def test_the_derivative_of_a_smooth_function_lies_within_the_error_that_is_given(
    at: float, farthest: float, frequency: float
) -> None:
    distances = [farthest * part for part in DISTANCES]
    differences = [
        (math.sin(frequency * (at + one)) - math.sin(frequency * (at - one))) / (2 * one) for one in distances
    ]
    found = extrapolated(differences, distances, 2.0**-52)
    assert abs(found.value - frequency * math.cos(frequency * at)) <= found.error + 1e-12


@pytest.mark.parametrize(
    ("foretold", "own", "measured", "wrong"),
    [
        pytest.param((1.005, 1e30), (0.0, 1e28), SHARP, 1, id="one is far off"),
        pytest.param((-1.0, 1.0), (0.0, 0.0), SHARP, 0, id="of the other sign"),
        pytest.param((1.005, 1.05), (0.0, 0.0), SHARP, None, id="not far enough off"),
        pytest.param((1.005, 2.0), (0.5, 0.5), SHARP, None, id="rounding alone may do as much"),
        pytest.param((1.05, 1e30), (0.0, 0.0), SHARP, 1, id="a loss with steps"),
        pytest.param((2.0, 1e30), (0.0, 0.0), SHARP, None, id="neither fits"),
        pytest.param((1.0, 1.0), (0.0, 0.0), SHARP, None, id="both fit"),
        pytest.param((1.0, 2.0), (0.0, 0.0), Derivative(math.nan, math.inf, math.nan), None, id="nothing measured"),
    ],
)
def test_a_verdict_takes_one_that_fits_and_one_that_is_many_times_its_error_off(
    foretold: tuple[float, float], own: tuple[float, float], measured: Derivative, wrong: int | None
) -> None:
    assert wrong_of(foretold, own, measured) == wrong
    turned = None if wrong is None else 1 - wrong
    assert wrong_of((foretold[1], foretold[0]), (own[1], own[0]), measured) == turned


@given(*[st.dictionaries(st.integers(0, 5), st.integers(0, 2))] * 2)
def test_both_copies_ask_about_the_same_gradients_whatever_each_has_seen(
    mine: dict[int, int], theirs: dict[int, int]
) -> None:
    """Otherwise one would wait for what the other never sends."""
    places = differing(mine, theirs)
    assert places == differing(theirs, mine)
    assert places == [
        place for place in range(6) if mine.get(place, 3) != theirs.get(place, mine.get(place, 3)) and place in mine
    ]


def test_of_large_gradients_the_smallest_are_kept_and_at_least_one() -> None:
    assert worth_keeping([0, 1, 2], {0: 2**27, 1: 4, 2: 9}) == [1, 2]
    assert worth_keeping([0], {0: 2**40}) == [0]
    assert worth_keeping([], {0: 1}) == []


def _spoilt(gradient: torch.Tensor, size: float, bit: int) -> torch.Tensor:
    """One bit of the element that is larger than the share `size` of those that are not zero; where `bit` is below
    0, noise of 10 to that power of the gradient's norm instead.
    """
    wrong = gradient.clone()
    flat = wrong.view(-1)
    if bit < 0:
        noise = torch.randn(flat.shape, generator=torch.Generator().manual_seed(int(size * 2**31)))
        flat += 10.0**bit * flat.norm() / noise.norm() * noise
        return wrong
    zeros = int((flat == 0).sum())
    place = int(flat.abs().argsort()[min(zeros + int(size * (len(flat) - zeros)), len(flat) - 1)])
    bits = flat[place : place + 1].view(torch.int32)
    bits ^= 1 << bit
    return wrong


def _asked(
    rank: int, ranks: int, store: Any, corpus: Path, recipe: Recipe, run: Path, faults: list[Any]
) -> list[Any]:
    """What is found out about each fault, and whether any bit of weights or random numbers has changed."""
    torch.set_num_threads(1)
    found = []
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        trainer = build_trainer(Job(recipe, run, corpus, 1), world, StopRequest(), lambda message: None)
        batches = dict(trainer._batches())
        trainer._once(1, batches[1])
        own = leaves(trainer.step.model)

        def state() -> list[torch.Tensor]:
            held = [local(one.tensor.detach()).clone() for one in trainer.step.model.held]
            return [*held, torch.get_rng_state()]

        before = state()
        for wrong, which, size, bit in faults:
            leaf, handle = own[int(which * len(own))], None
            if rank == wrong:
                handle = leaf.register_hook(lambda gradient, size=size, bit=bit: _spoilt(gradient, size, bit))
            with trainer.opinion.asked(2, 1):
                trainer._once(2, batches[2])
            verdict = trainer.opinion.find(2, 1) if trainer.step.guard.doubted else None
            if handle is not None:
                handle.remove()
            found.append(None if verdict is None else (verdict.kind, verdict.ranks))
        same = all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
        trainer.close()
    return [found, same]


LAYOUTS = [
    pytest.param(Layout(dp_replicate=2), {}, id="replicas"),
    pytest.param(Layout(dp_shard=2), {"training__precision": "bf16"}, id="shards in bf16"),
    pytest.param(Layout(dp_replicate=2), {"model__moe": MIXTURE}, id="experts"),
    pytest.param(Layout(dp_replicate=2, tp=2), {}, id="tensor", marks=pytest.mark.thorough),
    pytest.param(Layout(dp_shard=2, cp=2), {}, id="context", marks=pytest.mark.thorough),
    pytest.param(
        Layout(dp_replicate=2, pp=2), {"model__tie_embeddings": True}, id="pipeline", marks=pytest.mark.thorough
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "changes"), LAYOUTS)
def test_the_rank_with_a_wrong_gradient_is_named_or_nobody_is(
    corpus: Corpus, tmp_path: Path, layout: Layout, changes: dict[str, Any]
) -> None:
    """One bit of the exponent of one element, large or small, every time that the gradient is computed.

    The highest makes it huge, which shows wherever the loss has no steps; the others make it vanish. Noise of a
    thousandth of the gradient and less is smaller than what can be told: nobody is named for it by mistake.
    """
    dice = random.Random(str(layout))
    bits = [*(30 - number // 4 % 3 for number in range(12)), -3, -4, -5, -6]
    faults = [(number % layout.world_size, dice.random(), dice.random(), bit) for number, bit in enumerate(bits)]
    results = run_ranks(
        _asked, layout.world_size, corpus.folder, _recipe(layout, **changes), tmp_path, faults, timeout=120
    )
    assert all(found == results[0][0] for found, _ in results), "all ranks come to the same verdict"
    assert all(same for _, same in results)
    named = 0
    for (wrong, _, _, bit), verdict in zip(faults, results[0][0], strict=True):
        if verdict is None:  # an element that was zero, or nothing of this rank's
            continue
        kind, ranks = verdict
        assert wrong in ranks
        assert kind in ("persistent", "undecided")
        assert ranks == (wrong,) if kind == "persistent" else len(ranks) == 2
        assert kind == "persistent" or bit != 30 or "model__moe" in changes
        named += kind == "persistent"
    assert named >= 3


def _moved(rank: int, ranks: int, store: Any, corpus: Path, recipe: Recipe, run: Path) -> list[bool]:
    """Whether moving the weights changes the loss, and whether loss and weights are the same bits afterwards."""
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        trainer = build_trainer(Job(recipe, run, corpus, 1), world, StopRequest(), lambda message: None)
        trainer._once(1, dict(trainer._batches())[1])
        model, opinion = trainer.step.model, trainer.opinion
        [batch] = opinion._inputs(2, 1, 0)
        held = [local(one.tensor.detach()).clone() for one in model.held]
        directions = {place: torch.ones(leaf.shape) for place, leaf in enumerate(leaves(model))}
        losses = []
        for distance in (None, 1e-3, None):
            with nudged(model, {} if distance is None else directions, distance or 0.0):
                losses.append(float(model.objective(batch, **opinion._settings(2))))
        same = all(torch.equal(one, local(two.tensor)) for one, two in zip(held, model.held, strict=True))
        trainer.close()
    return [losses[0] != losses[1], losses[0] == losses[2], same]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_weights_that_were_moved_are_the_same_bits_afterwards_sharded_or_not(
    corpus: Corpus, tmp_path: Path, stage: int
) -> None:
    layout = Layout(dp_shard=2, zero_stage=stage)
    for moved in run_ranks(_moved, 2, corpus.folder, _recipe(layout), tmp_path, timeout=60):
        assert moved == [True, True, True]
