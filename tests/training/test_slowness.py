"""Which rank makes the others wait."""

from __future__ import annotations

import random
import time

import pytest
import torch

from stoker.parallel.world import single_process_world
from stoker.training.clock import PhaseClock
from stoker.training.marks import unwatched
from stoker.training.slowness import Slowness, slow_ranks, time_ranks


def test_steps_that_take_half_again_as_long_are_noticed_within_eight_steps() -> None:
    slowness, dice = Slowness(), random.Random(0)
    for _ in range(100):
        slowness.note(dice.gauss(1.0, 0.05))
    noticed = [slowness.note(dice.gauss(1.5, 0.05)) for _ in range(8)]
    assert not noticed[0]
    assert any(noticed)


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_steps_that_vary_by_a_tenth_are_looked_into_once_at_the_beginning(seed: int) -> None:
    slowness, dice = Slowness(), random.Random(seed)
    assert sum(slowness.note(abs(dice.gauss(1.0, 0.1))) for _ in range(10_000)) == 1


def test_what_has_been_looked_into_is_the_usual_from_then_on() -> None:
    slowness = Slowness()
    for _ in range(50):
        slowness.note(1.0)
    while not slowness.note(2.0):
        pass
    slowness.begin_anew()
    assert not any(slowness.note(2.0) for _ in range(100))


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [([1.0, 1.0, 1.0, 3.0], [3]), ([1.0, 2.0], [1]), ([1.0, 1.2, 1.1, 1.3], []), ([2.0, 1.0, 2.0, 1.0], [0, 2])],
)
def test_a_rank_is_slow_when_it_takes_half_as_long_again_as_the_median(
    seconds: list[float], slow: list[int]
) -> None:
    assert slow_ranks(seconds) == slow


def test_a_rank_is_named_only_when_it_is_slow_in_comparison_after_comparison() -> None:
    """On a machine that others use as well some rank is slow at any moment."""
    slowness = Slowness()
    assert slowness.compared([1.0, 2.0]) == []
    assert slowness.looking
    assert slowness.compared([2.0, 1.0]) == []
    assert not slowness.looking
    seconds = [[1.0, one, 1.0, 2.0] for one in (2.0, 1.0, 2.0, 2.0, 1.0)]
    assert [slowness.compared(one) for one in seconds] == [[], [], [], [], [3]]
    assert not slowness.looking
    assert slowness.compared([1.0, 1.2]) == []
    assert not slowness.looking


def test_a_rank_is_timed_with_what_holds_it_up() -> None:

    device = torch.device("cpu")
    marks = unwatched()
    (usual,) = time_ranks(single_process_world(device), PhaseClock(device, marks))
    marks.heard = lambda completed, phase: time.sleep(0.2) if phase == "forward" else None
    (held_up,) = time_ranks(single_process_world(device), PhaseClock(device, marks))
    assert held_up >= 0.2 > 0
    assert usual > 0
