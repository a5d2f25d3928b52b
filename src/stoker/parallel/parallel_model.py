"""This rank's part of a model that is laid out over ranks, and what all ranks do with it together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.model import Decoder, TokenLosses
from stoker.model.multi_token import Future, shifted
from stoker.model.position import Places
from stoker.model.router import RouterStatistics
from stoker.parallel.collectives import all_reduce
from stoker.parallel.context_parallel import SequenceSplit
from stoker.parallel.expert_parallel import SequencesOverRanks
from stoker.parallel.fixed_order import FixedOrder, FixedOrderGradients
from stoker.parallel.gradients import Gradients
from stoker.parallel.offload import Offload, Rest
from stoker.parallel.pipeline import Pipeline
from stoker.parallel.placement import Held
from stoker.parallel.replicate import PartialGradients, SummedGradients
from stoker.parallel.shard import Sharding
from stoker.parallel.waiting import waiting
from stoker.parallel.world import World
from stoker.recipe import Model

Context = Callable[[], AbstractContextManager[object]]
Phase = Callable[..., AbstractContextManager[object]]
"""Given the name of a phase and, where this rank does nothing but wait in it, what it waits for."""
Look = Callable[[int, Tensor], None]
"""Given the number of a micro-batch and the losses of its tokens, fp32 or fp64 [B, tokens of this rank]."""


class Inputs(NamedTuple):
    """What a forward pass reads: whole sequences, the same on all ranks that work on them together."""

    tokens: Tensor
    """int64 [B, L]"""
    targets: Tensor
    """int64 [B, L]; -100 counts for nothing."""
    positions: Tensor
    """int64 [B, L]"""
    documents: Tensor | None
    """int [B, L]; None: no document is kept apart."""
    samples: Tensor
    """int64 [B]"""


class LocalInputs(NamedTuple):
    """The tokens of one context-parallel rank."""

    tokens: Tensor
    targets: Tensor | None
    positions: Tensor
    documents: Tensor | None
    """Of whole sequences."""
    samples: Tensor | None
    places: Places | None
    future: Future | None
    length: int
    """Of whole sequences."""


@dataclass
class Stage:
    """One pipeline stage on this rank; without a pipeline, all there is."""

    part: Decoder
    held: dict[str, Held]
    sharding: Sharding | None
    offload: Offload | None = None


@dataclass
class ParallelModel:
    """What one rank holds of the model. All of its methods are collective."""

    stages: dict[int, Stage]
    held: list[Held]
    """Parameters and buffers."""
    world: World
    config: Model
    gradients: Gradients
    split: SequenceSplit | None
    pipeline: Pipeline[LocalInputs] | None
    summed: SummedGradients | FixedOrderGradients
    partial: PartialGradients
    order: FixedOrder | None = None
    compiled: bool = False
    """Whether blocks are."""

    @property
    def counts(self) -> bool:
        """Whether this rank is the one that counts what there is in its part of the batch."""
        at = self.world.coordinate
        return at.tp == at.cp == at.pp == 0

    @property
    def waits_are_known(self) -> bool:
        """Whether all waits for other ranks in the middle of passes are told of (see `waiting`).

        Not those of FSDP on CUDA, nor its sums over `dp_replicate`, nor those inside of compiled blocks.
        """
        layout = self.world.layout
        sharded = any(stage.sharding is not None for stage in self.stages.values())
        unseen = sharded and (layout.dp_replicate > 1 or self.world.device.type == "cuda")
        return not unseen and not (self.compiled and layout.tp * layout.cp > 1)

    @property
    def part(self) -> Decoder:
        """The model on this rank, where there is no pipeline; otherwise its first stage."""
        return next(iter(self.stages.values())).part

    def train(self, mode: bool = True) -> None:
        """Switch dropout, LayerDrop and the routers' losses on or off."""
        for stage in self.stages.values():
            stage.part.train(mode)

    def forward_backward(
        self,
        batches: Sequence[Inputs],
        *,
        step: int,
        seed: int,
        loss_scale: float,
        autocast: Context = nullcontext,
        phase: Phase = lambda *names: nullcontext(),
        between: Callable[[Tensor], None] | None = None,
        look: Look | None = None,
    ) -> list[Tensor]:
        """Gradients of the sum of the micro-batches' losses times `loss_scale`, complete on every rank.

        Returns for each micro-batch float64 [B]: the sum of each sample's cross-entropy over the tokens this
        rank answers for. Summed over all ranks they are those of all tokens. `phase` is entered around what
        is named `forward`, `backward` and `communication`. `between` is called after each micro-batch but the
        last, with what is returned of it, where micro-batches come one after another: not in a pipeline. `look` is
        given each token's loss on the ranks that answer for it, before that.
        """
        local = [self._local(batch) for batch in batches]
        run = partial(self._run, step=step, seed=seed, loss_scale=loss_scale, autocast=autocast)
        if self.pipeline is not None:
            losses = self.pipeline.forward_backward(local, run, self._before_backward, self._after_last, phase)
            self._show(look, losses)
        else:
            losses = []
            for batch, one in zip(batches, self._one_by_one(local, run, phase), strict=True):
                losses.append(one)
                self._show(look, [one], len(losses) - 1)
                if between is not None and len(losses) < len(batches):
                    between(self._own_sums(batch, one))
        with phase("communication", "gradients"):
            self.summed.finish()
            self.partial.finish()
        self._complete_gradients()
        return [self._own_sums(batch, one) for batch, one in zip(batches, losses, strict=True)]

    def own_places(self, length: int) -> Tensor | None:
        """int64: the places of sequences of `length` whose tokens are this rank's; None: all of them."""
        return None if self.split is None else self.split.places(length, self.world.device).own

    def sum_over_parts(self, x: Tensor) -> Tensor:
        """`x` summed over the ranks that have other tokens of the same sequences. Collective over them."""
        return x if self.split is None else all_reduce(x, self.split.group)

    @torch.no_grad()
    def evaluate(self, batch: Inputs) -> Tensor:
        """float64 [B]: each sample's summed cross-entropy over the tokens this rank answers for."""
        losses = self._forward(self._local(batch))
        assert losses is None or isinstance(losses, TokenLosses)
        return self._own_sums(batch, losses)

    @torch.no_grad()
    def objective(self, batch: Inputs, *, step: int, seed: int, loss_scale: float) -> Tensor:
        """float64 []: this rank's part of what `forward_backward` gives the gradients of, in the weights' own type.

        Summed over the ranks of one copy of the model it is the whole. Routers count what they see.
        """
        found = self._forward(self._local(batch), partial(self._run, step=step, seed=seed, loss_scale=loss_scale))
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        if isinstance(found, TokenLosses) and self.world.coordinate.tp == 0:
            if self.config.z_loss or self.config.mtp_depth:
                total += found.loss_sum
            else:  # the same, but added up in fp64
                total += found.token_losses.sum(dtype=torch.float64) * loss_scale
        for stage in self.stages.values():
            for mixture in stage.part.mixtures().values():
                total += mixture.counted_loss() * loss_scale
        return total

    @torch.no_grad()
    def last_logits(self, tokens: Tensor) -> Tensor:
        """Logits [B, V] of the token after `tokens` [B, L], the same to the bit on every rank."""
        B, L = tokens.shape
        positions = torch.arange(L, device=tokens.device).expand(B, L)
        local = self._local(Inputs(tokens, tokens, positions, None, torch.arange(B, device=tokens.device)))
        logits = self._forward(local._replace(targets=None))
        # Drawing from them must not come out differently anywhere: one rank's are everybody's.
        found = torch.zeros((B, self.part.vocabulary_size), dtype=torch.float64, device=tokens.device)
        last = local.places is None or bool(local.places.own.numel() and local.places.own[-1] == L - 1)
        at = self.world.coordinate
        if isinstance(logits, Tensor) and last and at.tp == at.dp_replicate == at.dp_shard == 0:
            found += logits[:, -1]
        return self.world.sum(found)

    def finish_routing(self, update: bool) -> dict[str, RouterStatistics]:
        """What all routers counted since the last call, by the name of their block, of all tokens.

        `update` moves the routers' selection biases by it.
        """
        if self.config.moe is None:
            return {}
        own = {name: one for stage in self.stages.values() for name, one in stage.part.mixtures().items()}
        alike = self.world.layout.expert_tp and self.world.coordinate.tp > 0
        found = {}
        for name in self._mixture_names():
            none = RouterStatistics.none(self.config.moe.experts, self.world.device)
            taken = own[name].take_statistics() if name in own else none
            counted = none if alike else taken
            flat = torch.cat([value.reshape(-1).to(torch.float64) for value in counted])
            with waiting("routing"):
                self.world.sum(flat)
            parts = torch.split(flat, [value.numel() for value in counted])
            found[name] = RouterStatistics(
                *(part.view_as(value).to(value.dtype) for part, value in zip(parts, counted, strict=True))
            )
            if update and name in own:
                own[name].update_selection_bias(found[name].tokens_per_expert)
        return found

    def release_gradients(self, update: Callable[[Tensor], None]) -> None:
        """Have `update` use each gradient as soon as it is complete, where that is before the end of backward.

        For steps of one micro-batch. Gradients that ranks sum afterwards are there as ever, and so are those
        that a pipeline puts off.
        """
        late = {id(parameter) for parameter in self.partial.parameters}
        late |= {id(parameter) for parameter in self.summed.parameters}
        ready = [one.parameter for one in self.held if one.is_parameter and id(one.parameter) not in late]
        self.gradients.release(ready, update)

    def _complete_gradients(self) -> None:
        """A rank without heads uses no keys, but has a part, if an empty one, in what optimizers do together."""
        for one in self.held:
            if not one.is_parameter or self.gradients.is_released(one.parameter):
                continue
            if one.parameter.requires_grad and one.parameter.grad is None:
                one.parameter.grad = torch.zeros_like(one.parameter)

    def _mixture_names(self) -> list[str]:
        blocks = [f"blocks.{layer}" for layer in range(self.config.layers) if self.config.has_experts(layer)]
        further = range(self.config.mtp_depth)
        return blocks + [f"mtp.{i}.block" for i in further if self.config.has_experts(self.config.layers + i)]

    def _one_by_one(
        self, batches: Sequence[LocalInputs], run: Callable[..., Tensor | TokenLosses], phase: Phase
    ) -> Iterator[TokenLosses]:
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            if self.order is not None:
                self.order.begin(index, len(batches))
            with self._before_backward(0, last, False):
                offload = self.stages[0].offload
                rest = nullcontext() if offload is None else Rest(offload, long=False).saving()
                with phase("forward"), rest:
                    losses = run(self.part, batch, None)
                assert isinstance(losses, TokenLosses)
                with phase("backward"):
                    losses.loss_sum.backward()  # type: ignore[no-untyped-call]
            yield losses._replace(loss_sum=losses.loss_sum.detach())

    @contextmanager
    def _before_backward(self, stage: int, last: bool, later: bool) -> Iterator[None]:
        """Around a backward pass; `later` says that it leaves weight gradients for later."""
        sharding = self.stages[stage].sharding
        if sharding is not None:
            sharding.begin_pass(last, later)
        with self.summed.during(last and not later):
            yield

    def _after_last(self, stage: int) -> None:
        sharding = self.stages[stage].sharding
        if sharding is not None and self.pipeline is not None and self.pipeline.splits:
            sharding.reduce()

    def _forward(
        self, batch: LocalInputs, run: Callable[..., Tensor | TokenLosses] | None = None
    ) -> Tensor | TokenLosses | None:
        """A forward pass that no backward pass follows; its result where the last stage is."""
        run = run or self._run
        if self.pipeline is not None:
            result = self.pipeline.forward(batch, run)
        else:
            result = run(self.part, batch, None)
        for stage in self.stages.values():
            if stage.sharding is not None:
                stage.sharding.free()
        return result

    def _run(
        self,
        part: Decoder,
        batch: LocalInputs,
        hidden: Tensor | None,
        *,
        step: int = 0,
        seed: int = 0,
        loss_scale: float = 1.0,
        autocast: Context = nullcontext,
    ) -> Tensor | TokenLosses:
        for mixture in part.mixtures().values():
            if isinstance(mixture.sequences, SequencesOverRanks):
                mixture.sequences.whole = batch.length
        with autocast():
            result: Tensor | TokenLosses = part(
                batch.tokens,
                batch.targets,
                positions=batch.positions,
                documents=batch.documents,
                samples=batch.samples,
                hidden=hidden,
                places=batch.places,
                future=batch.future,
                step=step,
                seed=seed,
                loss_scale=loss_scale,
                last_only=batch.targets is None,
            )
        return result

    def _local(self, batch: Inputs) -> LocalInputs:
        """This rank's part of the sequences."""
        length = batch.tokens.shape[1]
        future = None
        if self.config.mtp_depth and self.split is not None:
            future = shifted(batch.tokens, batch.targets, batch.documents, self.config.mtp_depth)
        if self.split is None:
            return LocalInputs(*batch, places=None, future=None, length=length)
        cut = self.split.cut
        return LocalInputs(
            tokens=cut(batch.tokens, 1),
            targets=cut(batch.targets, 1),
            positions=cut(batch.positions, 1),
            documents=batch.documents,
            samples=batch.samples,
            places=self.split.places(length, batch.tokens.device),
            future=None if future is None else Future(cut(future.tokens, 2), cut(future.targets, 2)),
            length=length,
        )

    def _show(self, look: Look | None, losses: Sequence[TokenLosses | None], first: int = 0) -> None:
        if look is not None and self.world.coordinate.tp == 0:
            for number, found in enumerate(losses, first):
                if found is not None:
                    look(number, found.token_losses)

    def _own_sums(self, batch: Inputs, losses: TokenLosses | None) -> Tensor:
        sums = torch.zeros(len(batch.tokens), dtype=torch.float64, device=batch.tokens.device)
        if losses is not None and self.world.coordinate.tp == 0:
            sums += losses.token_losses.sum(dim=1, dtype=torch.float64)
        return sums
