"""Puts faults of training dynamics into one rank."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from stoker.parallel.placement import local
from stoker.recovery.dynamics.batches import OF_BATCHES, DisturbedFeed
from stoker.recovery.dynamics.growth import grow_gains, prefer_one_expert
from stoker.recovery.dynamics.kinds import DYNAMICS
from stoker.recovery.dynamics.machine import Leak, Pace, compute_slowly, sum_late
from stoker.recovery.dynamics.updates import (
    burst,
    divide_by_another_count,
    jump_rate,
    lose_optimizer_state,
    overflows_at,
)
from stoker.recovery.faults import Fault
from stoker.training.trainer import Trainer

_SUMMED = 2
"""Behind gradients come the loss and the norm: then all ranks hold the same gradients."""


class Course:
    """This rank's faults of training dynamics, and what they have to do with."""

    def __init__(self, faults: Sequence[Fault], attempt: int) -> None:
        self._faults = [f for f in faults if f.kind in DYNAMICS and f.attempt in (None, attempt)]
        self._trainer: Trainer | None = None
        self._pace = Pace()
        self._leak = Leak()
        self._sums = 0
        """Times that ranks have summed something since the last backward pass."""

    def attach(self, trainer: Trainer) -> None:
        """Make ready what lasts. Before the first step."""
        self._trainer = trainer
        if found := self._of(*OF_BATCHES):
            DisturbedFeed.disturb(trainer.feed, found, lambda: self._pace.step)
        if found := self._of("lr_jump"):
            jump_rate(trainer, found)
        if found := self._of("accumulation_bug"):
            divide_by_another_count(trainer, found)
        if found := self._of("router_collapse"):
            prefer_one_expert(trainer, found)
        if found := self._of("slow_rank", "throttle"):
            compute_slowly(trainer, found)
        if found := self._of("jitter", "slow_network"):
            sum_late(trainer, found, self._pace)

    def heard(self, completed: int, phase: str) -> None:
        """A phase begins in this rank, which has completed so many steps."""
        if self._trainer is None or not self._faults:
            return
        step = completed + 1
        if phase == "communication":
            for fault in self._of("overflow"):
                if overflows_at(fault, step):
                    _overflow(self._trainer)
            self._sums += 1
            for fault in self._of("gradient_burst"):
                if fault.step == step and self._sums == _SUMMED:
                    burst(self._trainer, 100 * fault.option("strength"), step)
        elif phase == "backward":
            self._sums = 0
        if phase != "data":
            return
        self._pace.begin(any(_lasts(fault, step) for fault in self._faults))
        if isinstance(self._trainer.feed, DisturbedFeed):
            self._trainer.step.recipe = self._trainer.feed.recipe_at(step)
        for fault in self._of("logit_growth", "leak"):
            if fault.covers(step) and fault.kind == "leak":
                self._leak.grow(fault.option("strength"))
            elif fault.covers(step):
                grow_gains(self._trainer, fault.option("strength"))

    def begin(self, fault: Fault) -> None:
        """Do what is done once, as it comes."""
        if fault.kind == "lost_optimizer_state" and self._trainer is not None:
            lose_optimizer_state(self._trainer, fault.option("strength"))

    def _of(self, *kinds: str) -> list[Fault]:
        return [fault for fault in self._faults if fault.kind in kinds]


def _lasts(fault: Fault, step: int) -> bool:
    return fault.covers(step) if "steps" in DYNAMICS[fault.kind].options else fault.step == step


def _overflow(trainer: Trainer) -> None:
    for one in trainer.step.model.held:
        gradient: Tensor | None = one.parameter.grad if one.is_parameter else None
        if gradient is not None and local(gradient).numel():
            local(gradient).view(-1)[0] = float("inf")
            return
