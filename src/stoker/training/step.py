"""One optimizer step: forward and backward over the micro-batches, check, clip, update.

A step is a function of (weights, optimizer state, recipe, step number): the samples, the
learning rate and every random draw follow from the recipe's seed and the number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from stoker.data.feeding import MicroBatch
from stoker.model.router import RouterStatistics
from stoker.parallel import Inputs, ParallelModel
from stoker.parallel.activations import Activations
from stoker.parallel.waiting import told, waiting
from stoker.recipe import Recipe
from stoker.training.clock import PhaseClock
from stoker.training.documents import DocumentLoss, stretch_of, stretches, worst_documents
from stoker.training.guard import Guard
from stoker.training.in_flight import StepInFlight
from stoker.training.interventions import Interventions
from stoker.training.optimizer import AdamWOptimizer, LionOptimizer, set_learning_rate
from stoker.training.precision import DynamicLossScale, autocast, dead_updates
from stoker.training.schedule import learning_rate_factor


@dataclass(frozen=True)
class StepResult:
    """What one step did, the same on every rank. Sums and counts are over the whole global batch."""

    loss: float
    """Mean cross-entropy over all counted tokens, nats; may be NaN or Inf."""
    loss_by_source: dict[str, float]
    loss_by_position: dict[str, float]
    """Mean loss of each of eight equal stretches of the sequence, by its first and last token: `0-127`, …"""
    tokens_by_source: dict[str, int]
    tokens: int
    gradient_norm: float
    """True global norm before clipping, loss scale removed."""
    gradient_norm_by_module: dict[str, float] | None
    learning_rate: float
    clipped: bool
    skipped: bool
    """The update was left out: an fp16 gradient overflowed, and the loss scale has been lowered; or the step stood
    out, and the recipe or an earlier decision says so."""
    finite: bool
    """False: loss or gradient was not finite, and nothing was updated."""
    loss_scale: float | None
    dead_updates: float | None
    """pure_bf16 only: share of weights that the update was too small to move."""
    stop_requested: bool
    """Some rank was asked to stop."""
    slower: bool
    """Some rank says that steps have become slower."""
    copy_failed: bool
    """Some rank found that a copy of the state from an earlier step was not finite."""
    own_sums: bytes
    """The bits of this rank's own sums of losses: what it computed alone, to be compared with another time."""
    routing: dict[str, RouterStatistics]
    """What the routers of each block did with all tokens of the step; empty without experts."""
    gradient_norms: torch.Tensor
    """float64: of each parameter of the whole model, loss scale removed."""
    documents: list[DocumentLoss]
    """Those of this rank's samples with the largest loss."""
    asked_back: int
    """The step before which the run is asked to go back; 0: nobody asks."""


