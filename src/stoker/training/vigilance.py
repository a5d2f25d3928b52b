"""Holds each step's loss and gradient norm against their own recent past before the update, and then the update.

A robust rule: how far above the median, measured in median absolute deviations, of logarithms, so that neither a
past spike nor the scale of the figures moves the bar. A fuller diagnosis comes in through the same door.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from stoker.recipe import Recovery

_TO_DEVIATIONS = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
UPDATE_NORM = "update norm"
_LEAST_DEVIATION = {"loss": 0.01, "gradient norm": 0.05, UPDATE_NORM: 0.05}
"""Of logarithms: where the past hardly varies, less than this is still nothing."""
_LEAST_RATIO = {"loss": 1.1, "gradient norm": 3.0, UPDATE_NORM: 2.0}
"""Over the median, for anything to be remarkable."""

Kind = Literal["spike", "divergence", "non_finite"]


@dataclass(frozen=True)
class Alarm:
    """What is wrong with a step."""

    kind: Kind
    step: int
    first_step: int
    """Of the run of alarms that this one belongs to: the cause lies at or before it."""
    measure: str
    observed: float
    expected: float
    """The recent median; NaN where there is none yet."""
    limit: float

    def __str__(self) -> str:
        if self.kind == "non_finite":
            return f"the {self.measure} is {self.observed}"
        since = f", for {self.step - self.first_step + 1} steps" if self.step > self.first_step else ""
        return (
            f"the {self.measure} is {self.observed:.4g}, its recent median {self.expected:.4g} and the most that "
            f"counts as usual {self.limit:.4g}{since}"
        )

    def as_evidence(self) -> dict[str, Any]:
        """For the record."""
        return {
            "measure": self.measure,
            "observed": self.observed,
            "expected": self.expected,
            "limit": self.limit,
            "first_step": self.first_step,
        }


@dataclass
class Vigilance:
    """Remembers the last steps that were not remarkable. The same on every rank: it sees global figures only."""

    recovery: Recovery
    past: dict[str, deque[float]] = field(init=False)
    alarms_since: int | None = None
    """First step of the present run of alarms."""

    def __post_init__(self) -> None:
        window = self.recovery.window
        self.past = {measure: deque(maxlen=window) for measure in _LEAST_RATIO}

    def judge(self, step: int, loss: float, gradient_norm: float) -> Alarm | None:
        """What is wrong with `step`, which has been computed and not yet applied; None when nothing is."""
        figures = {"loss": loss, "gradient norm": gradient_norm}
        for measure, value in figures.items():
            if not math.isfinite(value):
                since = self._since(step)
                return Alarm("non_finite", step, since, measure, value, self._median(measure), math.inf)
        for measure, value in figures.items():
            limit = self._limit(measure)
            if value > limit:
                since = self._since(step)
                lasting = step - since + 1 >= self.recovery.divergence_steps
                # Gradients may stay large while a model learns something new; a loss that stays up does not.
                kind: Kind = "divergence" if lasting and measure == "loss" else "spike"
                alarm = Alarm(kind, step, since, measure, value, self._median(measure), limit)
                if step - since + 1 >= self.recovery.window:
                    self._begin_anew()
                return alarm
        self.alarms_since = None
        for measure, value in figures.items():
            self.past[measure].append(value)
        return None

    def judge_update(self, step: int, update_norm: float) -> Alarm | None:
        """What is wrong with the update of `step`, which has been made, over the learning rate that was planned.

        The schedule's own changes stand out from nothing then. What stands out is remembered too: a few do not move
        the median, and what lasts is the usual.
        """
        expected, limit = self._median(UPDATE_NORM), self._limit(UPDATE_NORM)
        self.past[UPDATE_NORM].append(update_norm)
        if math.isfinite(update_norm) and update_norm <= limit:
            return None
        kind: Kind = "spike" if math.isfinite(update_norm) else "non_finite"
        return Alarm(kind, step, step, UPDATE_NORM, update_norm, expected, limit)

    def _begin_anew(self) -> None:
        """What has stood out for so long is the usual from now on."""
        self.alarms_since = None
        for past in self.past.values():
            past.clear()

    def _since(self, step: int) -> int:
        if self.alarms_since is None:
            self.alarms_since = step
        return self.alarms_since

    def _median(self, measure: str) -> float:
        return statistics.median(self.past[measure]) if self.past[measure] else math.nan

    def _limit(self, measure: str) -> float:
        past = self.past[measure]
        if len(past) < self.recovery.window // 2 or min(past) <= 0:
            return math.inf
        logs = [math.log(value) for value in past]
        middle = statistics.median(logs)
        deviation = _TO_DEVIATIONS * statistics.median(abs(value - middle) for value in logs)
        deviation = max(deviation, _LEAST_DEVIATION[measure])
        return math.exp(middle) * max(math.exp(self.recovery.deviations * deviation), _LEAST_RATIO[measure])

    def as_state(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that a resumed run judges as the uninterrupted one."""
        return {"alarms_since": self.alarms_since, **{measure: list(past) for measure, past in self.past.items()}}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what a checkpoint kept."""
        self.alarms_since = state["alarms_since"]
        for measure, past in self.past.items():
            past.clear()
            past.extend(state.get(measure, ()))
