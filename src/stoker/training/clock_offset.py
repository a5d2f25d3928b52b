"""How far ranks' clocks are apart, so that times of several machines can be laid side by side."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from stoker.parallel import World

_ROUNDS = 8
_BEST = 3


@dataclass(frozen=True)
class ClockOffset:
    """Of this rank's clock."""

    ahead_seconds: float
    """How much later it is on this rank than on rank 0."""
    uncertain_seconds: float
    """At most so much more or less."""


def measure_clock_offset(world: World) -> ClockOffset:
    """Compare all clocks with rank 0's. Collective.

    All ranks wait for each other a few times, and each reads its clock when it goes on. None goes on before the
    last one has come: two of them read their clocks within the time that the longer of their waits took. Of several
    rounds the quickest count, and of those the median: a clock that is set in between spoils one.
    """
    if world.layout.world_size == 1:
        return ClockOffset(0.0, 0.0)
    own = torch.zeros(_ROUNDS, 2, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64, device=world.device)
    float(world.sum(one))  # what is set up the first time is not timed
    for number in range(_ROUNDS):
        begun = time.perf_counter()
        float(world.sum(one))
        own[number] = torch.tensor([time.time(), time.perf_counter() - begun], dtype=torch.float64)
    everyone = torch.zeros(world.layout.world_size, _ROUNDS, 2, dtype=torch.float64, device=world.device)
    everyone[world.rank] = own.to(world.device)
    first = world.sum(everyone)[0].cpu()
    return _compared(own.tolist(), first.tolist())


def _compared(own: list[list[float]], first: list[list[float]]) -> ClockOffset:
    """From (time read, seconds waited) of each round, on this rank and on rank 0."""
    rounds = [
        (max(waited, waited_there), read - read_there)
        for (read, waited), (read_there, waited_there) in zip(own, first, strict=True)
    ]
    best = sorted(rounds)[:_BEST]
    ahead = statistics.median(difference for _, difference in best)
    uncertain = max(max(waited for waited, _ in best), max(abs(ahead - difference) for _, difference in best[:1]))
    return ClockOffset(ahead, uncertain)
