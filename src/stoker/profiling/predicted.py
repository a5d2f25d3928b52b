"""The plan beside the profile, category by category: a wrong prediction is a defect that can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.planning.plan import StepSeconds
from stoker.profiling.account import BUBBLE, COMPUTE, HOST
from stoker.profiling.collectives import EVERYBODY

OFF_SHARE = 0.25
"""A prediction is off when it is wrong by more than this share of itself …"""
_OF_STEP = 0.02
"""… and by more than this share of the step."""


@dataclass(frozen=True)
class Compared:
    """One predicted part of a step, and what became of it."""

    what: str
    predicted: float | None
    """Seconds; None: the plan says nothing of it."""
    measured: float
    off: bool

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None


def compare(
    plan: StepSeconds,
    categories: Mapping[str, float],
    exposed: Mapping[str, float],
    repeated: float,
    wall: float,
) -> tuple[Compared, ...]:
    """Of one rank's step: seconds by category, exposed communication by dimension, recomputation within compute."""
    exposed_dp = sum(seconds for name, seconds in exposed.items() if _is_data_parallel(name))
    others = sum(exposed.values()) - exposed_dp - sum(exposed.get(name, 0.0) for name in ("tp", "cp", "ep"))
    beside = categories["checkpoint"] + categories["evaluation"]
    parts: list[tuple[str, float | None, float]] = [
        ("compute", plan.compute, categories[COMPUTE] - repeated),
        ("recompute", plan.recompute, repeated),
        ("tensor-parallel traffic", plan.tp, exposed.get("tp", 0.0)),
        ("context-parallel traffic", plan.cp, exposed.get("cp", 0.0)),
        ("expert-parallel traffic", plan.ep, exposed.get("ep", 0.0)),
        ("gradients and weights", plan.dp, exposed_dp),
        ("pipeline bubble", plan.pp_bubble, categories[BUBBLE]),
        ("optimizer", plan.optimizer, categories["optimizer"]),
        ("other communication", None, max(0.0, others)),
        ("data", None, categories["data"]),
        ("host", None, categories[HOST]),
        ("checkpoint", None, categories["checkpoint"]),
        ("evaluation", None, categories["evaluation"]),
        ("a step without saving and evaluation", plan.total, wall - beside),
    ]
    return tuple(
        Compared(what, given, measured, _is_off(given, measured, wall))
        for what, given, measured in parts
        if given or measured > 0
    )


def _is_data_parallel(dimension: str) -> bool:
    return dimension == EVERYBODY or any(part in ("dp_replicate", "dp_shard") for part in dimension.split("+"))


def _is_off(predicted: float | None, measured: float, wall: float) -> bool:
    if predicted is None:
        return False
    error = abs(measured - predicted)
    return error > OFF_SHARE * max(predicted, 1e-12) and error > _OF_STEP * wall
