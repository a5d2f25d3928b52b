"""What someone who watches a run asks of it: to go back before a step, for a cause that was found."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stoker.errors import NonFinite

_log = logging.getLogger(__name__)


class AskedBack(BaseModel):
    """One request, as it is in the run's folder (`asked_back.json`)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    before_step: int = Field(ge=1)
    """The first step at fault."""
    why: str = ""
    finding: dict[str, Any] = Field(default_factory=dict)
    """What was found; its `last_step` is the last one at fault."""
    number: int = Field(ge=1)
    """Grows with every request, so that none is answered twice."""

    def last_step(self, done: int) -> int:
        """The last step at fault, of a run that has done so many."""
        last = self.finding.get("last_step")
        last = last if isinstance(last, int) and not isinstance(last, bool) else self.before_step
        return min(max(last, self.before_step), done)

    def as_stop(self, step: int) -> NonFinite:
        """What a run that stops for it after `step` raises."""
        return NonFinite(
            f"step {step}: the run was asked to go back before step {self.before_step} ({self.why}), and "
            "recovery.on_finding is `ask`. What was trained since the last checkpoint is not saved; the same "
            "command goes on from there."
        )


class Requests:
    """Looks for a request that has not been answered, on rank 0. Costs one look at the file's times a step."""

    def __init__(self, path: Path, answered: int) -> None:
        """`answered` is the number of the last one that was."""
        self._path, self._answered = path, answered
        self._seen: tuple[int, int] | None = None
        self._open: AskedBack | None = None

    def look(self, done: int) -> AskedBack | None:
        """The request that is open, of a run that has done so many steps; None when there is none.

        A file that cannot be read is warned about once, and is no request.
        """
        try:
            status = self._path.stat()
        except OSError:
            self._seen = self._open = None
            return None
        if (times := (status.st_mtime_ns, status.st_size)) != self._seen:
            self._seen, self._open = times, self._read()
        if self._open is None or self._open.number <= self._answered or self._open.before_step > done:
            return None
        return self._open

    def answer(self, request: AskedBack) -> None:
        """It has been answered, whichever way."""
        self._answered = max(self._answered, request.number)

    def _read(self) -> AskedBack | None:
        try:
            return AskedBack.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning(
                "%s is not what asks a run to go back ({before_step, why, finding, number}) and is ignored: %s",
                *(self._path, str(error).splitlines()[0]),
            )
            return None
