"""What the documents of a run under way say of its findings: read seldom, and for a few seconds at most."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.diagnosis import Finding, RunRows, find_all
from stoker.diagnosis.causes import CATALOGUE
from stoker.diagnosis.finding import BENIGN, UNKNOWN, WEIGHT
from stoker.diagnosis.text_at import Passage, Stretch, Text, evenly
from stoker.errors import StokerError
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

if TYPE_CHECKING:
    from stoker.data.feeding import Span

_MOST_IN_ADVANCE = 600.0
"""Seconds before the next reading is due; what stands out anew is not read earlier than that."""
LONGEST_SECONDS = 6.0
"""Of one reading; what takes them runs out after a third: batches' digests, repetitive documents, incidents."""
_MOST_DIGESTS = 64
"""So many tell since when another order is given. There is time for all of them, or none is computed."""
_NEAR_STEPS = 3
_OF_BATCHES = "repeated_data"
"""The kind of what shows in the batches alone."""


_OF_TEXT = frozenset(cause.name for cause in CATALOGUE if cause.features)


class LiveText(Text):
    """A run's text, read within limits: what there is no time left for is as if it could not be read.

    The corpus may be huge, or its storage slow or gone, and the alerts of the same process are not to wait for it.
    """

    few_steps = True

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        super().__init__(folder, recipe)
        self._most = LONGEST_SECONDS / 3
        self.begin(0, 0)

    def begin(self, first: int, last: int, seconds: float = LONGEST_SECONDS) -> None:
        """A reading of `seconds` at most begins, of a run's steps `first` to `last`."""
        self._most = seconds / 3
        self._first, self._last = first, last
        self._digest_seconds: float | None = None
        self._repetition_seconds = 0.0
        self._incidents_until: float | None = None
        self.ran_out = False
        """There was no time for something."""

    def digest(self, step: int) -> str | None:
        """As `Text.digest`; None of all others where the first one takes so long that there is no time for all."""
        if self._digest_seconds is not None and self._digest_seconds * _MOST_DIGESTS > self._most:
            self.ran_out = True
            return None
        began = time.monotonic()
        found = super().digest(step)
        if self._digest_seconds is None:
            self._digest_seconds = time.monotonic() - began
        return found

    def stretches(self, step: int, most: int) -> list[Stretch]:
        """As `Text.stretches`; where time is short, of some steps all along the run."""
        due = self._most * (step - self._first + 1) / (self._last - self._first + 1)
        if self._repetition_seconds > due:
            self.ran_out = True
            return []
        began = time.monotonic()
        try:
            return [Stretch(span, self._ids(span)) for span in evenly(super().spans(step), most)]
        except (StokerError, OSError, ValueError):
            return []
        finally:
            self._repetition_seconds += time.monotonic() - began

    def spans(self, step: int) -> list[Span]:
        """As `Text.spans`."""
        return super().spans(step) if self._has_time() else []

    def read(self, step: int, spans: Iterable[Span]) -> list[Passage]:
        """As `Text.read`; those that there is time for, and that can be read."""
        found: list[Passage] = []
        if self._incidents_until is None:
            self._incidents_until = time.monotonic() + self._most
        for span in spans:
            if not self._has_time():
                break
            try:
                found += super().read(step, [span])
            except (StokerError, OSError, ValueError):
                break
        return found

    def _has_time(self) -> bool:
        """For incidents: of the time from the first one on, since weighing them takes as long as reading."""
        late = self._incidents_until is not None and time.monotonic() > self._incidents_until
        self.ran_out = self.ran_out or late
        return not late


class Readings:
    """Has a run's text read now and then, and keeps what it said until the next time."""

    def __init__(self, run: RunDirectory, recipe: Recipe, share: float) -> None:
        """`share` of one core is what readings take on average."""
        self._run = run
        self._recipe = recipe
        self._share = share
        self._text: LiveText | None = None
        self._due = 0.0
        self._said: list[Finding] = []

    @property
    def due(self) -> bool:
        """Whether the last one is long enough ago."""
        return time.monotonic() >= self._due

    @property
    def may_be_early(self) -> bool:
        """Whether what stands out anew may be read before the next one is due: it is paid back by later ones."""
        return time.monotonic() >= self._due - _MOST_IN_ADVANCE

    def read(self, rows: RunRows) -> list[Finding]:
        """What stands out in `rows` when the text is read as well; as without it where it is not at hand."""
        began, text = time.process_time(), self._opened()
        if text is not None and rows.steps.size:
            text.begin(int(rows.steps[0]), int(rows.steps[-1]))
        found = find_all(replace(rows, text=text))
        kept = self._said if text is not None and text.ran_out and rows.steps.size else []
        self._said = [one for one in found if of_text(one)]
        self._said += [
            one
            for one in kept
            if (one.last_step or 0) >= rows.steps[0] and not any(_is_one(one, other) for other in self._said)
        ]
        self._due = max(self._due, time.monotonic()) + (time.process_time() - began) / self._share
        return self.explain(found)

    def explain(self, found: Sequence[Finding]) -> list[Finding]:
        """`found` in the rows alone, with the causes and documents that the last reading named."""
        left, told = list(self._said), list[Finding]()
        for one in found:
            known = next((other for other in left if _is_one(one, other)), None)
            if known is not None:
                left.remove(known)
            told.append(one if known is None else _together(one, known))
        return sorted([*told, *left], key=lambda finding: finding.rank_of_importance)

    def forget(self) -> None:
        """The run has gone back: what was read is of the course that it gave up."""
        self._said = []

    def _opened(self) -> LiveText | None:
        if self._text is None:  # the run may not have said yet what it is trained on
            self._text = LiveText.of(self._run, self._recipe)
        return self._text


def of_text(finding: Finding) -> bool:
    """Whether it is of what was trained on: what the rows alone may not show."""
    return finding.cause in _OF_TEXT or finding.kind == _OF_BATCHES


def _is_one(finding: Finding, read: Finding) -> bool:
    """Whether they are one incident, of which `read` may say more."""
    first, last = finding.first_step or 0, finding.last_step or finding.first_step or 0
    begin, end = read.first_step or 0, read.last_step or read.first_step or 0
    together = begin <= last + _NEAR_STEPS and first <= end + _NEAR_STEPS
    return together and (finding.kind == read.kind or finding.cause in (UNKNOWN, BENIGN))


def _together(finding: Finding, read: Finding) -> Finding:
    """What is known now: of the rows, which have grown since, and of the text."""
    if finding.cause not in (UNKNOWN, BENIGN, read.cause) and (finding.score or 0.0) > (read.score or 0.0):
        return finding
    last = max(finding.last_step or 0, read.last_step or 0)
    if WEIGHT[finding.severity] <= WEIGHT[read.severity]:
        return read.model_copy(update={"last_step": last})
    return read.model_copy(update={"kind": finding.kind, "severity": finding.severity, "last_step": last})
