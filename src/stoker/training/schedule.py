"""The learning rate as a function of the step alone."""

from __future__ import annotations

import math

from stoker.recipe import Schedule


def learning_rate_factor(schedule: Schedule, step: int, steps: int) -> float:
    """What the optimizer's learning rates are multiplied by at `step` of `steps` (the first step is 1).

    Warm-up rises linearly from 1/warmup_steps to 1 at step `warmup_steps`. From there cosine and linear
    fall to `minimum` at the last step; wsd holds 1 and falls linearly to `minimum` over its last
    `decay_steps`; inverse_sqrt is sqrt(warmup_steps / step); constant stays 1.
    """
    warmup = schedule.warmup_steps
    if step <= warmup:
        return step / warmup
    match schedule.name:
        case "constant":
            return 1.0
        case "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / step)
        case "cosine":
            fallen = 0.5 * (1 - math.cos(math.pi * _share_done(step, warmup, steps)))
        case "linear":
            fallen = _share_done(step, warmup, steps)
        case "wsd":
            decay = schedule.decay_steps if schedule.decay_steps is not None else max(1, steps // 10)
            fallen = _share_done(step, max(warmup, steps - decay), steps)
    return 1.0 - (1.0 - schedule.minimum) * fallen


def _share_done(step: int, start: int, end: int) -> float:
    """0 up to `start`, 1 from `end` on, linear between."""
    if step >= end:
        return 1.0
    return max(0, step - start) / (end - start)
