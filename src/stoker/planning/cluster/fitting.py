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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stoker.planning.cluster.parameters import (
    SAME_PRODUCTS,
    Described,
    Parameters,
    parameter_table,
    shipped_parameters,
)
from stoker.planning.cluster.rows import Case
from stoker.planning.cluster.software import UNKNOWN
from stoker.planning.cluster.step import step_seconds

if TYPE_CHECKING:
    from stoker.planning.cluster.evaluation import Judged

Array = NDArray[np.float64]

_STEP = 1e-3
_PULL = 0.0002
"""What it costs to move a physical parameter away from its prior, over the mean error."""
_FRAMEWORK_PULL = 0.002
"""The same of a framework's numbers. More, for most frameworks are seen in one source and should not explain it."""
_LEAST_ERROR = 0.03
"""Errors below this weigh as squares, those above by their size."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured step that a parameter can be fitted to."""

    source: str
    case: Case
    seconds: float


def samples_of(judged: Sequence[Judged]) -> list[Sample]:
    """The measured steps among rows that can be modelled."""
    found = []
    for one in judged:
        seconds = one.measured_seconds
        if one.case is not None and seconds is not None:
            found.append(Sample(one.measurement.source, one.case, seconds))
    return found


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
    pull: float = _PULL,
    framework_pull: float = _FRAMEWORK_PULL,
) -> dict[str, float]:
    """The values of all parameters that are fitted, from `start` (default: the shipped ones)."""
    lines = [line for line in table or parameter_table() if line.source == "fitted"]
    values = dict(shipped_parameters() if start is None else start)
    prior = np.array([_free(line, line.prior) for line in lines])
    free = np.array([_free(line, values[line.name]) for line in lines])
    weights = _weights(samples)
    pulls = np.array([framework_pull if line.name.startswith("framework") else pull for line in lines])
    errors = _errors(samples, values)
    damping = 1e-2
    for _ in range(rounds):
        robust = weights / np.maximum(np.abs(errors), _LEAST_ERROR)
        jacobian = _jacobian(samples, values, lines, free, errors)
        normal = (jacobian * robust[:, None]).T @ jacobian
        gradient = (jacobian * robust[:, None]).T @ errors + pulls * (free - prior)
        improved = False
        for _ in range(6):
            system = normal + np.diag(damping * np.diag(normal) + pulls)
            move = np.clip(-np.linalg.solve(system, gradient), -0.7, 0.7)
            candidate = free + move
            changed = _with(values, lines, candidate)
            trial = _errors(samples, changed)
            if _loss(weights, trial) + _cost(pulls, candidate - prior) < _loss(weights, errors) + _cost(
                pulls, free - prior
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


def _cost(pulls: Array, distance: Array) -> float:
    return float(pulls / 2 @ distance**2)


def _weights(samples: Sequence[Sample]) -> Array:
    counts = Counter(one.source for one in samples)
    weights = np.array([1 / (counts[one.source] + 4) for one in samples])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _errors(samples: Sequence[Sample], values: Parameters) -> Array:
    return np.array([_error(one, values) for one in samples])


def _error(one: Sample, values: Parameters) -> float:
    case = one.case
    return math.log(step_seconds(case.workload, case.cluster, case.software, values).total / one.seconds)


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
        # An unknown framework's numbers are others' mean.
        return case.software.name in (of.split(".")[0], UNKNOWN.name)
    if of:
        architecture = case.cluster.accelerator.architecture
        return of in (architecture, SAME_PRODUCTS.get(architecture), "other")
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


def fitted_without(samples: Sequence[Sample], source: str, most: int = 40, rounds: int = 10) -> dict[str, float]:
    """Values fitted from their priors to all sources but one.

    A framework that only this source used has no numbers of its own then, and gets those of an unknown one.
    """
    rest = thinned([one for one in samples if one.source != source], most)
    known = {one.case.software.name for one in rest}
    table = [line for line in parameter_table() if _framework_of(line.name) in (None, *known)]
    start = {line.name: line.prior for line in table}
    return fit(rest, start, rounds, table)


def _framework_of(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "framework" else None
