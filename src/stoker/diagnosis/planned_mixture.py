"""What the recipe plans of the mixture: which shares each step is meant to have, and where they change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from stoker.diagnosis.recent_past import Numbers, Steps
from stoker.errors import StokerError
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory

if TYPE_CHECKING:
    from stoker.data.feeding.stages import Segment
    from stoker.diagnosis.finding import Finding

_NOTABLE = 0.02
"""Of the tokens, that move between sources: a smaller change moves no loss that stands out."""
_FOLLOW = ("source_drift", "step_rise", "step_drop", "divergence")
"""What a change of the mixture does to the loss by itself."""
_ROWS_BEFORE, _ROWS_AFTER = 2, 8
_ROWS_COMPARED = 32
_RISEN = 1.1
"""Times its own loss before: a source that has risen so has not done so for the others' shares."""


@dataclass(frozen=True)
class PlannedMixture:
    """The recipe's shares of the sources over the steps of a run."""

    names: tuple[str, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, run: RunDirectory, recipe: Recipe | None) -> PlannedMixture | None:
        """By the recipe and the manifest that a run keeps; None where they do not say, or there is one mixture."""
        if recipe is None or not recipe.data.mixture.stages:
            return None
        from stoker.data.feeding.stages import segments_of  # loads torch

        try:
            manifest = json.loads(run.corpus.read_text(encoding="utf-8"))
            tokens = {one["name"]: int(one["splits"]["train"]["tokens"]) for one in manifest["sources"]}
            return cls(tuple(tokens), segments_of(recipe, tokens))
        except (StokerError, OSError, ValueError, KeyError, TypeError):
            return None

    def shares(self, steps: Steps) -> dict[str, Numbers]:
        """Share that each source is meant to have at each of `steps`."""
        firsts = [segment.first_step for segment in self.segments]
        table = np.array([segment.shares for segment in self.segments])
        rows = np.searchsorted(firsts, steps, side="right") - 1
        return {name: table[rows, column] for column, name in enumerate(self.names)}

    def changes(self) -> list[tuple[int, int]]:
        """First and last steps of the stretches in which shares move: of a jump, its step; of a ramp, all of it."""
        stages = [list(own) for _, own in groupby(self.segments, key=lambda segment: segment.stage)]
        found = []
        for before, own in pairwise([stages[0][:1], *stages] if len(stages[0]) > 1 else stages):
            moved = np.abs(np.array(own[-1].shares) - np.array(before[-1].shares)).sum() / 2
            if moved > _NOTABLE:
                found.append((own[0].first_step, own[-1].first_step))
        return found


def without_planned(
    findings: Iterable[Finding], planned: PlannedMixture | None, steps: Steps, by_source: Mapping[str, Numbers]
) -> list[Finding]:
    """Without changes of the loss that begin where the recipe changes the mixture, and are the mixture's alone.

    They are when no source's own loss has risen by a tenth over the 32 rows before the change. `by_source` [rows]
    is the loss of each source, NaN where a row has none of it; one that had none before is not asked.
    """
    if planned is None:
        return list(findings)
    changes = [(begin, end) for begin, end in planned.changes() if steps.size and begin <= steps[-1]]
    return [one for one in findings if one.kind not in _FOLLOW or not _explained(one, changes, steps, by_source)]


def _explained(
    finding: Finding, changes: Sequence[tuple[int, int]], steps: Steps, by_source: Mapping[str, Numbers]
) -> bool:
    at = int(np.searchsorted(steps, finding.first_step or 0))
    for begin, end in changes:
        first, after = np.searchsorted(steps, [begin, end + 1])
        if first - _ROWS_BEFORE <= at < after + _ROWS_AFTER:
            until = np.searchsorted(steps, finding.last_step or finding.first_step or 0, side="right")
            return not any(_has_risen(own, int(first), at, int(until)) for own in by_source.values())
    return False


def _has_risen(loss: Numbers, changed: int, begin: int, end: int) -> bool:
    """Whether a source's loss in rows `begin` to `end` has risen over that before the row `changed`."""
    before, during = loss[max(0, changed - _ROWS_COMPARED) : changed], loss[begin : max(end, begin + _ROWS_AFTER)]
    before, during = before[~np.isnan(before)], during[~np.isnan(during)]
    return bool(before.size and during.size and np.median(during) > _RISEN * np.median(before))
