"""The step in flight: what of it a killed run need not compute again.

After each few micro-batches a rank copies what it has added up so far into host memory. A run that goes on from the
state before that step takes it up, and computes the remaining micro-batches only: to the same bits, since a step
adds its micro-batches up one after another.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor

from stoker.checkpoint.agreement import from_everyone
from stoker.checkpoint.unfinished import UnfinishedSteps
from stoker.parallel import ParallelModel
from stoker.parallel.accumulated import Accumulated
from stoker.recipe import Recipe

_SUMS = "sums"


class StepInFlight:
    """Keeps it, and takes it up once, in the first step of an attempt."""

    def __init__(self, recipe: Recipe, model: ParallelModel, folder: Path, step: int) -> None:
        """Collective. `folder` is this rank's own, `step` the one that the run goes on from."""
        self._every = recipe.recovery.copy_gradients_every
        self._accumulated = Accumulated(model)
        belongs_to = f"{model.world.rank} {recipe.model_dump_json()}"
        self._kept = UnfinishedSteps(folder, hashlib.sha256(belongs_to.encode()).hexdigest())
        self._step, self._done = step + 1, 0
        self._taken: dict[str, Tensor] = {}
        self._agree()

    def take_up(self, step: int, sums: Tensor) -> int:
        """How many micro-batches of `step` need not be computed; the model has their gradients, `sums` theirs."""
        done, self._done = self._done, 0
        taken, self._taken = self._taken, {}
        if step != self._step or not done:
            return 0
        sums.copy_(taken[_SUMS])
        self._accumulated.put_back(taken)
        return done

    def keep(self, step: int, done: int, sums: Tensor) -> None:
        """Copy what there is after `done` micro-batches of `step`, if it is time to."""
        if done % self._every == 0:
            self._kept.keep(step, done, {**self._accumulated.read(), _SUMS: sums})

    def forget(self) -> None:
        """The run has gone back: the weights before the step are others now."""
        self._kept.forget()
        self._taken, self._done = {}, 0

    def _agree(self) -> None:
        """Find how far all ranks that compute a micro-batch together have come.

        Copies of a dense model compute theirs without each other. Where there are experts, all go together.
        """
        world = self._accumulated.model.world
        found = self._kept.found(self._step)
        read = {done: tensors for done, one in found.items() if (tensors := one.read()) is not None}
        together = 0 if self._accumulated.model.config.moe else world.coordinate.dp_replicate
        everyone = from_everyone((together, sorted(read)))
        common = [set(has) for copy, has in everyone if copy == together]
        self._done = max(set.intersection(*common), default=0)
        if self._done:
            self._taken = read[self._done]
        self._kept.forget(but=found.get(self._done))
