"""An arbiter between two gradients of the same loss: the right one is its derivative.

Two copies of the model that disagree cannot outvote each other. But along the direction in which their gradients
differ, each foretells how the loss changes when the weights move, and forward passes alone show how it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.checkpoint.agreement import from_everyone
from stoker.parallel import ParallelModel
from stoker.parallel.nudge import nudged
from stoker.parallel.parallel_model import Inputs

DISTANCES = (1.0, 1 / 4, 1 / 16)
"""How far the weights are moved to either side, as parts of the farthest."""
_FAR = 8.0
"""Times what the right gradient may be off by, that the wrong one has to be."""
_ROUNDINGS = 4.0
"""Roundings, of a typical element's size and in the format of gradients, that an element may be off by."""
_MOST_ELEMENTS = 2**27
"""Of gradients that are kept for it, in host memory."""
_LEAST_SIZE = 1e-3
"""Taken for the size of weights that are all smaller than that, such as those that begin with zero."""

Objective = Callable[[], float]


class Derivative(NamedTuple):
    """Of the loss along a direction."""

    value: float
    error: float
    """What it may be off by, by extrapolation from several distances."""
    spread: float
    """By how much the single distances differ: all there is to go by where the loss has steps, as routers make."""


@dataclass(frozen=True)
class Arbitration:
    """What the loss says about the gradients of two copies of the model."""

    wrong: int | None
    """The copy whose gradient is wrong, 0 or 1; None where that stays open."""
    measured: Derivative | None
    """None where no forward pass was needed, or the copies did not agree about theirs."""
    foretold: tuple[float, float] | None
    """The derivative along the same direction, by the gradient of each copy."""
    why: str

    def as_evidence(self) -> dict[str, Any]:
        """For the record."""
        found: dict[str, Any] = {"why": self.why}
        if self.measured is not None and self.foretold is not None:
            found |= {
                "derivative": self.measured.value,
                "error": self.measured.error,
                "by_gradients": list(self.foretold),
            }
        return found


class _Facts(NamedTuple):
    """About the gradients of one rank and of its counterpart: of copy 0 first."""

    finite: tuple[bool, bool]
    squares: float
    """Of the difference."""
    foretold: tuple[float, float]
    """Products with the difference."""
    errors: tuple[float, float]
    """Squares of what rounding may make of the elements that differ, in roundings."""
    farthest: float
    """How far the difference may be followed before an element moves by the size of a typical weight."""


def differing(mine: Mapping[int, int], theirs: Mapping[int, int]) -> list[int]:
    """Places of leaves whose gradients have other checksums on the counterpart.

    Of those alone that both have seen: each sends the other what it keeps, and would wait for ever for one more.
    """
    return sorted(place for place in mine.keys() & theirs.keys() if mine[place] != theirs[place])


def worth_keeping(places: Sequence[int], elements: Mapping[int, int]) -> list[int]:
    """Of the leaves at `places` as many as there is room for, the smallest first, but at least one."""
    chosen: list[int] = []
    room = _MOST_ELEMENTS
    for place in sorted(places, key=lambda one: (elements[one], one)):
        room -= elements[place]
        if room < 0 and chosen:
            break
        chosen.append(place)
    return chosen


def extrapolated(differences: Sequence[float], distances: Sequence[float], rounding: float) -> Derivative:
    """The derivative from central differences over `distances`, each smaller than the one before.

    Richardson's extrapolation, of which the entry with the smallest estimate of its own error is taken (Ridders
    1982). No entry's error is below `rounding`, that of one value of the function, over its distance.
    """
    spread = max(differences) - min(differences)
    best = Derivative(math.nan, math.inf, spread)
    above: list[float] = []
    for number, (difference, distance) in enumerate(zip(differences, distances, strict=True)):
        row = [difference]
        for order in range(1, number + 1):
            factor = (distances[number - order] / distance) ** 2
            row.append((row[-1] * factor - above[order - 1]) / (factor - 1))
            spread = max(abs(row[order] - row[order - 1]), abs(row[order] - above[order - 1]))
            error = max(spread, rounding / distance)
            if error < best.error:
                best = Derivative(row[order], error, spread)
        above = row
    return best


def wrong_of(foretold: tuple[float, float], own: tuple[float, float], measured: Derivative) -> int | None:
    """Which of two predictions is wrong: one that is many times what the other, which fits, may be off by.

    `own` is what each may be off by in itself. None where neither or each fits, or neither is far enough off.
    """
    off = [abs(one - measured.value) for one in foretold]
    for error in (measured.error, max(measured.error, measured.spread)):
        allowed = [error + one for one in own]
        found = [
            wrong
            for wrong, right in ((0, 1), (1, 0))
            if off[right] <= allowed[right] and off[wrong] > allowed[wrong] and off[wrong] >= _FAR * allowed[right]
        ]
        if len(found) == 1:
            return found[0]
    return None


