"""Fits the parameters to measurements: Levenberg-Marquardt on the logarithm of predicted over measured step time.

Every source weighs about the same however many rows it has, and far-off rows weigh less (absolute rather than
squared errors). Values stay within the bounds of `parameters.csv`; a weak pull towards the middle of what is
physically plausible keeps those apart that few rows can tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.planning.cluster.parameters import Described, Parameters, parameter_table, shipped_parameters
from stoker.planning.cluster.prediction import predict
from stoker.planning.cluster.rows import Case

Array = NDArray[np.float64]

_STEP = 1e-3
_LEAST_ERROR = 0.03
"""Errors below this weigh as squares, those above by their size."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured step that a parameter can be fitted to."""

    source: str
    case: Case
    seconds: float


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most about `most` of each source, evenly picked."""
    counts = Counter(one.source for one in samples)
    seen: Counter[str] = Counter()
    kept = []
    for one in samples:
        index = seen[one.source]
        seen[one.source] += 1
        total = counts[one.source]
        if total <= most or (index * most) // total != ((index - 1) * most) // total:
            kept.append(one)
    return kept


def fit(
    samples: Sequence[Sample],
    start: Parameters | None = None,
    rounds: int = 8,
    table: Sequence[Described] | None = None,
    pull: float = 0.0005,
) -> dict[str, float]:
    """The values of all parameters that are fitted, from `start` (default: the shipped ones)."""
    lines = [line for line in table or parameter_table() if line.source == "fitted"]
    values = dict(shipped_parameters() if start is None else start)
    prior = np.array([_free(line, line.prior) for line in lines])
    free = np.array([_free(line, values[line.name]) for line in lines])
    weights = _weights(samples)
    errors = _errors(samples, values)
    damping = 1e-2
    for _ in range(rounds):
        robust = weights / np.maximum(np.abs(errors), _LEAST_ERROR)
        jacobian = _jacobian(samples, values, lines, free, errors)
        normal = (jacobian * robust[:, None]).T @ jacobian
        gradient = (jacobian * robust[:, None]).T @ errors + pull * (free - prior)
        improved = False
        for _ in range(6):
            system = normal + np.diag(damping * np.diag(normal) + pull)
            move = np.clip(-np.linalg.solve(system, gradient), -0.7, 0.7)
            candidate = free + move
            changed = _with(values, lines, candidate)
            trial = _errors(samples, changed)
            if _loss(weights, trial) + _cost(pull, candidate - prior) < _loss(weights, errors) + _cost(
                pull, free - prior
            ):
                free, values, errors, improved = candidate, changed, trial, True
                damping = max(damping / 4, 1e-4)
                break
            damping *= 4
        if not improved:
            break
    return values


def _loss(weights: Array, errors: Array) -> float:
    size = np.abs(errors)
    smooth = np.where(size < _LEAST_ERROR, size**2 / (2 * _LEAST_ERROR) + _LEAST_ERROR / 2, size)
    return float(weights @ smooth)


def _cost(pull: float, distance: Array) -> float:
    return float(pull / 2 * distance @ distance)


def _weights(samples: Sequence[Sample]) -> Array:
    counts = Counter(one.source for one in samples)
    weights = np.array([1 / (counts[one.source] + 4) for one in samples])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _errors(samples: Sequence[Sample], values: Parameters) -> Array:
    return np.array([_error(one, values) for one in samples])


def _error(one: Sample, values: Parameters) -> float:
    case = one.case
    return math.log(predict(case.workload, case.cluster, case.software, values).seconds.total / one.seconds)


def _jacobian(
    samples: Sequence[Sample], values: Parameters, lines: Sequence[Described], free: Array, errors: Array
) -> Array:
    found = np.zeros((len(samples), len(lines)))
    for column, line in enumerate(lines):
        moved = free.copy()
        moved[column] += _STEP
        changed = _with(values, lines, moved)
        for index, one in enumerate(samples):
            if _matters(line.name, one.case):
                found[index, column] = (_error(one, changed) - errors[index]) / _STEP
    return found


def _matters(name: str, case: Case) -> bool:
    p = case.workload.parallelism
    kind, _, of = name.partition(".")
    if kind == "framework":
        return of.split(".")[0] == case.software.name
    if of:
        return of in (case.cluster.accelerator.architecture, "other")
    if name.startswith("tp_"):
        return p.tp > 1
    if name.startswith("cp_"):
        return p.cp > 1
    if name.startswith("pp_"):
        return p.pp > 1
    if name.startswith("ep_") or name == "host_seconds_per_expert":
        return case.workload.architecture.experts is not None
    if name.startswith("network"):
        return case.cluster.nodes > 1
    return True


def _with(values: Parameters, lines: Sequence[Described], free: Array) -> dict[str, float]:
    changed = dict(values)
    for line, value in zip(lines, free, strict=True):
        changed[line.name] = _bounded(line, float(value))
    return changed


def _free(line: Described, value: float) -> float:
    share = min(max((value - line.low) / (line.high - line.low), 0.01), 0.99)
    return math.log(share / (1 - share))


def _bounded(line: Described, free: float) -> float:
    return line.low + (line.high - line.low) / (1 + math.exp(-min(max(free, -30.0), 30.0)))
