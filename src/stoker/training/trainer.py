"""The loop: take a step, record it, and now and then evaluate and save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.checkpoint import Outcome, Saver
from stoker.data.feeding import Feed, MicroBatch
from stoker.errors import NonFinite, Terminated
from stoker.recipe import Recipe
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory
from stoker.training.clock import PhaseClock
from stoker.training.evaluation import SourceScore, continue_prompts, evaluate
from stoker.training.held_out_text import HeldOutText
from stoker.training.memory import peak_memory_bytes, reserved_memory_bytes
from stoker.training.position import Position
from stoker.training.signals import StopRequest
from stoker.training.step import StepResult, TrainingStep

_log = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Trains from `position` to the recipe's last step. All ranks run the same loop."""

    recipe: Recipe
    run: RunDirectory
    feed: Feed
    text: HeldOutText
    step: TrainingStep
    saver: Saver
    record: RecordWriter
    position: Position
    stop: StopRequest
    clock: PhaseClock
    report: Callable[[dict[str, Any]], None]

    def fit(self) -> None:
        """Run every step that is still to do. Raises `NonFinite` or `Terminated` when stopped short."""
        self.record.append("event", self._event("resumed" if self.position.step else "started"))
        for step, batches in self._batches():
            result = self._step(step, batches)
            if not result.finite:
                self._stop_non_finite(step, result)
            self.position.advance(step, result.tokens, self.step.loss_scale)
            # Recorded before it is saved: a run that resumes from a checkpoint has the row of every step in it.
            self._record_step(step, result)
            last = step == self.recipe.training.steps
            if last or self._due(step, self.recipe.evaluation.every):
                self._evaluate(step)
            ends = last or result.stop_requested
            self._stage(step, durable=ends or self._due(step, self.recipe.checkpoint.every))
            if ends or result.copy_failed:
                self._finish_saving(step)
            if result.stop_requested and not last:
                self._stop_on_request(step)
        self.record.append("event", self._event("finished"))

    def close(self) -> None:
        """Wait for a save that is under way, and flush the record."""
        self.saver.close()
        self._record_saves(self.saver.poll())
        self.record.close()

    def _batches(self) -> Iterator[tuple[int, list[MicroBatch]]]:
        """The steps still to do with this rank's micro-batches; waiting for data counts as `data`."""
        world = self.step.model.world
        first, last = self.position.step + 1, self.recipe.training.steps
        with self.feed.steps(first, last, world.data_parallel_rank, world.layout.data_parallel_size) as steps:
            while True:
                with self.clock.phase("data"):
                    item = next(steps, None)
                if item is None:
                    return
                yield item

    def _step(self, step: int, batches: list[MicroBatch]) -> StepResult:
        with_modules = self._due(step, self.recipe.telemetry.module_norms_every)
        try:
            failed = self.saver.non_finite is not None
            return self.step(step, batches, with_modules=with_modules, stop=self.stop.asked, copy_failed=failed)
        except NonFinite as error:  # the fp16 loss scale has nowhere left to fall
            self.record.append("event", self._event("non_finite", step=step, reason=str(error)))
            raise

    def _due(self, step: int, every: int) -> bool:
        return every > 0 and step % every == 0

    def _evaluate(self, step: int) -> None:
        with self.clock.phase("evaluation"):
            model = self.step.model
            scores = evaluate(model, self.recipe, self.text.sources)
            continuations = continue_prompts(model, self.recipe, self.text)
        self.position.held_out_loss = _mean_loss(scores)
        if not model.world.is_first:
            return
        when = {"attempt": self.position.attempt, "time": time.time()}
        for score in scores:
            self.record.append("evaluation", {**when, **score.row(step)})
        for prompt, continuation in continuations:
            self.record.append("sample", {**when, "step": step, "prompt": prompt, "text": continuation})
        self.report({"kind": "evaluation", "step": step, "scores": [_score_line(score) for score in scores]})

    def _stage(self, step: int, durable: bool) -> None:
        """Begin to save the state after `step`, or to copy it into memory where such copies are kept."""
        self._record_saves(self.saver.poll())
        copied = self.saver.keeps_snapshots and self._due(step, self.recipe.recovery.copy_every)
        if durable or copied:
            self.record.flush()
            with self.clock.phase("checkpoint"):
                self.saver.stage(step, self.position.as_progress(self.recipe), durable=durable)

    def _finish_saving(self, step: int) -> None:
        """Wait for saves that are under way. Raises when `step` could not be saved, or any state was not finite."""
        with self.clock.phase("checkpoint"):
            outcomes = self.saver.finish()
        self._record_saves(outcomes)
        if self.saver.non_finite is not None:
            self.record.append("event", self._event("non_finite", reason=str(self.saver.non_finite)))
            self.record.flush()
            raise self.saver.non_finite
        for outcome in outcomes:
            if outcome.step == step and outcome.error is not None:
                raise outcome.error

    def _record_saves(self, outcomes: Sequence[Outcome]) -> None:
        """What became of saves. One that failed is tried again at the next interval; older checkpoints stand."""
        for outcome in outcomes:
            detail = {"seconds": outcome.seconds, "stalled_seconds": outcome.stalled_seconds}
            if outcome.error is None:
                event = self._event("saved", outcome.step, bytes=outcome.bytes, **detail)
            else:
                event = self._event("save_failed", outcome.step, reason=str(outcome.error), **detail)
                if self.step.model.world.is_first:
                    _log.warning("the checkpoint of step %d failed: %s", outcome.step, outcome.error)
            self.record.append("event", event)

    def _record_step(self, step: int, result: StepResult) -> None:
        seconds = self.clock.read_and_restart()
        first = self.recipe.training.samples_before(step)
        row = {
            "attempt": self.position.attempt,
            "step": step,
            "time": time.time(),
            "loss": result.loss,
            "loss_by_source": result.loss_by_source,
            "tokens_by_source": result.tokens_by_source,
            "gradient_norm": result.gradient_norm,
            "gradient_norm_by_module": result.gradient_norm_by_module,
            "learning_rate": result.learning_rate,
            "tokens": result.tokens,
            "tokens_seen": self.position.tokens_seen,
            "first_sample": first,
            "last_sample": first + self.recipe.training.batch_size_at(step),
            "batch_digest": self.feed.digest(step) if self.step.model.world.is_first else None,
            "accumulation": self.recipe.accumulation_at(step),
            "clipped": result.clipped,
            "skipped": result.skipped,
            "loss_scale": result.loss_scale,
            "dead_updates": result.dead_updates,
            "seconds": seconds,
            "memory_peak_bytes": peak_memory_bytes(self.step.model.world.device),
            "memory_reserved_bytes": reserved_memory_bytes(self.step.model.world.device),
            "ranks": self.step.model.world.layout.world_size,
        }
        self.record.append("step", row)
        self._record_routing(step, result)
        self.report(
            {
                "kind": "step",
                **{k: row[k] for k in ("step", "loss", "learning_rate", "gradient_norm", "tokens")},
            }
        )

    def _record_routing(self, step: int, result: StepResult) -> None:
        """How evenly the experts of each block were used; loads are over the mean of all experts."""
        for module, found in result.routing.items():
            counts, tokens = found.tokens_per_expert, max(int(found.tokens), 1)
            choices = max(int(counts.sum()), 1)
            row = {
                "attempt": self.position.attempt,
                "step": step,
                "time": time.time(),
                "module": module,
                "largest_load": float(counts.max()) * len(counts) / choices,
                "smallest_load": float(counts.min()) * len(counts) / choices,
                "dropped": int(found.dropped) / choices,
                "entropy": float(found.entropy) / tokens,
                "auxiliary_loss": float(found.auxiliary_loss) / tokens,
                "z_loss": float(found.z_loss) / tokens,
            }
            if self._due(step, self.recipe.telemetry.module_norms_every):
                row["tokens_by_expert"] = {str(expert): int(count) for expert, count in enumerate(counts)}
            self.record.append("routing", row)

    def _stop_non_finite(self, step: int, result: StepResult) -> None:
        """Nothing was updated: weights and optimizer are those of the step before."""
        self._record_step(step, result)
        first = self.recipe.training.samples_before(step)
        samples = [first, first + self.recipe.training.batch_size_at(step)]
        self.record.append("event", self._event("non_finite", step=step, samples=samples))
        self.record.flush()
        raise NonFinite(
            f"step {step}: loss {result.loss}, gradient norm {result.gradient_norm}: not finite, so nothing was "
            f"updated and the run stopped. Its batch is samples {samples[0]} to {samples[1] - 1}: "
            f"`stoker data show {self.run.path} --step {step}` prints them."
        )

    def _stop_on_request(self, step: int) -> None:
        self.record.append("event", self._event("terminated"))
        self.record.flush()
        raise Terminated(
            f"asked to stop: saved after step {step}. The same command goes on from there: stoker train …"
        )

    def _event(self, event: str, step: int | None = None, **detail: Any) -> dict[str, Any]:
        return {
            "step": self.position.step if step is None else step,
            "event": event,
            "attempt": self.position.attempt,
            "time": time.time(),
            "detail": detail,
        }


def _mean_loss(scores: Sequence[SourceScore]) -> float | None:
    """Of all held-out tokens; None when there are none."""
    tokens = sum(score.tokens for score in scores)
    return sum(score.loss * score.tokens for score in scores) / tokens if tokens else None


def _score_line(score: SourceScore) -> dict[str, Any]:
    return {"source": score.source, "loss": score.loss, "bits_per_byte": score.bits_per_byte}
