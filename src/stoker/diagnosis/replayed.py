"""What computing a step once more says.

The same batch on another state, another batch on the same state, and the same again in another process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from stoker.diagnosis.finding import Finding, Kind

MOST_INCIDENTS = 3
_REPLAYED: tuple[Kind, ...] = ("spike", "divergence", "step_rise", "gradient_growth", "nan")


@dataclass(frozen=True)
class Trial:
    """The loss and the gradients of one batch on one state."""

    batch: int
    """The step whose batch it is."""
    state: int
    """The step after which the weights were saved."""
    loss: float = math.nan
    gradient_norm: float = math.nan
    """Of all parameters, before clipping."""
    bits: str = ""
    """Checksums of the losses and the gradients; empty where they were not kept."""
    process: int = 0
    """Which of two processes computed it: the second one what the first one has computed as well."""
    about: int = 0
    """The step whose incident it is about."""


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
        return self._ratio({one.batch: one.loss for one in self._first_process if one.state == state})

    @property
    def gradient_excess(self) -> float | None:
        """As `excess`, of the gradient norm on the first state."""
        return self._ratio({one.batch: one.gradient_norm for one in reversed(self._first_process)})

    @property
    def _first_process(self) -> list[Trial]:
        return [one for one in self.trials if one.process == 0]

    def _ratio(self, found: Mapping[int, float]) -> float | None:
        both = [found.get(self.step, math.nan), found.get(self.usual, math.nan)]
        return math.log(both[0] / both[1]) if all(math.isfinite(one) and one > 0 for one in both) else None

    @property
    def repeats(self) -> bool | None:
        """Whether the same batch on the same state gave the same bits in both processes; None where it was not
        tried."""
        twice = next((one for one in self.trials if one.process), None)
        if twice is None:
            return None
        first = next(one for one in self._first_process if (one.batch, one.state) == (twice.batch, twice.state))
        return (first.loss, first.bits) == (twice.loss, twice.bits)


def worth_replaying(findings: tuple[Finding, ...]) -> list[int]:
    """The first steps of the incidents that a replay can say something about, the most important first."""
    steps = [one.first_step for one in findings if one.kind in _REPLAYED and one.first_step is not None]
    return list(dict.fromkeys(steps))[:MOST_INCIDENTS]
