"""Decides whether a step is applied: what stands out is waited for, left out, gone back from or asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stoker.recipe import Recovery
from stoker.training.interventions import Intervention, Interventions
from stoker.training.vigilance import Alarm, Vigilance

_SKIPS_IN_A_ROW = 3
"""After so many steps left out one after the other the weights are at fault, and not the documents."""


@dataclass
class Guard:
    """Judges every step before its update. The same on every rank: it sees global figures only."""

    recovery: Recovery
    interventions: Interventions
    can_leave_out: bool = True
    """False where weights are updated before the gradient norm is known: what stands out is asked about then."""
    on_trial: bool = False
    """Whether a step that stands out is computed once more: nothing of it is applied then."""
    doubt: Callable[[], bool] | None = None
    """Whether another rank computed other bits than this one did; None: nobody was asked. Collective."""
    doubted: bool = False
    """Whether that was so of the step that was judged last: nothing of it was applied then."""
    vigilance: Vigilance = field(init=False)
    alarm: Alarm | None = None
    """About the step that was judged last."""
    response: str | None = None
    """What to do about it: `wait`, `skip_step`, `rollback`, `ask`; None when nothing stands out."""

    def __post_init__(self) -> None:
        self.vigilance = Vigilance(self.recovery)

    def may_update(self, step: int, loss: float, gradient_norm: float, *, overflowed: bool) -> bool:
        """Whether `step`, which has been computed, is to be applied. An fp16 overflow is no alarm."""
        self.alarm = self.response = None
        self.doubted = self.doubt is not None and self.doubt()
        if self.doubted:
            return False
        if overflowed:
            return True
        if self.interventions.skips(step):  # decided before; its figures are not to be learned from
            return False
        self.alarm = self.vigilance.judge(step, loss, gradient_norm)
        if self.alarm is not None:
            self.response = self._respond(self.alarm)
        return self.alarm is None or (self.response == "wait" and not self.on_trial)

    def judge_update(self, step: int, update_norm: float) -> bool:
        """Whether the update of `step`, which has been made, is to be gone back from, and its step done again.

        What then comes out again was no fault of the machine's.
        """
        self.alarm = self.vigilance.judge_update(step, update_norm)
        if self.alarm is None:
            return False
        again = self.interventions.does_again(step) or self.interventions.count >= self.recovery.most_interventions
        self.response = "wait" if again else self.recovery.on_large_update
        return self.response == "rollback"

    def learning_rate_factor(self, step: int) -> float:
        """What the scheduled learning rate of `step` is multiplied by."""
        return self.interventions.learning_rate_factor(step)

    def leave_out(self, alarm: Alarm) -> Intervention:
        """The update of the alarm's step alone."""
        return Intervention(
            action="skip", first_step=alarm.step, last_step=alarm.step, decided_at=alarm.step, why=str(alarm)
        )

    def nothing_applied(self, alarm: Alarm) -> bool:
        """Whether all steps that stood out were left out: to go back and leave them out comes to the same state."""
        held_back = all(self.interventions.skips(step) for step in range(alarm.first_step, alarm.step))
        return held_back and self.recovery.lower_learning_rate == 1

    def go_back(self, alarm: Alarm, back_to: int) -> list[Intervention]:
        """All steps of the run of alarms are left out when the run comes to them again."""
        return self.go_back_over(alarm.first_step, alarm.step, alarm.step, back_to, str(alarm))

    def refuses_to_go_back(self, back_to: int | None) -> str | None:
        """Why the run does not go back to the state after `back_to` when it is asked; None when it does."""
        if back_to is None:
            return "there is no earlier state"
        if not self.can_leave_out:
            return "no step can be left out: gradients are released before they are all known"
        if self.interventions.count >= self.recovery.most_interventions:
            return f"recovery.most_interventions is {self.recovery.most_interventions}"
        return None

    def go_back_over(self, first: int, last: int, decided_at: int, back_to: int, why: str) -> list[Intervention]:
        """The steps from `first` to `last` are left out when the run comes to them again."""
        found = [
            Intervention(
                action="skip", first_step=first, last_step=last, decided_at=decided_at, back_to=back_to, why=why
            )
        ]
        if self.recovery.lower_learning_rate < 1:
            found.append(
                Intervention(
                    action="lower_learning_rate",
                    first_step=back_to + 1,
                    last_step=back_to + self.recovery.lowered_steps,
                    factor=self.recovery.lower_learning_rate,
                    decided_at=decided_at,
                    back_to=back_to,
                    why=why,
                )
            )
        return found

    def do_again(self, step: int, back_to: int, why: str) -> Intervention:
        """All steps up to `step`, as they were: to see whether the same comes out."""
        return Intervention(
            action="do_again", first_step=back_to + 1, last_step=step, decided_at=step, back_to=back_to, why=why
        )

    def _respond(self, alarm: Alarm) -> str:
        responses = {
            "non_finite": self.recovery.on_non_finite,
            "spike": self.recovery.on_spike,
            "divergence": self.recovery.on_divergence,
        }
        response = responses[alarm.kind]
        if not self.can_leave_out:
            return "wait" if response == "wait" else "ask"
        if response in ("skip_step", "rollback") and self.interventions.count >= self.recovery.most_interventions:
            return "ask"
        if response == "skip_step" and alarm.step - alarm.first_step >= _SKIPS_IN_A_ROW:
            return "rollback"
        return response
