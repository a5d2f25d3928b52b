"""Training's own steps on made-up tokens, with everything they compute shown to an observer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stoker.checkpoint.state import MODEL, OPTIMIZER, Part, model_state, optimizer_state
from stoker.data.feeding import MicroBatch
from stoker.layout import Layout
from stoker.parallel import ParallelModel, Settings, World, apply
from stoker.parallel.placement import Held, local
from stoker.planning.memory import recomputation_of_rank
from stoker.recipe import Adafactor, AdamW, Lion, Muon, Recipe, Training
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import DynamicLossScale
from stoker.training.step import StepResult, TrainingStep, inputs_of
from stoker.verification.made_up import SOURCES, disturbance, global_batch, own_rows
from stoker.verification.subject import Subject, VerifiedPrecision

_EPSILON = 1e-4


class Observer(Protocol):
    """Is shown what a step computed, in order."""

    def number(self, step: int, kind: str, name: str, value: float) -> None:
        """One figure, the same on every rank."""

    def parts(self, step: int, kind: str, parts: Mapping[str, Part]) -> None:
        """This rank's parts of tensors."""


Around = Callable[[int, ParallelModel], AbstractContextManager[object]]
"""Entered around the forward and backward passes of a step."""


@dataclass
class Trained:
    """A model, laid out over ranks, that steps can be made with."""

    subject: Subject
    recipe: Recipe
    model: ParallelModel
    optimizer: torch.optim.Optimizer
    loss_scale: DynamicLossScale | None
    sequences_of: Layout | None = None
    """The layout whose global batch it has; by default its own."""

    @property
    def world(self) -> World:
        """Of this rank."""
        return self.model.world

    @property
    def sequences(self) -> int:
        """Of a global batch."""
        return self.subject.sequences(self.sequences_of or self.world.layout)

    def batches(self, step: int) -> list[MicroBatch]:
        """This rank's micro-batches."""
        layout = self.world.layout
        whole = global_batch(self.subject, self.sequences, step)
        if self.sequences_of is not None:
            return [whole.rows(0, self.sequences)]
        return [
            whole.rows(rows.start, rows.stop).to(self.world.device)
            for rows in own_rows(self.subject, layout, self.world.data_parallel_rank)
        ]


def lay_out(
    subject: Subject, precision: VerifiedPrecision, steps: int, world: World, observer: Observer
) -> Trained:
    """The model with initial values from `meta`, which are shown as weights of step 0, then disturbed."""
    recipe = subject.recipe(world.layout, precision, steps)
    layout = world.layout
    divided = layout.pp > 1 or layout.cp > 1 or layout.tp > 1 or layout.ep > 1
    settings = Settings(
        reduce=torch.float32 if precision == "pure_bf16" else None,
        seed=subject.seed,
        fixed_order=recipe.training.deterministic == "across_layouts" and not divided,
        recompute=recomputation_of_rank(recipe, subject.vocabulary_size, "cpu", world.rank),
    )
    model = apply(subject.build(precision), world, settings)
    observer.parts(0, "initial", _weights(model))
    _disturb(model.held, subject.seed)
    optimizer = build_optimizer(model.held, _smooth(recipe.training, precision))
    scale = DynamicLossScale(recipe.training.loss_scale) if precision == "fp16" else None
    return Trained(subject, recipe, model, optimizer, scale)


def make_steps(
    trained: Trained, steps: Iterable[int], observer: Observer, around: Around = lambda step, model: nullcontext()
) -> None:
    """Make `steps`, each from where the one before ended. Collective."""
    observed = _ObservedStep(trained, observer, around)
    for step in steps:
        result = observed(step, trained.batches(step), with_modules=True, stop=False)
        _show(step, result, observer)
        observer.parts(step, "weight", _weights(trained.model))
        state = optimizer_state(trained.model.held, trained.optimizer)
        observer.parts(step, "state", {name.removeprefix(OPTIMIZER): part for name, part in state.items()})


def evaluate(trained: Trained, step: int, observer: Observer) -> None:
    """Show the loss of a step's tokens in evaluation, without dropout. Collective."""
    trained.model.train(False)
    mask = trained.recipe.training.document_mask
    sums = [trained.model.evaluate(inputs_of(batch, mask)).sum() for batch in trained.batches(step)]
    observer.number(step, "evaluation", "loss", float(trained.world.sum(torch.stack(sums).sum())))


class _ObservedStep(TrainingStep):
    """Training's step, which shows gradients before the update."""

    def __init__(self, trained: Trained, observer: Observer, around: Around) -> None:
        super().__init__(
            trained.recipe,
            SOURCES,
            trained.model,
            trained.optimizer,
            trained.loss_scale,
            PhaseClock(trained.world.device),
        )
        self._observer, self._around, self._step = observer, around, 0

    def _accumulate_gradients(self, step: int, batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        self._step = step
        with self._around(step, self.model):
            return super()._accumulate_gradients(step, batches, tokens)

    def _update(self) -> float | None:
        held = [one for one in self.model.held if one.is_parameter]
        self._observer.parts(self._step, "gradient", {one.name: _gradient(one) for one in held})
        return super()._update()


def _weights(model: ParallelModel) -> dict[str, Part]:
    return {name.removeprefix(MODEL): part for name, part in model_state(model.held).items()}


def _gradient(held: Held) -> Part:
    gradient = held.parameter.grad
    part = torch.zeros_like(local(held.parameter)) if gradient is None else local(gradient)
    return Part(part.detach(), held.shape, held.box)


def _show(step: int, result: StepResult, observer: Observer) -> None:
    observer.number(step, "loss", "loss", result.loss)
    for source, loss in result.loss_by_source.items():
        observer.number(step, "loss", f"loss of {source}", loss)
    for block, counted in result.routing.items():
        for field, values in counted._asdict().items():
            for place, value in enumerate(values.reshape(-1).tolist()):
                observer.number(step, "routing", f"{block}.{field}[{place}]", float(value))
    for module, norm in (result.gradient_norm_by_module or {}).items():
        observer.number(step, "norm", module, norm)
    observer.number(step, "norm", "global norm", result.gradient_norm)


@torch.no_grad()
def _disturb(held: Sequence[Held], seed: int) -> None:
    for one in held:
        if one.is_parameter:
            part = local(one.parameter)
            whole = disturbance(seed, one.name, one.shape)
            part += whole[tuple(slice(*bounds) for bounds in one.box)].to(part.device, part.dtype)


def _smooth(training: Training, precision: VerifiedPrecision) -> Training:
    """Adaptive optimizers divide by what may be all rounding, and then step by a rounding's sign.

    Lion always steps by signs, some of which are decided by rounding: outside of fp64, AdamW takes its place.
    """
    optimizer = training.optimizer
    if isinstance(optimizer, Lion) and precision != "fp64":
        optimizer = AdamW(learning_rate=optimizer.learning_rate, weight_decay=optimizer.weight_decay)
    changes: dict[str, float] = {}
    if isinstance(optimizer, AdamW | Muon):
        changes = {"epsilon": max(optimizer.epsilon, _EPSILON)}
    elif isinstance(optimizer, Adafactor):
        changes = {"epsilon": max(optimizer.epsilon, _EPSILON**2)}
    return training.model_copy(update={"optimizer": optimizer.model_copy(update=changes)})


__all__ = ["Around", "Observer", "Trained", "evaluate", "lay_out", "make_steps"]
