"""Groups that a drill kills at intervals of its own: how much training lies between two steps that are lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stoker.planning.reliability.process import Process
from stoker.planning.reliability.spacing import Spacing, between

_ROUNDS, _CLOSE = 40, 1e-6
_LEAST = 1e-9


@dataclass(frozen=True)
class Cycle:
    """From one lost step to the next, on average. Seconds of training exclude all pauses."""

    training: float
    committed: float
    """Share of the steps begun that are kept."""
    kept: float
    """Share of the training that is kept."""
    step_end: float
    """Seconds, per second of training, in which the others end a step that is lost already."""
    pauses: float
    """Seconds, per second of training, in which they wait for a group that comes back."""


def cycle_of(process: Process, step: float) -> Cycle:
    """A step of `step` seconds is lost to each failure that does not come in another one's pause."""
    replicas = process.description.replicas
    detection = float(np.average(process.detection, weights=process.rates))
    return _cycle(
        process.description.failures.spacing,
        1 / process.rate,
        step,
        detection,
        replicas.reconfigure_seconds,
        replicas.heal_seconds,
    )


@lru_cache(maxsize=512)
def _cycle(spacing: Spacing, mean: float, step: float, detection: float, reconfigure: float, heal: float) -> Cycle:
    longer = step
    for _ in range(_ROUNDS):  # how long a step is depends on how many groups come back in it
        found = between(spacing, mean, longer, detection + reconfigure, heal)
        down = longer / 2 + detection + reconfigure
        begins = -math.expm1(-down / mean)  # as many groups come back as are killed, these in the pause
        before = longer
        longer = (longer + step - math.expm1(-longer / mean) * (reconfigure + heal)) / 2
        if abs(longer - before) < _CLOSE * step:
            break
    paused = begins * found.first
    paused += (found.uptime - paused) * (longer - step) / longer
    training = max(found.uptime - paused, _LEAST)
    steps = found.steps + begins * (found.steps_after - found.steps)
    return Cycle(
        training=training,
        committed=steps / (steps + 1),
        kept=min(1.0, steps * step / training),
        step_end=longer / 2 / training,
        pauses=paused / training,
    )