class TrainingStep:
    """Does one step at a time on a model that is laid out over ranks."""

    def __init__(
        self,
        recipe: Recipe,
        source_names: Sequence[str],
        model: ParallelModel,
        optimizer: torch.optim.Optimizer,
        loss_scale: DynamicLossScale | None,
        clock: PhaseClock,
        settle: Callable[[], float] = lambda: 0.0,
        guard: Guard | None = None,
        in_flight: StepInFlight | None = None,
        activations: Activations | None = None,
    ) -> None:
        """`settle` waits until weights and moments may be changed; returns for how many seconds it did.

        `guard` judges each step before its update; without one only what is not finite is left out. `in_flight`
        keeps what there is of a step that is not complete; without one nothing is. `activations` are looked at in
        steps that ask for figures by module.
        """
        self.recipe = recipe
        self.source_names = tuple(source_names)
        self.model = model
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.clock = clock
        self._settle = settle
        self.in_flight = in_flight
        self.activations = activations
        self._token_losses: dict[int, torch.Tensor] = {}
        self.guard = guard or Guard(recipe.recovery, Interventions())
        if recipe.training.memory.release_gradients:
            assert isinstance(optimizer, AdamWOptimizer | LionOptimizer), "the recipe refuses others"
            groups = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
            model.release_gradients(lambda parameter: optimizer.step_one(parameter, groups[parameter]))

    def __call__(
        self,
        step: int,
        batches: Sequence[MicroBatch],
        *,
        with_modules: bool,
        stop: bool,
        copy_failed: bool = False,
        slower: bool = False,
        asked_back: int = 0,
    ) -> StepResult:
        """Train on this rank's part of the global batch of `step`.

        `with_modules` asks for gradient norms by module. This rank says with `stop` that it was asked to stop, with
        `copy_failed` and `slower` what `StepResult` says of all; only rank 0 does so with `asked_back`. Collective.
        """
        with told(self.clock.waiting):
            return self._do(step, batches, with_modules, [stop, copy_failed, slower, asked_back])

    def _do(self, step: int, given: Sequence[MicroBatch], with_modules: bool, said: Sequence[float]) -> StepResult:
        """`said` is what this rank says to the others: sums of it are what all know."""
        training = self.recipe.training
        batches = [batch.to(self.model.world.device) for batch in given]
        tokens = self._count_tokens(batches)
        factor = learning_rate_factor(training.schedule, step, training.steps)
        rate = set_learning_rate(self.optimizer, factor * self.guard.learning_rate_factor(step))
        if training.memory.release_gradients:
            self._await_copy()  # weights change during backward
        look = self.activations.looking() if with_modules and self.activations else nullcontext()
        with look:
            sums = self._accumulate_gradients(step, batches, tokens)
        own_sums = bits_of(sums.tolist())
        with self.clock.phase("communication", "loss"):
            sums = self.model.world.sum(torch.cat([sums, sums.new_tensor(said)]))
            norms = self.model.gradients.norms()
            said_by_all = sums[-len(said) :].tolist()
        losses, self._token_losses = self._token_losses, {}
        most = self.recipe.telemetry.worst_documents
        documents = worst_documents(self.model, given, losses, self.source_names, most)
        scale = self.loss_scale.scale if self.loss_scale else 1.0
        norm, (loss, sources) = self.model.gradients.total_norm(norms) / scale, self._by_source(sums)
        finite = math.isfinite(norm + loss)
        overflowed = self.loss_scale is not None and math.isfinite(loss) and not finite
        applied = self.guard.may_update(step, loss, norm, overflowed=overflowed) and finite
        clipped = applied and training.gradient_clip is not None and norm > training.gradient_clip
        self._await_copy()
        clip = training.gradient_clip / norm if clipped and training.gradient_clip else 1.0
        with self.clock.phase("optimizer"):
            dead_updates = self._apply(clip / scale) if applied else None
            if self.loss_scale is not None and (applied or overflowed):
                self.loss_scale.update(overflow=overflowed)
            self.model.gradients.clear()
            routing = self.model.finish_routing(update=applied)
        return StepResult(
            loss=loss,
            loss_by_source={name: total / count for name, total, count in sources},
            loss_by_position=self._by_position(sums),
            tokens_by_source={name: count for name, _, count in sources},
            tokens=tokens,
            gradient_norm=norm,
            gradient_norm_by_module=self.model.gradients.by_module(norms / scale) if with_modules else None,
            learning_rate=rate,
            clipped=clipped,
            skipped=not applied,
            finite=finite or overflowed,
            loss_scale=scale if self.loss_scale else None,
            dead_updates=dead_updates,
            stop_requested=said_by_all[0] > 0,
            copy_failed=said_by_all[1] > 0,
            slower=said_by_all[2] > 0,
            own_sums=own_sums,
            routing=routing,
            gradient_norms=norms / scale,
            documents=documents,
            asked_back=int(said_by_all[3]),
        )

    def take_up(self, progress: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint kept: loss scale, and the recent past of loss and gradient norm."""
        if self.loss_scale is not None and progress["loss_scale"] is not None:
            self.loss_scale.load_state_dict(progress["loss_scale"])
        if "vigilance" in progress:
            self.guard.vigilance.load_state(progress["vigilance"])

    def _accumulate_gradients(self, step: int, batches: Sequence[MicroBatch], tokens: int) -> torch.Tensor:
        """Forward and backward over this rank's micro-batches.

        The one place where a loss is divided: every micro-batch's sum of token losses, on every
        rank, by the count of tokens in the whole global batch. Returns float64 [2 × (sources + stretches)]:
        sums of cross-entropy by source, then counts of tokens by source, then both by stretch of the sequence, of
        this rank. Losses of single tokens are kept by micro-batch.
        """
        training, world = self.recipe.training, self.model.world
        scale = self.loss_scale.scale if self.loss_scale else 1.0
        sources, length = len(self.source_names), training.sequence_length
        places, stretched = self.model.own_places(length), len(stretches(length))
        sums = torch.zeros(2 * (sources + stretched), dtype=torch.float64, device=world.device)
        of_stretches, in_stretches = torch.split(sums[2 * sources :], stretched)
        own, every = (stretch_of(length, which, world.device) for which in (places, None))
        self.model.train()
        added = self.in_flight.take_up(step, sums) if self.in_flight else 0

        def add(by_sample: torch.Tensor) -> None:
            nonlocal added
            batch, added = batches[added], added + 1
            sums[:sources].index_add_(0, batch.sources, by_sample)
            if self.model.counts:
                counts = (batch.targets >= 0).sum(dim=1).to(torch.float64)
                sums[sources : 2 * sources].index_add_(0, batch.sources, counts)
                in_stretches.index_add_(0, every, (batch.targets >= 0).sum(dim=0).to(torch.float64))

        def add_and_keep(by_sample: torch.Tensor) -> None:
            add(by_sample)
            if self.in_flight:
                self.in_flight.keep(step, added, sums)

        first, self._token_losses = added, {}

        def look(number: int, of_tokens: torch.Tensor) -> None:
            of_stretches.index_add_(0, own, of_tokens.sum(dim=0, dtype=torch.float64))
            if self.recipe.telemetry.worst_documents:
                self._token_losses[first + number] = of_tokens

        by_batch = self.model.forward_backward(
            [inputs_of(batch, training.document_mask) for batch in batches[added:]],
            step=step,
            seed=self.recipe.seed,
            loss_scale=scale / max(tokens, 1),
            autocast=lambda: autocast(training.precision, world.device),
            phase=self.clock.phase,
            between=add_and_keep,
            look=look,
        )
        for by_sample in by_batch[added - len(batches) :]:
            add(by_sample)
        return sums

    def _await_copy(self) -> None:
        """Wait until what is being saved is copied, and weights and moments may change."""
        self.clock.add("checkpoint", self._settle())

    def _count_tokens(self, batches: Sequence[MicroBatch]) -> int:
        """Tokens that count in the whole global batch."""
        world = self.model.world
        with self.clock.phase("communication", "count"):
            counted = sum(int((batch.targets >= 0).sum()) for batch in batches) if self.model.counts else 0
            return int(world.sum(torch.tensor(counted, dtype=torch.int64, device=world.device)))

    def _apply(self, factor: float) -> float | None:
        """Update by the gradients times `factor`."""
        self.model.gradients.scale(factor)
        return self._update()

    def _by_source(self, sums: torch.Tensor) -> tuple[float, list[tuple[str, float, int]]]:
        """The mean loss; and name, sum of losses and count of tokens of each source that has any."""
        count = len(self.source_names)
        losses, counts = sums[:count], sums[count : 2 * count]  # after them comes what ranks have said
        tokens = float(counts.sum())
        each = zip(self.source_names, losses.tolist(), counts.tolist(), strict=True)
        return float(losses.sum()) / tokens if tokens else 0.0, [(n, total, int(c)) for n, total, c in each if c]

    def _by_position(self, sums: torch.Tensor) -> dict[str, float]:
        """The mean loss of each stretch of the sequence that has counted tokens."""
        found = stretches(self.recipe.training.sequence_length)
        losses, counts = torch.split(sums[2 * len(self.source_names) :], len(found))[:2]
        return {
            f"{first}-{last - 1}": total / count
            for (first, last), total, count in zip(found, losses.tolist(), counts.tolist(), strict=True)
            if count
        }

    def _update(self) -> float | None:
        """One step of the optimizer. Of pure_bf16 the share of weights that did not move."""
        if self.recipe.training.precision != "pure_bf16":
            self.optimizer.step()
            return None
        held = [one for one in self.model.held if one.is_parameter]
        before = [one.parameter.detach().clone() for one in held]
        self.optimizer.step()
        moved = dead_updates(before, held).to(self.model.world.device)
        with waiting("updates"):
            unmoved, everything = self.model.world.sum(moved)
        return float(unmoved / everything)


def bits_of(numbers: Sequence[float]) -> bytes:
    """The numbers' own bits, by which NaN equals NaN."""
    return struct.pack(f"<{len(numbers)}d", *numbers)


def inputs_of(batch: MicroBatch, document_mask: bool) -> Inputs:
    """What the model reads of a micro-batch."""
    documents = batch.documents if document_mask else None
    return Inputs(batch.tokens, batch.targets, batch.positions, documents, batch.samples)