class Arbiter:
    """Asks the loss. Collective: all ranks of two copies of the model, which compute the same part of the batch."""

    def __init__(
        self,
        model: ParallelModel,
        copy: int,
        other: int,
        unit: float,
        phase: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """`copy` is this rank's, `other` its counterpart, `unit` the rounding of the numbers that gradients are
        computed in. `phase` is entered around each forward pass.
        """
        self._model, self._copy, self._other, self._unit, self._phase = model, copy, other, unit, phase

    def ask(
        self,
        gradients: Mapping[int, Tensor],
        sizes: Mapping[int, float],
        batches: Sequence[Inputs],
        *,
        non_finite_is_wrong: bool,
        **settings: Any,
    ) -> Arbitration:
        """`gradients` of this rank, by place in `leaves`; `sizes` are the root mean squares of the weights there.

        `settings` are those of `ParallelModel.objective`. Weights are the same bits afterwards.
        """
        model = self._model

        def objective() -> float:
            with self._phase():
                found = [model.objective(batch, **settings) for batch in batches]
            return float(sum(found))

        pairs = {place: self._paired(one) for place, one in sorted(gradients.items())}
        everyone = from_everyone((self._copy, _facts(pairs, sizes)))
        facts = [one for copy, one in everyone if copy == 0]
        finite = [all(one.finite[copy] for one in facts) for copy in (0, 1)]
        if not all(finite):
            return self._by_what_is_not_finite(finite, objective, non_finite_is_wrong)
        length = math.sqrt(sum(one.squares for one in facts))
        if not length:
            return Arbitration(None, None, None, "the gradients that were compared did not differ once more")
        first, second = (sum(one.foretold[copy] for one in facts) / length for copy in (0, 1))
        own = [_ROUNDINGS * self._unit * math.sqrt(sum(one.errors[copy] for one in facts)) for copy in (0, 1)]
        directions = {place: (one - other) / length for place, (one, other) in pairs.items()}
        distances = [part * length * min(one.farthest for one in facts) for part in DISTANCES]
        measured = self._measured(directions, distances, objective)
        if measured is None:
            return Arbitration(None, None, None, "the copies do not compute the same losses")
        wrong = wrong_of((first, second), (own[0], own[1]), measured)
        why = (
            "neither gradient is the one that changes of the loss show"
            if wrong is None
            else ("changes of the loss show the gradient of the other")
        )
        return Arbitration(wrong, measured, (first, second), why)

    def _by_what_is_not_finite(self, finite: list[bool], objective: Objective, counts: bool) -> Arbitration:
        losses = self._of_copies(objective())
        sound = losses[0] == losses[1] and math.isfinite(losses[0])
        if any(finite) and counts and sound:
            return Arbitration(finite.index(False), None, None, "its gradient is not finite, and the loss is")
        return Arbitration(None, None, None, "what is not finite tells nothing here")

    def _measured(
        self, directions: Mapping[int, Tensor], distances: Sequence[float], objective: Objective
    ) -> Derivative | None:
        """None where the copies compute different losses of the same weights."""
        differences, largest = [], 0.0
        for distance in distances:
            sides = []
            for signed in (distance, -distance):
                with nudged(self._model, directions, signed):
                    losses = self._of_copies(objective())
                if losses[0] != losses[1]:
                    return None
                sides.append(losses[0])
            differences.append((sides[0] - sides[1]) / (2 * distance))
            largest = max(largest, *map(abs, sides))
        return extrapolated(differences, distances, largest * torch.finfo(torch.float32).eps / 2)

    def _of_copies(self, own: float) -> list[float]:
        """The sum over each copy's ranks, in their order."""
        everyone = from_everyone((self._copy, own))
        return [sum(value for copy, value in everyone if copy == wanted) for wanted in (0, 1)]

    def _paired(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of copy 0 and of copy 1."""
        sent = own.to(self._model.world.device)
        received = torch.empty_like(sent)
        both = [dist.P2POp(dist.isend, sent, self._other), dist.P2POp(dist.irecv, received, self._other)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        theirs = received.to(own.device)
        return (theirs, own) if self._copy else (own, theirs)


def _facts(pairs: Mapping[int, tuple[Tensor, Tensor]], sizes: Mapping[int, float]) -> _Facts:
    finite = tuple(all(bool(pair[copy].isfinite().all()) for pair in pairs.values()) for copy in (0, 1))
    squares, farthest, foretold, errors = 0.0, math.inf, [0.0, 0.0], [0.0, 0.0]
    for place, pair in pairs.items():
        difference = pair[0] - pair[1]
        moved = difference != 0
        largest = float(difference.abs().max())
        if largest:
            squares += float(difference.square().sum())
            farthest = min(farthest, max(sizes[place], _LEAST_SIZE) / largest)
        for copy, gradient in enumerate(pair):
            foretold[copy] += float((gradient * difference).sum())
            typical = float(gradient.square().sum()) / max(int((gradient != 0).sum()), 1)
            errors[copy] += int(moved.sum()) * typical + float(gradient[moved].square().sum())
    return _Facts((finite[0], finite[1]), squares, (foretold[0], foretold[1]), (errors[0], errors[1]), farthest)
