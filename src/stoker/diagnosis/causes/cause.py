"""What a cause is: a section of the catalogue, and the signs that it gives of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.finding import Evidence, Kind

Group = Literal["data", "machine", "recipe"]
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
    shows: tuple[Kind, ...] = ()
    """Of `kinds`, those that are of this cause and not of what follows from it: they say what and since when."""
    features: tuple[str, ...] = ()
    """Of text: those that say which documents are at fault."""


def from_confidence(confidence: float) -> float:
    """Nats that a detector's finding speaks for what it detects: 5 at its limit, 10 where it is sure."""
    return 5 + 10 * (min(confidence, 1.0) - 0.5)
