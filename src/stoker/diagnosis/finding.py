"""What a finding is: what stands out in a run's record, since when, how sure, with which evidence, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Severity = Literal["note", "warning", "alarm"]
Kind = Literal[
    "spike",
    "divergence",
    "plateau",
    "step_drop",
    "step_rise",
    "nan",
    "loss_scale_collapse",
    "gradient_growth",
    "throughput_drop",
    "stall",
    "hang",
    "slow_rank",
    "memory_growth",
    "router_collapse",
    "source_drift",
    "overfitting",
    "learning_rate_jump",
    "gradient_shift",
    "update_jump",
    "logit_growth",
    "repeated_data",
    "mixture_shift",
    "sequence_length_change",
    "jitter",
    "silent_corruption",
    "save_failed",
    "failure",
    "stop_requested",
    "record_incomplete",
]
WEIGHT: Mapping[Severity, int] = {"alarm": 2, "warning": 1, "note": 0}
PACE: tuple[Kind, ...] = ("slow_rank", "throughput_drop", "jitter", "stall")
"""Kinds about how long steps take, and not what they do to the weights."""
SPOIL: tuple[Kind, ...] = ("silent_corruption", "nan", "divergence")
"""Kinds after which the weights are not what they should be."""
Part = Literal["compute", "communication", "data", "host"]
"""What of a step took longer."""
UNKNOWN = "unknown"
BENIGN = "hard_documents"
"""The cause of what is no fault: it is named only where no other cause shows itself."""
EVENT = "what happened"
"""The measure of evidence that tells of an event in words."""


class Evidence(BaseModel):
    """One figure that was observed where another was expected."""

    model_config = ConfigDict(frozen=True)

    measure: str
    """What was measured, in words: `loss`, `gradient norm`, `seconds of the forward pass`."""
    expected: float | str | None
    """From the run's own recent past, unless the measure says otherwise."""
    observed: float | str | None
    """A figure that is not finite is spelled out: `NaN`, `Inf`."""
    step: int | None


class Remedy(BaseModel):
    """What to do."""

    model_config = ConfigDict(frozen=True)

    action: str
    """One of `REMEDIES` in `remedies.py`."""
    arguments: dict[str, Any] = Field(default_factory=dict)


class Alternative(BaseModel):
    """Another cause that was weighed, with what speaks for it and against it."""

    model_config = ConfigDict(frozen=True)

    cause: str
    score: float
    """As `Finding.score`."""
    speaks_for: tuple[Evidence, ...] = ()
    speaks_against: tuple[Evidence, ...] = ()


class Finding(BaseModel):
    """One incident of a run."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    cause: str = UNKNOWN
    """The name of one of the catalogue's causes, or of what an event says."""
    score: float | None = None
    """In nats: how much likelier the evidence is under `cause` than by the run's own noise. None where the cause
    was not weighed against others."""
    alternatives: tuple[Alternative, ...] = ()
    """The runners-up, the likelier first."""
    severity: Severity
    first_step: int | None
    """None when it happened before any step."""
    last_step: int | None
    """The last step it was seen at: the record's last one while it lasts."""
    ranks: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    documents: tuple[tuple[int, int], ...] = ()
    """Ranges of sample numbers, both ends included, that `stoker data show` prints the documents of."""
    names: tuple[str, ...] = ()
    """Identifiers of the documents at fault, where the text could be read."""
    part: Part | None = None
    """Of a step, where it is one that takes longer."""
    confidence: float = Field(ge=0, le=1)
    """1 for what an event records."""
    evidence: tuple[Evidence, ...]
    """The first to be seen comes first."""
    remedy: Remedy

    @property
    def rank_of_importance(self) -> tuple[int, int, bool, float, float, int]:
        """Sorts findings, the most important first: severity; then notes about the pace and what needs nothing done
        behind others, and what is unknown last; then what spoils the weights; then the evidence for the cause (of
        notes about the pace: by which factor steps became longer), how sure, and the earlier."""
        of_pace = self.severity == "note" and self.kind in PACE
        known = 2 if self.cause == UNKNOWN else int(of_pace or self.cause == BENIGN)
        sure = round(self.confidence, 2)
        strength = self._longer if of_pace else self.score or 0.0
        return -WEIGHT[self.severity], known, self.kind not in SPOIL, -strength, -sure, self.first_step or 0

    @property
    def _longer(self) -> float:
        """The largest factor by which seconds in its evidence grew; 1 where none did."""
        pairs = [
            (one.expected, one.observed) for one in self.evidence if one.measure.startswith("seconds of a step")
        ]
        pairs = pairs or [(one.expected, one.observed) for one in self.evidence[:1]]
        return max(
            (b / a for a, b in pairs if isinstance(a, float) and isinstance(b, float) and a > 0), default=1.0
        )


def confidence_of(observed: float, limit: float) -> float:
    """How sure a detector is of what exceeds its limit: one half at the limit, 0.9 at about twice it, never 1.

    `observed` and `limit` are deviations in the same unit. The form is a convention, not a probability.
    """
    if limit <= 0 or observed <= 0:
        return 0.5
    return float(min(0.99, max(0.5, 1 - 0.5 * (limit / observed) ** 2.3)))
