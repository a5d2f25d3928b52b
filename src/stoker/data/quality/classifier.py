"""A linear classifier of text: how much it is like the text that somebody held up as good.

Its score is the logistic function of `bias + sum of the weights of all runs of tokens / sqrt(number of runs)`.
The square root lets a long text be judged with more certainty than a short one, and less than if its runs were
independent. Weights are kept in 8 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.data.quality.features import BUCKETS, summed, tokens_of
from stoker.data.quality.model_file import file_state, read_model, write_model
from stoker.errors import BadInput

CLASSIFIER = "quality classifier"
MADE_BY = "stoker data train-classifier"
SCORE = "quality.score"
"""Name of the measure."""
_FORMAT = 1


@dataclass(frozen=True)
class Classifier:
    """A trained classifier."""

    weights: npt.NDArray[np.int8]
    """Of each bucket, in units of `step` [buckets]."""
    step: float
    bias: float
    longest: int
    """Tokens of the longest run that it looks at."""
    description: dict[str, Any]
    """What it was trained on, and how: for people and for the ledger."""

    def score(self, text: str) -> float:
        """How likely `text` is one of the good ones, 0 to 1; 0.5 for text without tokens."""
        total, runs = summed(tokens_of(text), self.longest, self.weights)
        return logistic(self.bias + self.step * int(total) / math.sqrt(runs)) if runs else 0.5

    def write(self, path: Path) -> None:
        """Write it to `path`, whole or not at all."""
        description = self.description | {
            "format": _FORMAT,
            "step": self.step,
            "bias": self.bias,
            "longest": self.longest,
        }
        write_model(path, CLASSIFIER, description, {"weights": self.weights})

    @classmethod
    def read(cls, path: Path) -> Classifier:
        """The classifier in a file. Raises `BadInput` where there is none, or one of another version."""
        stored = read_model(path, CLASSIFIER, MADE_BY)
        description = dict(stored.description)
        form, step, bias, longest = (description.pop(name, None) for name in ("format", "step", "bias", "longest"))
        weights = stored.arrays.get("weights")
        if form != _FORMAT or weights is None or weights.shape != (BUCKETS,) or weights.dtype != np.int8:
            raise BadInput(f"{path} is a {CLASSIFIER} of another version; train it again: {MADE_BY}")
        return cls(weights, float(step), float(bias), int(longest), description)


def loaded_classifier(path: str) -> Classifier:
    """The classifier in a file, read once in a process unless the file changes. Raises as `Classifier.read`."""
    return _loaded(path, file_state(Path(path)))


@lru_cache(maxsize=4)
def _loaded(path: str, state: tuple[int, int]) -> Classifier:
    return Classifier.read(Path(path))


def quantised(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int8], float]:
    """Weights in 8 bits, and the unit they are in."""
    step = float(np.abs(weights).max(initial=0.0)) / 127 or 1.0
    return np.rint(weights / step).astype(np.int8), step


def logistic(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    if value < 0:
        power = math.exp(max(value, -700.0))
        return power / (1 + power)
    return 1 / (1 + math.exp(-min(value, 700.0)))
