"""What a cause is: a section of the catalogue, and the signs that it gives of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.finding import Evidence, Kind

Group = Literal["data", "machine", "recipe"]
MOST = 12.0
"""Nats: one sign alone says no more, for it or against it."""
RECORDED = 10.0
"""Of what the record says outright."""


@dataclass(frozen=True)
class Sign:
    """One observation, and how much likelier it is under the cause than by the run's own noise."""

    evidence: Evidence
    score: float
    """In nats; negative where it speaks against the cause."""


@dataclass(frozen=True)
class Cause:
    """One section of the catalogue."""

    name: str
    group: Group
    kinds: tuple[Kind, ...]
    """The kinds of finding that it can explain."""
    signature: str
    """How it shows itself, in words."""
    evidence: Callable[[Incident], Iterable[Sign]]
    """Signs for and against it; none where it shows nothing of itself."""
    remedy: str | None
    """One of `REMEDIES`; None where the finding's own says more."""
    false_friends: str
    """What looks like it and is not, and how they are told apart."""
    source: str
    """Where it is described: title and identifier."""
    features: tuple[str, ...] = ()
    """Of text: those that say which documents are at fault."""


def likelihood(deviations: float) -> float:
    """Nats that so many robust deviations speak for a change: Student's t with three degrees of freedom, whose
    tails are as heavy as a loss curve's, less 1.5 for the freedom to change by any amount."""
    return max(-MOST, min(MOST, 2 * math.log1p(deviations * deviations / 3) - 1.5))


def from_confidence(confidence: float) -> float:
    """Nats that a detector's finding speaks for what it detects: 5 at its limit, 10 where it is sure."""
    return 5 + 10 * (min(confidence, 1.0) - 0.5)
