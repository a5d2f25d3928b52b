"""The one door through which a layout reaches a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from stoker.layout.ranks import expert_sizes
from stoker.model import Decoder, TokenLosses
from stoker.parallel.compilation import compile_block
from stoker.parallel.gradients import Gradients
from stoker.parallel.placement import Held, hold, initialise_part
from stoker.parallel.replicate import PartialGradients, SummedGradients
from stoker.parallel.shard import Sharding, shard
from stoker.parallel.tensor_parallel import tensor_parallel
from stoker.parallel.world import World

Context = Callable[[], AbstractContextManager[object]]


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


@dataclass(frozen=True)
class Settings:
    """How a layout is applied, besides the layout itself."""

    compile_blocks: bool = False
    reduce: torch.dtype | None = None
    """Type gradients are summed in; by default their own."""
    seed: int = 0
    """Of the initial values, when the model has none yet."""


@dataclass
class ParallelModel:
    """This rank's part of a model laid out over ranks."""

    part: Decoder
    held: list[Held]
    world: World
    gradients: Gradients
    _summed: SummedGradients
    _partial: PartialGradients
    _sharding: Sharding | None

    def forward_backward(
        self,
        batches: Sequence[Inputs],
        *,
        step: int,
        seed: int,
        loss_scale: float,
        autocast: Context = nullcontext,
        phase: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext(),
    ) -> list[Tensor]:
        """Gradients of the sum of the micro-batches' losses times `loss_scale`, complete on every rank.

        Returns for each micro-batch float64 [B]: the sum of each sample's cross-entropy over the tokens this
        rank answers for. Summed over all ranks they are those of all tokens. Collective. `phase` is entered
        around what is named `forward`, `backward` and `communication`.
        """
        sums = []
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            if self._sharding is not None:
                self._sharding.begin_pass(last)
            with phase("forward"), autocast():
                losses = self.losses(batch, step=step, seed=seed, loss_scale=loss_scale)
            with phase("backward"), self._summed.during(last):
                losses.loss_sum.backward()  # type: ignore[no-untyped-call]
            sums.append(self._own_sums(losses))
        with phase("communication"):
            self._summed.finish()
            self._partial.finish()
        return sums

    def losses(self, batch: Inputs, *, step: int = 0, seed: int = 0, loss_scale: float = 1.0) -> TokenLosses:
        """The forward pass of one micro-batch. Collective."""
        losses = self.part(
            batch.tokens,
            batch.targets,
            positions=batch.positions,
            documents=batch.documents,
            samples=batch.samples,
            step=step,
            seed=seed,
            loss_scale=loss_scale,
        )
        assert isinstance(losses, TokenLosses)
        return losses

    @torch.no_grad()
    def evaluate(self, batch: Inputs) -> Tensor:
        """float64 [B]: each sample's summed cross-entropy over the tokens this rank answers for. Collective."""
        sums = self._own_sums(self.losses(batch))
        self._free()
        return sums

    @torch.no_grad()
    def last_logits(self, tokens: Tensor) -> Tensor:
        """Logits [B, V] of the token after `tokens` [B, L], on every rank. Collective."""
        logits = self.part(tokens, last_only=True)
        assert isinstance(logits, Tensor)
        self._free()
        # Drawing from them must not come out differently on any rank.
        logits = logits[:, -1].contiguous()
        return self.world.sum(logits if self.world.is_first else torch.zeros_like(logits))

    @property
    def counts(self) -> bool:
        """Whether this rank is the one that counts what there is in its part of the batch."""
        at = self.world.coordinate
        return at.tp == at.cp == at.pp == 0

    @property
    def answers(self) -> bool:
        """Whether this rank is the one of its tensor-parallel group that answers for their tokens."""
        return self.world.coordinate.tp == 0

    def train(self, mode: bool = True) -> None:
        """Switch dropout and LayerDrop on or off."""
        self.part.train(mode)

    def _free(self) -> None:
        """Let go of weights gathered by a forward pass that no backward pass follows."""
        if self._sharding is not None:
            self._sharding.free()

    def _own_sums(self, losses: TokenLosses) -> Tensor:
        sums = losses.token_losses.sum(dim=1, dtype=torch.float64)
        return sums if self.answers else torch.zeros_like(sums)


def apply(model: Decoder, world: World, settings: Settings = Settings()) -> ParallelModel:
    """Lay `model` out as `world.layout` says, in place. Parameters keep their names.

    `model` has its values already, the same on every rank, or is on `meta` and gets its initial values now:
    no rank ever holds more than its own part.
    """
    names = [name for name, _ in model.named_parameters()]
    layout = world.layout
    held = hold(model)
    tensor_parallel(model, held, world)
    blocks = list(model.blocks.values())
    if settings.compile_blocks:
        for block in blocks:
            compile_block(block)
    sharding = shard(model, blocks, world, settings.reduce)
    ours = list(held.values())
    if next(model.parameters()).is_meta:
        model.to_empty(device=world.device)
        for one in ours:
            initialise_part(one, model.config, settings.seed)
    for one in ours:
        one.copies = expert_sizes(layout).replicate if one.placement.expert else layout.replicate_size
    return ParallelModel(
        part=model,
        held=ours,
        world=world,
        gradients=Gradients(names, ours, world),
        _summed=_summed(ours, world, settings),
        _partial=PartialGradients((one.parameter, group) for one in ours for group in one.placement.partial),
        _sharding=sharding,
    )


def _summed(held: list[Held], world: World, settings: Settings) -> SummedGradients:
    """Sums over ranks that see other tokens, of what FSDP does not sum."""
    dense = world.replicas if world.sharding_mesh() is None else None
    experts = None
    if any(one.placement.expert for one in held) and world.sharding_mesh(experts=True) is None:
        experts = world.among_experts("replicate")
    pairs = []
    for one in held:
        group = experts if one.placement.expert else dense
        if group is not None:
            pairs.append((one.parameter, group))
    return SummedGradients(pairs, world.layout.gradient_bucket_mib * 2**20, settings.reduce)
