"""Ring attention (Liu et al. 2023): keys and values pass from rank to rank, each of which attends to them.

One custom operator each way: a compiled block holds it as one call. Backward sends keys and values round
again, and with them the gradients that ranks add to on the way; no rank keeps what belongs to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.layout.shares import Bounds
from stoker.parallel import collectives
from stoker.parallel.context_parallel.blockwise import Logits, Mixed, add_gradients, add_keys, nothing_mixed
from stoker.parallel.context_parallel.local import finished, heads_first, outcome_like
from stoker.parallel.context_parallel.masks import PartMask
from stoker.parallel.context_parallel.pieces import Piece, document_starts, find_pieces
from stoker.parallel.context_parallel.split import own_length, own_ranges


def ring_attention(
    q_BLHK: Tensor, k_BLGK: Tensor, v_BLGV: Tensor, mask: PartMask, softcap: float | None, group: dist.ProcessGroup
) -> Tensor:
    """[B, L, H, V]: of this rank's queries to the keys and values of all ranks of `group`."""
    ring = (mask.length, group.size(), group.rank(), group.group_name)
    return _ring(q_BLHK, k_BLGK, v_BLGV, mask.starts, *mask.logits(softcap), *ring)[0]  # type: ignore[no-any-return]


class _Ring(NamedTuple):
    """Where this rank stands, and what each has."""

    length: int
    ranks: int
    rank: int
    group: str

    def ranges(self, rank: int) -> tuple[Bounds, ...]:
        """The places that `rank` holds."""
        return own_ranges(self.length, self.ranks, rank)

    def source(self, step: int) -> int:
        """Whose keys and values are here at `step`."""
        return (self.rank - step) % self.ranks

    def steps(self, starts: Tensor | None, window: int | None) -> Iterator[tuple[int, tuple[Piece, ...]]]:
        """Each step with the work there is for it."""
        own, documents = self.ranges(self.rank), document_starts(starts)
        for step in range(self.ranks):
            yield step, find_pieces(own, self.ranges(self.source(step)), documents, window)

    def tokens(self, step: int) -> int:
        """How many tokens' keys and values are here at `step`."""
        return own_length(self.length, self.ranks, self.source(step))

    def send_on(self, x_BLGW: Tensor, step: int) -> Tensor:
        """Begin to send on what is here at `step`; to be given to `receive`."""
        B, _, G, W = x_BLGW.shape
        send, receive = [0] * self.ranks, [0] * self.ranks
        send[(self.rank + 1) % self.ranks] = x_BLGW.numel()
        receive[(self.rank - 1) % self.ranks] = B * self.tokens(step + 1) * G * W
        return collectives.start_exchange(x_BLGW.reshape(-1), send, receive, self.group)

    def receive(self, flat: Tensor, like_BLGW: Tensor, step: int) -> Tensor:
        """What is here at `step`, sent by the rank before at the step before."""
        B, _, G, W = like_BLGW.shape
        return collectives.arrived(flat).view(B, self.tokens(step), G, W)


@torch.library.custom_op("stoker::ring_attention", mutates_args=())
def _ring(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
    length: int,
    ranks: int,
    rank: int,
    group: str,
) -> tuple[Tensor, Tensor]:
    if q.shape[2] == 0:  # on all ranks alike
        return outcome_like(q, v)
    ring, logits = _Ring(length, ranks, rank, group), Logits(window, slopes, softcap)
    with torch.autocast(q.device.type, enabled=False):
        mixed = nothing_mixed(q.transpose(1, 2), v.shape[-1])
        width, kv = k.shape[-1], torch.cat((k, v), dim=-1)
        for step, pieces in ring.steps(starts, window):
            coming = ring.send_on(kv, step) if step < ranks - 1 else None
            add_keys(mixed, heads_first(q, kv[..., :width], kv[..., width:]), pieces, logits)
            kv = kv if coming is None else ring.receive(coming, kv, step + 1)
        return finished(mixed, q.dtype)


@_ring.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
    length: int,
    ranks: int,
    rank: int,
    group: str,
) -> tuple[Tensor, Tensor]:
    return outcome_like(q, v)


@torch.library.custom_op("stoker::ring_attention_backward", mutates_args=())
def _ring_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    starts: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
    length: int,
    ranks: int,
    rank: int,
    group: str,
) -> tuple[Tensor, Tensor, Tensor]:
    if q.shape[2] == 0:
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    ring, logits = _Ring(length, ranks, rank, group), Logits(window, slopes, softcap)
    with torch.autocast(q.device.type, enabled=False):
        by_q = torch.zeros(q.shape, dtype=log_sums.dtype, device=q.device)
        width, kv = k.shape[-1], torch.cat((k, v), dim=-1)
        gradient, outcome = gradient.transpose(1, 2), Mixed(mixed.transpose(1, 2), log_sums)
        own = by_q.new_zeros(kv.shape)
        before: Tensor | None = None
        for step, pieces in ring.steps(starts, window):
            coming = ring.send_on(kv, step) if step < ranks - 1 else None
            by_kv = own if step == 0 else by_q.new_zeros(kv.shape)
            into = heads_first(by_q, by_kv[..., :width], by_kv[..., width:])
            qkv = heads_first(q, kv[..., :width], kv[..., width:])
            add_gradients(into, gradient, qkv, outcome, pieces, logits)
            if before is not None:  # what the ranks before, which had these keys, have made of them
                by_kv += ring.receive(before, kv, step)
            if step:  # what a rank makes of its own keys stays; the rest comes home to it
                before = ring.send_on(by_kv, step)
            kv = kv if coming is None else ring.receive(coming, kv, step + 1)
        if before is not None:
            own += ring.receive(before, own, ranks)
        by_kv = own.to(kv.dtype)
        return by_q.to(q.dtype), _copied(by_kv[..., :width]), _copied(by_kv[..., width:])


@_ring_backward.register_fake
def _(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sums: Tensor,
    starts: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    softcap: float | None,
    length: int,
    ranks: int,
    rank: int,
    group: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts, ctx.window, slopes, ctx.softcap, *ctx.ring = inputs
    ctx.save_for_backward(q, k, v, *output, starts, slopes)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *kept, starts, slopes = ctx.saved_tensors
    gradients = _ring_backward(gradient, *kept, starts, ctx.window, slopes, ctx.softcap, *ctx.ring)
    return (*gradients, *[None] * 8)


_ring.register_autograd(_differentiate, setup_context=_keep)


def _copied(x: Tensor) -> Tensor:
    """A custom operator's results may not share memory, even where they are empty."""
    return x.clone(memory_format=torch.contiguous_format)
