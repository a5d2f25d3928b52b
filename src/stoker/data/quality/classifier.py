"""A classifier of text: how much it is like the text that somebody held up as good, in its words and in its form.

Its score is the logistic function of `bias + sum of the weights of all runs of tokens / sqrt(number of runs) +
weights of the measures of form`, times how usual the form is for good text. The square root lets a long text be
judged with more certainty than a short one, and less than if its runs were independent. Weights of runs are kept in
8 bits.
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
from stoker.data.quality.form import NAMES, form_of
from stoker.data.quality.model_file import file_state, read_model, write_model
from stoker.data.quality.usual_form import UsualForms
from stoker.errors import BadInput

CLASSIFIER = "quality classifier"
MADE_BY = "stoker data train-classifier"
SCORE = "quality.score"
"""Name of the measure."""
_FORMAT = 2
_USUAL = ("centre", "spread", "prototypes", "radii")


@dataclass(frozen=True)
class Form:
    """What a classifier knows of the form of text."""

    usual: UsualForms
    weights: npt.NDArray[np.float64]
    """Of the standardised measures [measures]."""


@dataclass(frozen=True)
class Classifier:
    """A trained classifier."""

    weights: npt.NDArray[np.int8]
    """Of each bucket, in units of `step` [buckets]."""
    step: float
    bias: float
    longest: int
    """Tokens of the longest run that it looks at."""
    form: Form | None
    """None where there was too little good text to say which forms are usual: words alone decide."""
    description: dict[str, Any]
    """What it was trained on, and how: for people and for the ledger."""

    def score(self, text: str) -> float:
        """How likely `text` is one of the good ones, 0 to 1; 0.5 for text without tokens."""
        tokens = tokens_of(text)
        total, runs = summed(tokens, self.longest, self.weights)
        if not runs:
            return 0.5
        value = self.bias + self.step * int(total) / math.sqrt(runs)
        if self.form is None:
            return logistic(value)
        own = form_of(text, tokens)
        value += float((self.form.usual.standardised(own) * self.form.weights).sum())
        return logistic(value) * self.form.usual.likelihood(own)

    def write(self, path: Path) -> None:
        """Write it to `path`, whole or not at all."""
        facts: dict[str, Any] = {"format": _FORMAT, "form": None}
        facts |= {name: getattr(self, name) for name in ("step", "bias", "longest")}
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights}
        if self.form is not None:
            usual = self.form.usual
            facts["form"] = {"distance": usual.distance, "repetition": usual.repetition, "measures": list(NAMES)}
            arrays |= {name: getattr(usual, name) for name in _USUAL} | {"of_form": self.form.weights}
        write_model(path, CLASSIFIER, self.description | facts, arrays)

    @classmethod
    def read(cls, path: Path) -> Classifier:
        """The classifier in a file. Raises `BadInput` where there is none, or one of another version."""
        stored = read_model(path, CLASSIFIER, MADE_BY)
        description = dict(stored.description)
        form, step, bias, longest, facts = (
            description.pop(name, None) for name in ("format", "step", "bias", "longest", "form")
        )
        weights = stored.arrays.get("weights")
        fits = weights is not None and weights.shape == (BUCKETS,) and weights.dtype == np.int8
        if form != _FORMAT or not fits or (facts is not None and facts["measures"] != list(NAMES)):
            raise BadInput(f"{path} is a {CLASSIFIER} of another version; train it again: {MADE_BY}")
        own = None
        if facts is not None:
            centre, spread, prototypes, radii = (stored.arrays[name] for name in _USUAL)
            limits = float(facts["distance"]), float(facts["repetition"])
            usual = UsualForms(centre, spread, prototypes, radii, *limits)
            own = Form(usual, stored.arrays["of_form"])
        return cls(stored.arrays["weights"], float(step), float(bias), int(longest), own, description)


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
