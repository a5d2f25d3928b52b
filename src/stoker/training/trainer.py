"""The loop: take a step, record it, and now and then evaluate and save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from stoker.checkpoint import Outcome, Saver, go_back_to, steps_saved
from stoker.checkpoint.agreement import from_first
from stoker.data.feeding import Feed, MicroBatch
from stoker.errors import NonFinite, StokerError, Terminated
from stoker.parallel.alone import differ
from stoker.recipe import Recipe
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory
from stoker.training.asked_back import Requests
from stoker.training.clock import PhaseClock
from stoker.training.clock_offset import measure_clock_offset
from stoker.training.evaluation import continue_prompts, evaluate, mean_loss
from stoker.training.held_out_text import HeldOutText
from stoker.training.interventions import Intervention, as_detail
from stoker.training.position import Position
from stoker.training.replicas import Replicas
from stoker.training.rows import bounds_of
from stoker.training.schedule import learning_rate_factor
from stoker.training.second_opinion import SecondOpinion, Verdict
from stoker.training.signals import StopRequest
from stoker.training.slowness import Slowness, time_ranks
from stoker.training.step import StepResult, TrainingStep, bits_of
from stoker.training.telemetry import Telemetry
from stoker.training.update_norm import UpdateNorm

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
    replicas: Replicas
    opinion: SecondOpinion
    update_norm: UpdateNorm
    record: RecordWriter
    position: Position
    stop: StopRequest
    requests: Requests
    clock: PhaseClock
    telemetry: Telemetry
    report: Callable[[dict[str, Any]], None]
    verdict: Verdict | None = None
    """About the last step that ranks did not agree about."""
    slowness: Slowness = field(default_factory=Slowness)
    slower: bool = False
    """Whether steps have become slower on this rank."""
    grace_told: bool = False
    moved: float | None = None
    """The norm of the last step's update; None where there was none."""
    read_ahead: int | None = None
    """Steps whose batches lay ready when the last one's were taken."""

    def fit(self) -> None:
        """Run every step that is still to do. Raises `NonFinite` or `Terminated` when stopped short."""
        begins = "resumed" if self.position.step else "started"
        self.record.append("event", self._event(begins, layout=str(self.recipe.layout)))
        self._compare_clocks()
        if self.position.step == self.recipe.training.steps:
            # Nothing is left to do but to save, when the end was reached and only copies in memory were left of it.
            self._stage(self.position.step, durable=True)
            self._finish_saving(self.position.step)
        while self._went_back():
            pass
        self.record.append("event", self._event("finished"))

    def _went_back(self) -> bool:
        """Do the steps that are still to do, up to the last one, or until the run goes back to an earlier one."""
        for step, batches in self._batches():
            result = self._step(step, batches)
            with self.clock.phase("communication"):
                self.moved = self.update_norm.take()
            self.replicas.note(step, result.own_sums)
            if self._responds(step, result):
                return True
            self.position.advance(step, result.tokens, self.step.loss_scale)
            # Recorded before it is saved: a run that resumes from a checkpoint has the row of every step in it.
            self._record_step(step, result)
            if result.asked_back and self._goes_back_as_asked(step):
                return True
            last = step == self.recipe.training.steps
            if last or self._due(step, self.recipe.evaluation.every):
                self._evaluate(step)
            if result.slower or self.slowness.looking:
                self._find_slow_ranks(step)
            ends = last or result.stop_requested
            durable = ends or self._due(step, self.recipe.checkpoint.every)
            if self._replicas_differ(step, about_to_save=durable):
                return True
            self._stage(step, durable)
            if ends or result.copy_failed:
                self._finish_saving(step)
            if result.stop_requested and not last:
                self._stop_on_request(step)
        return False

    def record_machine(self, figures: dict[str, Any]) -> None:
        """Write what was read of the machine. For a thread of its own."""
        self.record.append("machine", {"attempt": self.position.attempt, "step": self.position.step, **figures})

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
                self.read_ahead = steps.waiting
                with self.clock.phase("data"):
                    item = next(steps, None)
                if item is None:
                    return
                yield item

    def _step(self, step: int, batches: list[MicroBatch]) -> StepResult:
        """Compute `step` and apply it, unless it stands out: then it is computed once more from the same bits.

        By the same ranks and by others. What comes out otherwise was no fault of the documents. Now and then others
        compute a part of a step that does not stand out.
        """
        guard = self.step.guard
        before = guard.vigilance.as_state()
        guard.on_trial = self.recipe.recovery.replay and guard.can_leave_out
        with self.opinion.spot_check(step):
            first = self._once(step, batches)
        if guard.doubted:
            self.verdict = self.opinion.find(step, 1)
        elif settled := self.opinion.settle(step, self.replicas):
            self.record.append("event", self._event("silent_corruption", step, **settled))
        if guard.alarm is None or not guard.on_trial:
            return first
        guard.on_trial = False
        why, seen = str(guard.alarm), self.opinion.glance.take()
        guard.vigilance.load_state(before)
        with self.clock.aside("evaluation"), self.opinion.asked(step, None):
            again = self._once(step, batches)
        changed = again.own_sums != first.own_sums or differ(seen, self.opinion.glance.take())
        wrong = self.step.model.world.where(changed)
        agrees = bits_of((first.loss, first.gradient_norm)) == bits_of((again.loss, again.gradient_norm))
        found: dict[str, Any] = {"verdict": "clear" if agrees else "transient"}
        if guard.doubted:
            self.verdict = self.opinion.find(step, None)
            agrees, wrong, found = False, sorted({*wrong, *self.verdict.ranks}), self.verdict.as_evidence()
        figures = {"losses": [first.loss, again.loss], "gradient_norms": [first.gradient_norm, again.gradient_norm]}
        detail = {"agrees": agrees, "ranks": wrong, "by_another_rank": self.opinion.possible, **found, **figures}
        self.record.append("event", self._event("replayed", step, why=why, **detail))
        return again

    def _once(self, step: int, batches: list[MicroBatch]) -> StepResult:
        request = self.requests.look(step - 1) if self.recipe.recovery.on_finding != "wait" else None
        self.opinion.glance.begin()
        try:
            failed = self.saver.non_finite is not None
            return self.step(
                step,
                batches,
                with_modules=self.telemetry.by_module(step),
                stop=self.stop.asked,
                copy_failed=failed,
                slower=self.slower,
                asked_back=request.before_step if request else 0,
            )
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
        self.position.held_out_loss = mean_loss(scores)
        if not model.world.is_first:
            return
        when = {"attempt": self.position.attempt, "time": time.time()}
        for score in scores:
            self.record.append("evaluation", {**when, **score.row(step)})
        for prompt, continuation in continuations:
            self.record.append("sample", {**when, "step": step, "prompt": prompt, "text": continuation})
        self.report({"kind": "evaluation", "step": step, "scores": [score.line for score in scores]})

    def _stage(self, step: int, durable: bool) -> None:
        """Begin to save the state after `step`, or to copy it into memory where such copies are kept."""
        self._record_saves(self.saver.poll())
        copied = self.saver.keeps_snapshots and self._due(step, self.recipe.recovery.copy_every)
        if durable or copied:
            self.record.flush()
            with self.clock.phase("checkpoint"):
                progress = self.position.as_progress(self.recipe) | {
                    "vigilance": self.step.guard.vigilance.as_state(),
                    "agreed_until": self.opinion.passed,
                }
                self.saver.stage(step, progress, durable=durable)

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
                self._compare_with_grace(outcome)
            else:
                event = self._event("save_failed", outcome.step, reason=str(outcome.error), **detail)
                if self.step.model.world.is_first:
                    _log.warning("the checkpoint of step %d failed: %s", outcome.step, outcome.error)
            self.record.append("event", event)

    def _compare_with_grace(self, outcome: Outcome) -> None:
        """Say once when the scheduler would kill before a step and a save are done."""
        grace, needed = self.recipe.recovery.grace_seconds, outcome.seconds + self.slowness.usual_step
        if needed > grace and not self.grace_told:
            self.grace_told = True
            self.record.append("event", self._event("grace_too_short", needed_seconds=needed, grace_seconds=grace))
            if self.step.model.world.is_first:
                _log.warning(
                    "a step and a save take %.0f s, and recovery.grace_seconds is %.0f: a run that gets SIGTERM "
                    "may be killed before it is saved; have the scheduler wait longer, and say so there",
                    *(needed, grace),
                )

    def _responds(self, step: int, result: StepResult) -> bool:
        """Do what the recipe says about a step that stands out; whether the run went back for it."""
        guard, alarm = self.step.guard, self.step.guard.alarm
        if guard.doubted:
            self._distrust(step)
            return True
        if alarm is None:
            return not result.skipped and self._takes_back(step, result)
        samples = bounds_of(self.feed.samples(step))
        evidence = {"samples": samples, "response": guard.response, **alarm.as_evidence()}
        self.record.append("event", self._event(alarm.kind, step=step, **evidence))
        goes_back = guard.response == "rollback" and not guard.nothing_applied(alarm)
        if goes_back and (earlier := self._state_before(alarm.first_step)) is not None:
            self._record_step(step, result)
            self._go_back(earlier, guard.go_back(alarm, earlier))
            return True
        if guard.response == "ask" or (goes_back and alarm.kind == "non_finite"):
            self._stop_to_ask(step, result, str(alarm))
        if guard.response != "wait":
            self._decide([guard.leave_out(alarm)])
        return False

    def _find_slow_ranks(self, step: int) -> None:
        """Some rank says that steps take longer: time each rank alone; name those that are slow time and again."""
        world, ratio = self.step.model.world, self.slowness.ratio
        if world.layout.world_size == 1:
            self.slowness.begin_anew()
            return
        with self.clock.aside("evaluation"):
            seconds = time_ranks(world, self.clock)
        if slow := self.slowness.compared(seconds):
            self.record.append("event", self._event("slow_rank", step, ranks=slow, seconds=seconds, ratio=ratio))
            self.report({"kind": "slow_rank", "step": step, "ranks": slow, "seconds": seconds})

    def _replicas_differ(self, step: int, *, about_to_save: bool) -> bool:
        """Whether replicas should hold the same bits and do not; the run has gone back then."""
        suspected = self.replicas.suspected_step == step
        due = about_to_save or suspected or self._due(step, self.recipe.recovery.compare_every)
        if not (self.replicas.exist and self.recipe.recovery.compare_every and due):
            return False
        with self.clock.phase("communication"):
            found = self.replicas.compare(step)
        if found is None:
            if suspected:
                self.record.append("event", self._event("silent_corruption", **self.replicas.who_was_wrong()))
            return False
        self.record.append(
            "event", self._event("replicas_differ", tensors=list(found.tensors), ranks=list(found.at_fault))
        )
        guard, earlier = self.step.guard, self._state_before(step)
        if earlier is None or guard.interventions.count >= self.recipe.recovery.most_interventions:
            self.saver.forget()  # nothing goes on from a wrong state
            raise StokerError(f"{found}. There is no earlier state to do it again from, or it was done too often.")
        self.replicas.suspect(found)
        self._go_back(earlier, [guard.do_again(step, earlier, str(found))])
        return True

    def _takes_back(self, step: int, result: StepResult) -> bool:
        """Whether the update of `step` stands out, and the run has gone back to before it."""
        guard, norm = self.step.guard, self.moved
        training = self.recipe.training
        planned = learning_rate_factor(training.schedule, step, training.steps) * guard.learning_rate_factor(step)
        if not norm or not planned:
            return False
        goes_back = guard.judge_update(step, norm / planned)
        if guard.alarm is None:
            return False
        earlier = self._state_before(step) if goes_back else None
        evidence = {"response": "wait" if earlier is None else "rollback", **guard.alarm.as_evidence()}
        self.record.append("event", self._event(guard.alarm.kind, step=step, **evidence))
        if earlier is None:
            return False
        self._record_step(step, result)
        self._go_back(earlier, [guard.do_again(step, earlier, str(guard.alarm))])
        return True

    def _distrust(self, step: int) -> None:
        """Ranks do not agree about `step`, which was not applied: go back to where they last did."""
        verdict, opinion = self.verdict, self.opinion
        assert verdict is not None, "there was a disagreement"
        detail = {"ranks": list(verdict.ranks), "agreed_until": opinion.passed, **verdict.as_evidence()}
        self.record.append("event", self._event("silent_corruption", step, **detail))
        self.report({"kind": "wrong_rank", "step": step, "said": str(verdict)})
        self.record.flush()
        earlier = self._state_before(opinion.passed + 1)
        if earlier is None:
            earlier = min((saved for saved in steps_saved(self.saver.checkpoints) if saved < step), default=None)
        again, guard = opinion.named.intersection(verdict.ranks), self.step.guard
        opinion.named.update(verdict.ranks)
        if again or earlier is None or guard.interventions.count >= self.recipe.recovery.most_interventions:
            self.saver.forget()  # nothing goes on from a state that may be wrong
            why = "It did so before." if again else "There is no state to go back to, or it was done too often."
            raise verdict.refusal(step, why)
        if verdict.kind == "undecided":
            self.replicas.watch()
        self._go_back(earlier, [guard.do_again(step, earlier, str(verdict))])

    def _compare_clocks(self) -> None:
        """Note how far this rank's clock is from rank 0's. The time of the first step begins now."""
        if self.step.model.world.layout.world_size > 1:
            offset = measure_clock_offset(self.step.model.world)
            self.record.append("event", self._event("clock", **asdict(offset)))
        self.clock.begin()

    def _goes_back_as_asked(self, step: int) -> bool:
        """Answer someone who watches the run and asks it to go back; whether it did. Collective."""
        guard = self.step.guard
        request = from_first(self.requests.look(step))
        if request is None:
            return False
        last = request.last_step(step)
        earlier = self._state_before(request.before_step)
        refused = guard.refuses_to_go_back(earlier)
        response = "wait" if refused else self.recipe.recovery.on_finding
        asked = {"number": request.number, "why": request.why, "before_step": request.before_step}
        detail = {**asked, "last_step": last, "response": response, "refused": refused}
        self.record.append("event", self._event("asked_back", step, **detail))
        self.requests.answer(request)
        guard.interventions = guard.interventions.with_answer(request.number)
        self._decide([])
        if response == "ask":
            self.record.flush()
            raise request.as_stop(step)
        if response == "rollback" and earlier is not None:
            self._go_back(earlier, guard.go_back_over(request.before_step, last, step, earlier, request.why))
            return True
        return False

    def _state_before(self, step: int) -> int | None:
        """The newest checkpoint's step before `step`; an earlier one's where the run went back to that before."""
        self._record_saves(self.saver.finish())
        steps = steps_saved(self.saver.checkpoints)
        found = [saved for saved in steps if saved < step]
        fresh = [saved for saved in found if not self.step.guard.interventions.times_back_to(saved)]
        return max(fresh or found, default=None)

    def _go_back(self, earlier: int, decided: list[Intervention]) -> None:
        """Load the state after step `earlier`, drop what is newer, and note what was decided."""
        self._decide(decided)
        with self.clock.phase("checkpoint"):
            self.saver.forget()  # first: a run that is killed in between must not go on from what is given up
            if self.step.in_flight is not None:
                self.step.in_flight.forget()
            progress = go_back_to(self.saver.checkpoints, earlier, self.step.model.held, self.step.optimizer)
        self.position = Position.from_progress(progress, self.position.attempt)
        self.step.take_up(progress)
        self.opinion.passed = progress.get("agreed_until", 0)
        self.clock.marks.stand_at(self.position.step)
        self.record.append("event", self._event("went_back"))
        self.record.flush()

    def _decide(self, decided: list[Intervention]) -> None:
        """Note decisions, for this start of the run and all later ones."""
        guard = self.step.guard
        for one in decided:
            guard.interventions = guard.interventions.with_one(one)
            self.record.append("event", self._event("intervention", **as_detail(one)))
        if self.step.model.world.is_first:
            guard.interventions.write(self.run.interventions)
        self.step.model.world.barrier()

    def _record_step(self, step: int, result: StepResult) -> None:
        row, times = self.telemetry.record_step(self.position, step, result, self.moved, self.read_ahead)
        self.slower = self.slowness.note(times.without("evaluation", "checkpoint"))
        shown = {key: row[key] for key in ("step", "loss", "learning_rate", "gradient_norm", "tokens")}
        self.report({"kind": "step", **shown})

    def _stop_to_ask(self, step: int, result: StepResult, why: str) -> NoReturn:
        """Nothing was updated: weights and optimizer are those of the step before."""
        self._record_step(step, result)
        self.record.flush()
        first, after = bounds_of(self.feed.samples(step))
        raise NonFinite(
            f"step {step}: {why}, so nothing was updated and the run stopped. Its batch is samples {first} to "
            f"{after - 1}: `stoker data show {self.run.path} --step {step}` prints them. What a run does by "
            "itself is in `recovery.on_non_finite`, `on_spike`, `on_divergence` and `most_interventions`."
        )

    def _stop_on_request(self, step: int) -> None:
        self.record.append("event", self._event("terminated"))
        self.record.flush()
        raise Terminated(
            f"asked to stop: saved after step {step}. The same command goes on from there: stoker train …"
        )

    def _event(self, event: str, /, step: int | None = None, **detail: Any) -> dict[str, Any]:
        return {
            "step": self.position.step if step is None else step,
            "event": event,
            "attempt": self.position.attempt,
            "time": time.time(),
            "detail": detail,
        }
