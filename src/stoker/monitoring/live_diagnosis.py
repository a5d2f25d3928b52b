"""The diagnosis of a run under way, again and again over its newest rows, and what is asked of the run for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker.diagnosis import Finding, RunRows
from stoker.diagnosis.finding import BENIGN, UNKNOWN, WEIGHT, Kind
from stoker.diagnosis.planned_mixture import PlannedMixture
from stoker.durable_files import write_json
from stoker.monitoring.recent import FollowedRecord
from stoker.monitoring.rules import in_brief
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

WINDOW_ROWS = 2048
"""Newest rows of each rank that are looked at."""
_NEAR_STEPS = 64
"""The first step of one incident is told a little otherwise as more of it is seen."""
_GOING_BACK_HELPS = ("roll_back", "leave_out_documents")
"""Remedies that the run itself can follow: it goes back, and leaves the steps at fault out."""
_DIVERGED: tuple[Kind, ...] = (
    "divergence", "learning_rate_jump", "update_jump", "gradient_shift", "logit_growth", "repeated_data",
    "mixture_shift",
)  # fmt: skip
_UNNAMED = (UNKNOWN, BENIGN)
"""Causes that a reading of the text may yet name otherwise."""


def rows_now(record: FollowedRecord, now: float | None, run: RunDirectory, recipe: Recipe) -> RunRows:
    """The newest rows of a run; `now` is None for one that is over."""
    rows = replace(RunRows.load(record, now, recipe), planned=PlannedMixture.of(run, recipe))
    record.settle()
    return rows


@dataclass
class Told:
    """Findings that have been told, so that each is told once, and again when it is worse or its cause is known."""

    findings: list[Finding] = field(default_factory=list)

    def is_new(self, finding: Finding) -> bool:
        """Whether it has not been told; it has been from now on."""
        for position, known in enumerate(self.findings):
            if _same_incident(known, finding):
                worse = WEIGHT[finding.severity] > WEIGHT[known.severity]
                explained = known.cause in _UNNAMED and finding.cause not in _UNNAMED
                worst = finding.severity if worse else known.severity
                cause = known.cause if finding.cause in _UNNAMED else finding.cause
                kept = {"kind": known.kind, "severity": worst, "cause": cause}
                self.findings[position] = finding.model_copy(update=kept)
                return worse or explained
        self.findings.append(finding)
        return True

    def may_be_explained(self, finding: Finding) -> bool:
        """Whether it is yet to be told, of a cause that the text may name otherwise."""
        told = any(_same_incident(known, finding) for known in self.findings)
        return not told and finding.severity != "note" and finding.cause in _UNNAMED

    def remember(self, detail: Any) -> None:
        """Learn from the record what an earlier monitor has told; what cannot be read is told again."""
        try:
            self.is_new(Finding.model_validate(detail))
        except ValueError:
            return


def _same_incident(one: Finding, other: Finding) -> bool:
    """Whether they are of the same steps, and nothing says that they are not one; of sources more are seen with
    each step.
    """
    named = {one.cause, other.cause} - set(_UNNAMED)
    if len(named) > 1 or (one.kind != other.kind and (one.cause != other.cause or not named)):
        return False
    if one.ranks and other.ranks and one.ranks != other.ranks:
        return False
    if one.sources and other.sources and not set(one.sources) & set(other.sources):
        return False
    first, last = (one.first_step or 0), (one.last_step or one.first_step or 0)
    begin, end = (other.first_step or 0), (other.last_step or other.first_step or 0)
    return begin <= last + _NEAR_STEPS and first <= end + _NEAR_STEPS


class AskingBack:
    """Asks the run to go back, at most once until it has."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.asked_back
        asked = read_asked(self._path)
        self._number = int(asked.get("number", 0))
        self._waiting = False
        """It has been asked and has not gone back yet."""

    def asked_before(self) -> None:
        """An earlier monitor asked, and the run has not gone back yet."""
        self._waiting = True

    def went_back(self) -> None:
        """The run has gone back, for whatever reason: what stands out from now on is of its new course."""
        self._waiting = False

    def consider(self, findings: list[Finding]) -> Finding | None:
        """The finding for which the run has been asked to go back; None when there is no need, or it was asked."""
        if self._waiting:
            return None
        for finding in findings:
            if calls_for_going_back(finding):
                before = finding.remedy.arguments.get("step")
                write_json(
                    self._path,
                    {
                        "before_step": before if isinstance(before, int) else finding.first_step,
                        "why": in_brief(finding),
                        "finding": finding.model_dump(mode="json"),
                        "number": self._number + 1,
                    },
                )
                self._number += 1
                self._waiting = True
                return finding
        return None


def calls_for_going_back(finding: Finding) -> bool:
    """Whether it lasts, and going back is what helps: of a divergence it is, whatever else is to be done.

    Where its cause is seen by itself, the finding is of that kind, and only a divergence makes it an alarm.
    """
    if finding.severity != "alarm" or finding.first_step is None:
        return False
    return finding.kind in _DIVERGED or finding.remedy.action in _GOING_BACK_HELPS


def read_asked(path: Path) -> dict[str, Any]:
    """What was asked last; an empty mapping when nothing was, or it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("number"), int) else {}
