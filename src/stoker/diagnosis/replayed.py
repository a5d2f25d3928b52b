"""What computing a step once more says: the same batch on another state, another batch on the same state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker.diagnosis.finding import Finding, Kind

MOST_INCIDENTS = 3
_REPLAYED: tuple[Kind, ...] = ("spike", "divergence", "step_rise", "gradient_growth", "nan")


@dataclass(frozen=True)
class Trial:
    """The loss of one batch on one state."""

    batch: int
    """The step whose batch it is."""
    state: int
    """The step after which the weights were saved."""
    loss: float
    again: bool = False
    """Whether the same had been computed before."""


@dataclass(frozen=True)
class Replay:
    """The trials about one incident, at most five."""

    step: int
    """Whose batch is suspected."""
    usual: int
    """A step whose batch is not."""
    trials: tuple[Trial, ...]

    def excess(self, state: int | None = None) -> float | None:
        """By how much the suspected batch's loss exceeds the usual one's on one state (the first tried), in
        logarithms. None where it was not tried, or is no number."""
        states = [one.state for one in self.trials]
        state = states[0] if state is None and states else state
        found = {one.batch: one.loss for one in self.trials if one.state == state and not one.again}
        losses = [found.get(self.step, math.nan), found.get(self.usual, math.nan)]
        return math.log(losses[0] / losses[1]) if all(math.isfinite(one) and one > 0 for one in losses) else None

    @property
    def repeats(self) -> bool | None:
        """Whether the same batch on the same state gave the same bits twice; None where it was not tried."""
        twice = next((one for one in self.trials if one.again), None)
        if twice is None:
            return None
        first = next(one for one in self.trials if (one.batch, one.state) == (twice.batch, twice.state))
        return first.loss == twice.loss


def worth_replaying(findings: tuple[Finding, ...]) -> list[int]:
    """The first steps of the incidents that a replay can say something about, the most important first."""
    steps = [one.first_step for one in findings if one.kind in _REPLAYED and one.first_step is not None]
    return list(dict.fromkeys(steps))[:MOST_INCIDENTS]
