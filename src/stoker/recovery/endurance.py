"""How often a run may fail: when to try again, after how long, and when that would only be a loop."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from stoker.recipe import Recovery

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True)
class Verdict:
    """What to do after a failure."""

    delay_seconds: float
    gives_up: str | None = None
    """Why there is no further attempt; None when there is one."""


@dataclass
class Endurance:
    """Remembers a run's failures."""

    recovery: Recovery
    _times: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    _furthest: int = -1
    _in_a_row: int = 0

    def judge(self, kind: str, message: str, step: int, first: int) -> Verdict:
        """What follows from a failure of `kind` after `step` was done, in an attempt that began after step `first`.

        The same step that fails the same way `recovery.same_failure` times ends the run. Failures without a
        new step between them wait longer and longer.
        """
        if step > max(first, self._furthest):
            self._in_a_row = 0
        self._furthest = max(self._furthest, step)
        self._in_a_row += 1
        # Ports, addresses and process numbers differ between two failures that are the same.
        self._times[step, kind, _NUMBERS.sub("#", message)] += 1
        times = self._times[step, kind, _NUMBERS.sub("#", message)]
        if times >= self.recovery.same_failure:
            done = f"after step {step:,}" if step else "before the first step"
            return Verdict(0.0, f"it failed in the same way {times} times {done}")
        wait = 0.0 if self._in_a_row == 1 else 2.0 ** (self._in_a_row - 2)
        return Verdict(min(wait, self.recovery.longest_backoff_seconds))
