"""Carries out a pipeline schedule: one rank's stages, micro-batches through them, messages between ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from stoker.layout import Layout
from stoker.model import Decoder, TokenLosses
from stoker.parallel.offload import Offload, Rest
from stoker.parallel.pipeline.deferred import WeightGradients
from stoker.parallel.pipeline.lanes import Arrival, Inbox, Lanes
from stoker.parallel.pipeline.program import Pass, Program, program
from stoker.parallel.world import World
from stoker.pipeline_schedule import Kind, Lane, Message, Payload
from stoker.recipe.stages import stage_to_rank

Batch = TypeVar("Batch")
Run = Callable[[Decoder, Batch, Tensor | None], Tensor | TokenLosses]
"""Runs a stage on a micro-batch and, but for the first stage, the residual stream that comes in."""
BeforeBackward = Callable[[int, bool, bool], AbstractContextManager[object]]
"""Of a stage; whether its gradients are complete after this; whether it puts weight gradients off in this step."""
Phase = Callable[..., AbstractContextManager[object]]
"""Given the name of a phase and, where this rank does nothing but wait in it, what it waits for."""


class Executed(NamedTuple):
    """One action as it went. Seconds of a monotonic clock of the host, without the wait for what comes in."""

    kind: Kind
    stage: int
    micro_batch: int
    start: float
    end: float


@dataclass
class _Held:
    """What a backward pass needs of its forward pass: of the output only its place in the graph."""

    entered: Tensor | None
    left: GradientEdge | None
    gradient: Tensor | None
    """Of the output, where it is known from the start: of a loss."""
    rest: Rest | None


class Pipeline(Generic[Batch]):
    """The stages of one rank at work with those of the other ranks along `pp`."""

    def __init__(
        self,
        stages: Mapping[int, Decoder],
        layout: Layout,
        world: World,
        stream_shape: Callable[[Batch], tuple[int, ...]],
        dtype: torch.dtype,
        *,
        offload: Mapping[int, Offload] | None = None,
    ) -> None:
        """`stream_shape` and `dtype` are those of the residual stream between stages, for a micro-batch.

        `offload` is what lets activations of a stage rest in host memory. Collective.
        """
        self._owners = stage_to_rank(layout)
        self._last_stage = len(self._owners) - 1
        self._stages, self._layout, self._at = dict(stages), layout, world.coordinate.pp
        own = [stage for stage, owner in enumerate(self._owners) if owner == self._at]
        if sorted(stages) != own:
            raise ValueError(f"place {self._at} of {layout} has stages {own}, but was given {sorted(stages)}")
        self._shape_of, self._dtype = stream_shape, dtype
        self._lanes = Lanes(world, self._owners)
        self._programs: dict[int, Program] = {}
        self._later = {stage: WeightGradients() for stage in self._stages}
        if program(layout, self._at, 1).splits:
            for stage, part in self._stages.items():
                self._later[stage].install(part)
        self._offload = dict(offload or {})
        self.trace: list[Executed] = []
        """The actions of the last step, in order."""
        self.most_held = 0
        """In the last step: the most passes (a stage, a micro-batch) whose backward was not done, at a time."""

    @property
    def splits(self) -> bool:
        """Whether backward passes leave weight gradients for later."""
        return self.program(1).splits

    def program(self, micro_batches: int) -> Program:
        """What this rank does in a step of so many micro-batches."""
        if micro_batches not in self._programs:
            self._programs[micro_batches] = program(self._layout, self._at, micro_batches)
        return self._programs[micro_batches]

    def forward_backward(
        self,
        batches: Sequence[Batch],
        run: Run[Batch],
        before_backward: BeforeBackward = lambda stage, last, later: nullcontext(),
        after_last: Callable[[int], None] = lambda stage: None,
        phase: Phase = lambda *names: nullcontext(),
    ) -> list[TokenLosses | None]:
        """Gradients of the sum of all losses, in `.grad` of the parameters of this rank's stages. Collective.

        Returns the detached losses of each micro-batch where the last stage is, None elsewhere. Every
        rank is given the same micro-batches. `run` computes a stage, in the autocast it wants.
        `before_backward` is entered around each backward pass, whole or its first half, and told the
        stage, whether this completes the stage's gradients, and whether the stage puts weight gradients
        off, in this pass or another one: then gradients that are to be summed over ranks are at hand all
        together only when `after_last` is called, which is when those of a stage are complete.
        `phase` is entered around what is named `forward`, `backward` and `communication`.
        """
        step = _Step(self, self.program(len(batches)), batches, run, before_backward, after_last, phase)
        try:
            step.carry_out()
            with phase("communication", "stages"):
                self._lanes.finish()
        finally:
            self.trace, self.most_held = step.trace, step.most_held
            for later in self._later.values():
                later.forget()
        return step.losses

    @torch.no_grad()
    def forward(self, batch: Batch, run: Run[Batch]) -> TokenLosses | Tensor | None:
        """What the last stage gives for `batch`, on the rank that has it; None elsewhere. Collective."""
        handed: Tensor | None = None
        for stage in sorted(self._stages):
            entered = None
            if stage and self._owners[stage - 1] == self._at:
                entered = handed
            elif stage:
                lane = Lane(self._owners[stage - 1], self._at, Payload.ACTIVATION)
                entered = self._lanes.receive(lane, self._shape_of(batch), self._dtype).wait()
            output = run(self._stages[stage], batch, entered)
            if stage == self._last_stage:
                self._lanes.finish()
                return output
            handed = self._stream(output, stage, batch)
            if self._owners[stage + 1] != self._at:
                self._lanes.send(Lane(self._at, self._owners[stage + 1], Payload.ACTIVATION), handed)
        self._lanes.finish()
        return None

    def _stream(self, output: Tensor | TokenLosses, stage: int, batch: Batch) -> Tensor:
        """`output` as the residual stream for the next stage, which knows its shape and type beforehand."""
        wanted = self._shape_of(batch)
        if not isinstance(output, Tensor) or tuple(output.shape) != tuple(wanted) or output.dtype != self._dtype:
            given = f"{output.dtype} {tuple(output.shape)}" if isinstance(output, Tensor) else "losses"
            raise ValueError(f"stage {stage} gave {given}, but {self._dtype} {tuple(wanted)} was expected of it")
        return output.detach()


class _Step(Generic[Batch]):
    """One pass over the actions of a rank."""

    def __init__(
        self,
        pipeline: Pipeline[Batch],
        program: Program,
        batches: Sequence[Batch],
        run: Run[Batch],
        before_backward: BeforeBackward,
        after_last: Callable[[int], None],
        phase: Phase,
    ) -> None:
        self._pipeline, self._program, self._batches = pipeline, program, batches
        self._run, self._before_backward = run, before_backward
        self._after_last, self._phase = after_last, phase
        self._held: dict[Pass, _Held] = {}
        self._handed: dict[tuple[Payload, Message], Tensor] = {}
        self._inboxes = {
            lane: Inbox(messages, program.ahead, partial(self._post, lane))
            for lane, messages in program.receives.items()
        }
        self._open = 0
        self.losses: list[TokenLosses | None] = [None] * len(batches)
        self.trace: list[Executed] = []
        self.most_held = 0

    def carry_out(self) -> None:
        for place, (kind, stage, micro_batch) in enumerate(self._program.actions):
            fetched = self._held.get(self._program.fetches.get(place, (-1, -1)))
            if fetched is not None and fetched.rest is not None:
                fetched.rest.fetch()
            completes = place in self._program.completes
            match kind:
                case Kind.FORWARD:
                    self._forward(stage, micro_batch)
                case Kind.BACKWARD | Kind.BACKWARD_INPUT:
                    self._backward(kind, stage, micro_batch, completes)
                case Kind.BACKWARD_WEIGHT:
                    begun = time.perf_counter()
                    with self._phase("backward"):
                        self._pipeline._later[stage].run(micro_batch)
                    self._note(kind, stage, micro_batch, begun)
            if completes:
                self._after_last(stage)

    def _forward(self, stage: int, micro_batch: int) -> None:
        pipeline, batch, rest = self._pipeline, self._batches[micro_batch], None
        entered = None
        if stage:
            entered = self._take(Payload.ACTIVATION, stage, stage - 1, micro_batch).requires_grad_()
        if stage in pipeline._offload:
            rest = Rest(pipeline._offload[stage], long=(stage, micro_batch) in self._program.rests)
        begun = time.perf_counter()
        with self._phase("forward"), rest.saving() if rest else nullcontext():
            output = self._run(pipeline._stages[stage], batch, entered)
        self._note(Kind.FORWARD, stage, micro_batch, begun)
        if stage == pipeline._last_stage:
            assert isinstance(output, TokenLosses), "the last stage must give losses"
            root = output.loss_sum
            self.losses[micro_batch] = output._replace(loss_sum=root.detach())
            gradient: Tensor | None = torch.ones_like(root)
        else:
            stream, gradient = pipeline._stream(output, stage, batch), None
            assert isinstance(output, Tensor)
            root = output
            self._pass_on(Payload.ACTIVATION, stage + 1, micro_batch, stream)
        left = get_gradient_edge(root) if root.requires_grad else None
        self._held[stage, micro_batch] = _Held(entered, left, gradient, rest)
        self._post_next(Payload.ACTIVATION, stage - 1)

    def _backward(self, kind: Kind, stage: int, micro_batch: int, completes: bool) -> None:
        pipeline, split = self._pipeline, kind is Kind.BACKWARD_INPUT
        later = stage in self._program.puts_off
        held = self._held.pop((stage, micro_batch))
        gradient = held.gradient
        if stage != pipeline._last_stage:
            gradient = self._take(Payload.GRADIENT, stage, stage + 1, micro_batch)
        putting_off = pipeline._later[stage].put_off(micro_batch) if split else nullcontext()
        begun = time.perf_counter()
        with self._phase("backward"), self._before_backward(stage, completes, later), putting_off:
            if held.left is not None:
                torch.autograd.backward(held.left, gradient)
        self._note(kind, stage, micro_batch, begun)
        if held.entered is not None:
            back = held.entered.grad
            # A stage whose output has nothing to do with its input is waited for all the same.
            self._pass_on(
                Payload.GRADIENT, stage - 1, micro_batch, torch.zeros_like(held.entered) if back is None else back
            )
        self._post_next(Payload.GRADIENT, stage + 1)

    def _take(self, payload: Payload, stage: int, other: int, micro_batch: int) -> Tensor:
        """What stage `other` has for `stage`."""
        source, message = self._pipeline._owners[other], Message(stage, micro_batch)
        if source == self._pipeline._at:
            return self._handed.pop((payload, message))
        with self._phase("communication", "stages"):
            return self._inboxes[Lane(source, self._pipeline._at, payload)].take(message)

    def _pass_on(self, payload: Payload, stage: int, micro_batch: int, tensor: Tensor) -> None:
        """Give `tensor` to `stage`."""
        destination, message = self._pipeline._owners[stage], Message(stage, micro_batch)
        if destination == self._pipeline._at:
            self._handed[payload, message] = tensor
            return
        with self._phase("communication", "stages"):
            self._pipeline._lanes.send(Lane(self._pipeline._at, destination, payload), tensor)

    def _post(self, lane: Lane, message: Message) -> Arrival:
        shape = self._pipeline._shape_of(self._batches[message.micro_batch])
        return self._pipeline._lanes.receive(lane, shape, self._pipeline._dtype)

    def _post_next(self, payload: Payload, source_stage: int) -> None:
        """After an action that used a message of `source_stage`."""
        if 0 <= source_stage <= self._pipeline._last_stage:
            lane = Lane(self._pipeline._owners[source_stage], self._pipeline._at, payload)
            if lane in self._inboxes:
                self._inboxes[lane].post()

    def _note(self, kind: Kind, stage: int, micro_batch: int, begun: float) -> None:
        self.trace.append(Executed(kind, stage, micro_batch, begun, time.perf_counter()))
        if kind is Kind.FORWARD:
            self._open += 1
            self.most_held = max(self.most_held, self._open)
        elif kind is not Kind.BACKWARD_INPUT:
            self._open -= 1
