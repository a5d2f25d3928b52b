"""What was decided about single steps of a run: whose update is left out, and where the learning rate is lower.

Kept in the run's folder, so that a step that is done again after a restart is done as was decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from stoker.durable_files import write_text
from stoker.errors import StokerError


class Intervention(BaseModel):
    """One decision."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["skip", "lower_learning_rate", "do_again"]
    first_step: int
    last_step: int
    """Included."""
    factor: float = 1.0
    """Of the learning rate."""
    decided_at: int
    """The step at which it was decided."""
    back_to: int | None = None
    """The step that the run went back to for it; None when it went on."""
    why: str

    def is_about(self, step: int) -> bool:
        """Whether it changes `step`."""
        return self.first_step <= step <= self.last_step


class Interventions(BaseModel):
    """All decisions of a run, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decided: tuple[Intervention, ...] = ()
    answered: int = 0
    """Number of the last request from outside to go back that was answered; see `asked_back`."""

    @classmethod
    def read(cls, path: Path) -> Interventions:
        """Those in the file `path`; none when there is no file."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, ValidationError) as error:
            raise StokerError(
                f"{path} cannot be read ({type(error).__name__}): it says which steps of the run were left out. "
                "Restore it, or remove it to do all steps as the recipe says."
            ) from None

    def with_one(self, intervention: Intervention) -> Interventions:
        """These and one more."""
        return self.model_copy(update={"decided": (*self.decided, intervention)})

    def with_answer(self, number: int) -> Interventions:
        """These, and that the request `number` has been answered."""
        return self.model_copy(update={"answered": max(number, self.answered)})

    def write(self, path: Path) -> None:
        """Put them in the file `path`, whole or not at all."""
        write_text(path, self.model_dump_json(indent=1) + "\n")

    def skips(self, step: int) -> bool:
        """Whether the update of `step` is left out."""
        return any(one.action == "skip" and one.is_about(step) for one in self.decided)

    def does_again(self, step: int) -> bool:
        """Whether the run went back to do `step` once more, as it was."""
        return any(one.action == "do_again" and one.is_about(step) for one in self.decided)

    def learning_rate_factor(self, step: int) -> float:
        """What the scheduled learning rate of `step` is multiplied by."""
        factor = 1.0
        for one in self.decided:
            if one.action == "lower_learning_rate" and one.is_about(step):
                factor *= one.factor
        return factor

    @property
    def count(self) -> int:
        """How many steps were left out and how often the run went back, together: what the recipe limits."""
        times_back = len({(one.decided_at, one.back_to) for one in self.decided if one.back_to is not None})
        skipped = sum(one.last_step - one.first_step + 1 for one in self.decided if one.action == "skip")
        return times_back + skipped

    def times_back_to(self, step: int) -> int:
        """How often the run went back to `step` or before."""
        return len({one.decided_at for one in self.decided if one.back_to is not None and one.back_to <= step})


def as_detail(intervention: Intervention) -> dict[str, Any]:
    """For the record."""
    return intervention.model_dump(mode="json", exclude_none=True)
