"""Which rows belong to the history a run ended with, when it went back and did steps again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Steps = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def final_history(steps: Steps) -> Mask:
    """Mask of the rows that no later row went back behind: `steps` [rows] in the order recorded.

    A run that recorded steps 1..95 and then resumed from step 80 recorded 81 next. From then on
    its first 81..95 are of a history that was given up, also before the second 81..95 are done.
    """
    if steps.size == 0:
        return np.zeros(0, dtype=bool)
    lowest_after = np.minimum.accumulate(steps[::-1])[::-1]
    kept = np.ones(steps.size, dtype=bool)
    kept[:-1] = steps[:-1] < lowest_after[1:]
    return kept


def replayed(steps: Steps) -> Mask:
    """Mask of the rows whose step had been recorded before: `steps` [rows] in the order recorded."""
    if steps.size == 0:
        return np.zeros(0, dtype=bool)
    highest_before = np.maximum.accumulate(steps)
    repeats = np.zeros(steps.size, dtype=bool)
    repeats[1:] = steps[1:] <= highest_before[:-1]
    return repeats


def not_given_up(sequences: Steps, steps: Steps, step_sequences: Steps, step_numbers: Steps) -> Mask:
    """Mask of other rows (evaluations, samples) that the run did not go back behind.

    A row about step s is given up when a step row at or before s was recorded after it.
    `sequences`, `steps` [rows] are of the rows asked about; `step_sequences`, `step_numbers`
    [step rows] of the step rows, in the order recorded.
    """
    if step_numbers.size == 0:
        return np.ones(steps.size, dtype=bool)
    lowest_from = np.append(np.minimum.accumulate(step_numbers[::-1])[::-1], np.iinfo(np.int64).max)
    return np.asarray(steps < lowest_from[np.searchsorted(step_sequences, sequences, side="right")])
