"""Writes what happened in each step to the run's record: what all ranks share, and what is each rank's own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from stoker.data.feeding import Feed
from stoker.parallel.module_sums import ModuleSums, module_sums
from stoker.record import RecordWriter
from stoker.training.clock import PhaseClock, StepTimes
from stoker.training.position import Position
from stoker.training.rows import module_rows, routing_rows, step_row, weight_norm
from stoker.training.step import StepResult, TrainingStep
from stoker.training.update_norm import UpdateNorm


@dataclass
class Telemetry:
    """Collective: all ranks record the same steps."""

    feed: Feed
    step: TrainingStep
    updates: UpdateNorm
    record: RecordWriter
    clock: PhaseClock

    def by_module(self, step: int) -> bool:
        """Whether figures of each module are recorded of `step`."""
        return _due(step, self.step.recipe.telemetry.modules_every)

    def record_step(
        self, position: Position, step: int, result: StepResult, update_norm: float | None, read_ahead: int | None
    ) -> tuple[dict[str, Any], StepTimes]:
        """Write the rows of `step`; returns the row of the step itself and where its time went."""
        if self.step.recipe.training.memory.release_gradients:
            update_norm = None  # weights have moved before the optimizer's step, which alone is measured
        modules: dict[str, ModuleSums] = {}
        figures: dict[str, dict[str, float]] = {}
        if self.by_module(step):
            with self.clock.phase("communication", "modules"):
                modules, figures = self._look_at_modules(result, update_norm is not None)
        times = self.clock.read_and_restart()
        row = step_row(self.step.recipe, self.feed, self.step.model.world, position, step, result, times)
        row["work_seconds"] = times.work if self.step.model.waits_are_known else None
        row["update_norm"], row["read_ahead"] = update_norm, read_ahead
        row["weight_norm"] = weight_norm(modules)
        self.record.append("step", row)
        at = {"attempt": position.attempt, "step": step, "time": time.time()}
        if self.step.model.world.is_first:
            for module in module_rows(modules, figures):
                self.record.append("module", {**at, **module})
        for document in result.documents:
            self.record.append("document", {**at, **document.row()})
        if _due(step, self.step.recipe.telemetry.timeline_every):
            self.record.append(
                "timeline", {**at, "began": times.began, "spans": [list(span) for span in times.spans]}
            )
        for routing in routing_rows(position.attempt, step, result, self.by_module(step)):
            self.record.append("routing", routing)
        return row, times

    def _look_at_modules(
        self, result: StepResult, updated: bool
    ) -> tuple[dict[str, ModuleSums], dict[str, dict[str, float]]]:
        """What is known of weights, gradients and updates, and of activations."""
        moved = self.updates.by_parameter() if updated else None
        seen = self.step.activations.take() if self.step.activations else {}
        return module_sums(self.step.model, result.gradient_norms, moved), seen


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
