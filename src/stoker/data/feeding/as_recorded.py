"""The feed of a run as it was: where a step was given other samples than its recipe says, these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stoker.data.corpus import Corpus
from stoker.data.feeding.feed import Feed
from stoker.recipe import Recipe

Stretches = Sequence[Sequence[int]]
"""`[[first, after], …]`: samples by number, in the order in which they were given."""


class FeedAsRecorded(Feed):
    """Gives each step the samples that it was given in the run."""

    def __init__(
        self, corpus: Corpus, recipe: Recipe, given: Mapping[int, Stretches], few_steps: bool = False
    ) -> None:
        """`given` has the steps that were not given the recipe's samples, as the record's `given_samples` says."""
        super().__init__(corpus, recipe, few_steps)
        self._given = given

    def samples(self, step: int) -> npt.NDArray[np.int64]:
        """Those of the record, or the recipe's."""
        if step not in self._given:
            return super().samples(step)
        return np.concatenate([np.arange(first, after, dtype=np.int64) for first, after in self._given[step]])
