"""`ep`: each rank holds some of the experts, and rows travel to where their experts are and back.

Experts see the tokens of all ranks of their group, so that what other ranks along the data-parallel
dimensions are for other parameters, the ranks that hold the same experts are for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.layout.shares import chunk
from stoker.model import Decoder
from stoker.model.decoder import Stream
from stoker.model.experts import Experts
from stoker.model.router import WholeSequences
from stoker.parallel.collectives import all_reduce, exchange
from stoker.parallel.context_parallel import SequenceSplit
from stoker.parallel.placement import Held
from stoker.parallel.waiting import waiting
from stoker.parallel.world import World


def expert_parallel(decoder: Decoder, held: dict[str, Held], world: World) -> None:
    """Leave this rank its own experts, in place; to be called before tensor parallelism cuts each of them."""
    group = world.among_experts("ep")
    for name, mixture in decoder.mixtures().items():
        for part in ("gate", "up", "down"):
            one = held[f"{name}.feed_forward.experts.{part}"]
            one.placement = replace(one.placement, expert=True)
            if group is not None:
                one.cut(0, chunk(one.shape[0], group.size(), group.rank()), group)
        if group is not None:
            mixture.dispatch = ToTheirExperts(group)


@dataclass(frozen=True)
class ToTheirExperts:
    """Takes the place of `stoker.model.mixture_of_experts.compute_here`. No row is dropped."""

    group: dist.ProcessGroup

    def __call__(self, experts: Experts, rows_ND: Tensor, counts_E: Tensor) -> Tensor:
        """[N, D]: the results of this rank's rows; computes those of all ranks' rows for its own experts."""
        ranks = self.group.size()
        sent = counts_E.view(ranks, -1)
        received = torch.empty_like(sent)
        with waiting("layers"):
            dist.all_to_all_single(received, sent.contiguous(), group=self.group)
        # The one place where the host waits for the router: torch wants the sizes of an exchange as numbers.
        sizes_out, sizes_in = torch.stack([sent.sum(dim=1), received.sum(dim=1)]).tolist()
        rows = exchange(rows_ND, sizes_out, sizes_in, self.group)
        # They come by rank, then by expert, and are computed by expert.
        own = torch.arange(received.shape[1], device=received.device).repeat(ranks)
        order = own.repeat_interleave(received.flatten()).argsort(stable=True)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        results = _permuted(experts(_permuted(rows, order, back), received.sum(dim=0)), back, order)
        return exchange(results, sizes_in, sizes_out, self.group)


class SequencesOverRanks(WholeSequences):
    """The tokens of a sequence are spread over context-parallel ranks, tensor-parallel ranks, or both."""

    def __init__(
        self, split: SequenceSplit | None, stream: Stream | None, group: dist.ProcessGroup | None, alike: int
    ) -> None:
        """`stream` says which of a context-parallel part's tokens a router sees, None: all of them.

        `group` are all ranks with tokens of the same sequences, of which `alike` see the same ones.
        """
        self.whole = 0
        """Tokens of the whole sequences of the forward pass that goes on."""
        self._split, self._stream, self._group, self._alike = split, stream, group, alike

    @property
    def share(self) -> float:
        """This rank's part of a loss that `alike` ranks compute of the same tokens."""
        return 1.0 / self._alike

    def length(self, at_hand: int) -> int:
        """Tokens of a whole sequence."""
        return self.whole

    def gather_choices(self, chosen_BLK: Tensor) -> Tensor:
        """The choices of all tokens of the sequences, in order of place."""
        if self._stream is not None:
            chosen_BLK = self._stream.whole(chosen_BLK, 1)
        return chosen_BLK if self._split is None else self._split.gather(chosen_BLK, 1, self.whole)

    def own(self, x_BLK: Tensor) -> Tensor:
        """Of an `x` in the order of `gather_choices`, the tokens at hand."""
        if self._split is not None:
            x_BLK = self._split.cut(x_BLK, 1)
        return x_BLK if self._stream is None else self._stream.own(x_BLK, 1)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over all that have tokens of the same sequences."""
        return all_reduce(x, self._group)


def _permuted(rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
    return _Permute.apply(rows, order, back)  # type: ignore[no-any-return, no-untyped-call]


class _Permute(torch.autograd.Function):
    """Rows in another order. Backward puts them back, in which nothing needs to be added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return rows[order]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.back], None, None
