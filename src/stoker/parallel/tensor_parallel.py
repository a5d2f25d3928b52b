"""`tp`: each rank holds a part of every large matrix, of the vocabulary, and of the residual stream's tokens.

Attention and feed-forward gather the tokens of all ranks, compute their own heads or inner columns for
them, and sum their outputs while each rank keeps its own tokens again (sequence parallelism,
Korthikanti et al. 2022). What a rank computes between the gather and the sum, and what it computes for
its own tokens alone, are both parts of a whole: gradients of every parameter that is not cut are partial
and add up over the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from stoker.layout.ranks import head_holders, heads_of
from stoker.layout.shares import Bounds, chunk
from stoker.model import Decoder
from stoker.model.attention import Attention
from stoker.model.decoder import Block, Stream
from stoker.model.latent_attention import LatentAttention
from stoker.model.loss import Vocabulary
from stoker.model.mixture_of_experts import MixtureOfExperts
from stoker.parallel.collectives import all_reduce, cut, gather, sum_and_cut, sum_both_ways
from stoker.parallel.placement import Held
from stoker.parallel.world import World


def tensor_parallel(decoder: Decoder, held: dict[str, Held], world: World) -> None:
    """Cut `decoder` down to this rank's part, in place; `held` are its parameters."""
    group = world.along("tp")
    if group is None:
        return
    cutting = _Cutting(held, group)
    decoder.stream = stream = TokensOfRank(group)
    _cut_vocabulary(decoder, cutting)
    for name, block in decoder.named_modules():
        if not isinstance(block, Block):
            continue
        if isinstance(block.attention, LatentAttention):
            _cut_latent_attention(block.attention, f"{name}.attention", cutting, stream)
        else:
            _cut_attention(block.attention, f"{name}.attention", cutting, stream, world)
        if isinstance(block.feed_forward, MixtureOfExperts):
            _cut_mixture(block.feed_forward, f"{name}.feed_forward", cutting, stream, world.layout.expert_tp)
        else:
            _cut_feed_forward(block.feed_forward, f"{name}.feed_forward", cutting, stream)
    _cut_alibi(decoder, world)
    for parameter in held.values():
        placement = parameter.placement
        if not placement.expert and not any(one.group is group for one in placement.cuts):
            parameter.shared_by(group)


class TokensOfRank(Stream):
    """The residual stream holds one rank's part of the tokens."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def own(self, x: Tensor, dim: int) -> Tensor:
        """The part of `x`, whose `dim` runs over all tokens, that belongs to the stream's tokens."""
        return cut(x, dim, self.group)

    def whole(self, x: Tensor, dim: int) -> Tensor:
        """All tokens along `dim`, of an `x` that holds the stream's."""
        return gather(x, dim, self.length, self.group)

    def own_length(self, length: int) -> int:
        """How many of `length` tokens are the stream's."""
        first, last = chunk(length, self.group.size(), self.group.rank())
        return last - first

    def sum_last(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """A hook of modules whose outputs are to be summed, of which each rank keeps its own tokens."""
        return sum_and_cut(output, 1, self.group)

    def gather_first(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A pre-hook of modules that work on the tokens of all ranks."""
        return self.whole(inputs[0], 1), *inputs[1:]


class RowsOfVocabulary(Vocabulary):
    """The output projection has one rank's part of the tokens."""

    def __init__(self, first: int, size: int, group: dist.ProcessGroup) -> None:
        self.first, self._size, self._group = first, size, group

    def rows(self, weight: Tensor) -> int:
        """Rows of the largest part, which must be the same number on all ranks."""
        return -(-self._size // self._group.size())

    def largest(self, x: Tensor) -> Tensor:
        """The largest of all ranks' `x`, elementwise."""
        return all_reduce(x, self._group, "max")

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all ranks' `x`, elementwise."""
        return all_reduce(x, self._group)

    def whole(self, logits: Tensor, size: int) -> Tensor:
        """All `size` logits [..., V]."""
        return gather(logits, logits.ndim - 1, size, self._group)


class RowsOfEmbedding(nn.Module):
    """Looks up one rank's tokens of the vocabulary, and gives the stream its own tokens' vectors."""

    def __init__(self, weight: nn.Parameter, first: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.weight = weight
        self.first, self.group = first, group

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 [B, L] to [B, L / tp, D]."""
        index = tokens - self.first
        here = (index >= 0) & (index < len(self.weight))
        if len(self.weight):
            found = F.embedding(index.where(here, 0), self.weight) * here[..., None]
        else:
            found = self.weight.new_zeros((*tokens.shape, self.weight.shape[1]))
        return sum_and_cut(found, 1, self.group)


class RowParallelLinear(nn.Module):
    """A linear layer whose input columns are divided: sums the ranks' outputs, each keeps its own tokens.

    The bias is added once: to the sum or, where the sum is made elsewhere, by the first rank.
    """

    def __init__(self, linear: nn.Linear, group: dist.ProcessGroup, summed: bool = True) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.group, self.summed = group, summed

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, columns of this rank] to [B, L / tp, D]; to [B, L, D] where not `summed`."""
        return self.finished(F.linear(x, self.weight))

    def finished(self, y: Tensor) -> Tensor:
        """What becomes of this rank's product."""
        if self.summed:
            y = sum_and_cut(y, 1, self.group)
        if self.bias is None or not (self.summed or self.group.rank() == 0):
            return y
        return y + self.bias.to(y.dtype)


class NormOverRanks(nn.Module):
    """RMS norm over features that are divided over ranks; `holders` of them hold the same ones."""

    def __init__(self, norm: nn.RMSNorm, size: int, holders: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps, self.size, self.holders, self.group = norm.eps, size, holders, group

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, features of this rank], the same shape, in the dtype of the weight."""
        x = x.to(self.weight.dtype)
        wide = x.double() if x.dtype == torch.float64 else x.float()
        squares = sum_both_ways(wide.square().sum(dim=-1, keepdim=True) / self.holders, self.group)
        assert self.eps is not None
        return ((wide * torch.rsqrt(squares / self.size + self.eps)) * self.weight).to(x.dtype)


@dataclass(frozen=True)
class _Cutting:
    held: dict[str, Held]
    group: dist.ProcessGroup

    def linear(self, name: str, linear: nn.Linear, dim: int, bounds: Bounds) -> None:
        """Keep some rows (dim 0, with their biases) or columns (dim 1) of a linear layer."""
        self.held[f"{name}.weight"].cut(dim, bounds, self.group)
        if dim == 0 and linear.bias is not None:
            self.held[f"{name}.bias"].cut(0, bounds, self.group)
        linear.out_features, linear.in_features = linear.weight.shape

    def rows_of(self, name: str, linear: nn.Linear, summed: bool = True) -> RowParallelLinear:
        """`linear`, whose columns are cut already, as a layer that sums over ranks."""
        parallel = RowParallelLinear(linear, self.group, summed)
        for attribute in ("weight", "bias"):
            if f"{name}.{attribute}" in self.held:
                self.held[f"{name}.{attribute}"].module = parallel
        return parallel


def _cut_vocabulary(decoder: Decoder, cutting: _Cutting) -> None:
    bounds = chunk(decoder.vocabulary_size, cutting.group.size(), cutting.group.rank())
    for name in ("embedding.weight", "head.weight"):
        if name in cutting.held:
            cutting.held[name].cut(0, bounds, cutting.group)
    if decoder.embedding is not None:
        weight = cutting.held["embedding.weight"].parameter
        decoder.embedding = RowsOfEmbedding(weight, bounds[0], cutting.group)
        cutting.held["embedding.weight"].module = decoder.embedding
    decoder.vocabulary = RowsOfVocabulary(bounds[0], decoder.vocabulary_size, cutting.group)


def _cut_attention(attention: Attention, name: str, cutting: _Cutting, stream: TokensOfRank, world: World) -> None:
    heads, kv_heads, size = attention.heads, attention.kv_heads, attention.head_size
    share = heads_of(world.layout, world.rank, heads, kv_heads)
    holders = world.group(partial(head_holders, world.layout, kv_heads=kv_heads))
    queries, key_values = (_scaled(bounds, size) for bounds in (share.queries, share.key_values))
    cutting.linear(f"{name}.query", attention.query, 0, queries)
    of_holders = [f"{name}.{part}" for part in ("key", "value")]
    cutting.linear(f"{name}.key", attention.key, 0, key_values)
    cutting.linear(f"{name}.value", attention.value, 0, key_values)
    cutting.linear(f"{name}.output", attention.output, 1, queries)
    if attention.qk_norm == "full":
        for part, bounds, whole, held_by in (
            ("query_norm", queries, heads * size, 1),
            ("key_norm", key_values, kv_heads * size, 1 if holders is None else holders.size()),
        ):
            held = cutting.held[f"{name}.{part}.weight"]
            held.cut(0, bounds, cutting.group)
            norm = NormOverRanks(getattr(attention, part), whole, held_by, cutting.group)
            setattr(attention, part, norm)
            held.module = norm
        of_holders.append(f"{name}.key_norm")
    for prefix in of_holders:
        for attribute in ("weight", "bias"):
            if f"{prefix}.{attribute}" in cutting.held:
                cutting.held[f"{prefix}.{attribute}"].shared_by(holders, repeated=True)
    attention.heads, attention.kv_heads = (last - first for first, last in (share.queries, share.key_values))
    if attention.heads == 0:
        attention.attend = _attend_without_heads
    attention.output = cutting.rows_of(f"{name}.output", attention.output)  # type: ignore[assignment]
    attention.register_forward_pre_hook(stream.gather_first)


def _cut_latent_attention(attention: LatentAttention, name: str, cutting: _Cutting, stream: TokensOfRank) -> None:
    """Heads are divided; every rank computes the latents of all tokens, whose gradients are then partial."""
    bounds = chunk(attention.heads, cutting.group.size(), cutting.group.rank())
    query = "query_up" if attention.has_query_latent else "query"
    query_size = attention.nope_size + attention.rope_size
    cutting.linear(f"{name}.{query}", getattr(attention, query), 0, _scaled(bounds, query_size))
    kv_size = attention.nope_size + attention.value_size
    cutting.linear(f"{name}.kv_up", attention.kv_up, 0, _scaled(bounds, kv_size))
    cutting.linear(f"{name}.output", attention.output, 1, _scaled(bounds, attention.value_size))
    attention.heads = bounds[1] - bounds[0]
    if attention.heads == 0:
        attention.attend = _attend_without_heads
    attention.output = cutting.rows_of(f"{name}.output", attention.output)  # type: ignore[assignment]
    attention.register_forward_pre_hook(stream.gather_first)


def _cut_feed_forward(
    feed_forward: nn.Module, name: str, cutting: _Cutting, stream: TokensOfRank, inside: bool = False
) -> None:
    """`inside` says that what it stands in gathers the tokens and sums the outputs."""
    down = feed_forward.down
    assert isinstance(down, nn.Linear)
    bounds = chunk(down.in_features, cutting.group.size(), cutting.group.rank())
    for part in ("gate", "up"):
        if isinstance(linear := getattr(feed_forward, part, None), nn.Linear):
            cutting.linear(f"{name}.{part}", linear, 0, bounds)
    cutting.linear(f"{name}.down", down, 1, bounds)
    feed_forward.down = cutting.rows_of(f"{name}.down", down, summed=not inside)
    if not inside:
        feed_forward.register_forward_pre_hook(stream.gather_first)


def _cut_mixture(
    mixture: MixtureOfExperts, name: str, cutting: _Cutting, stream: TokensOfRank, each_expert: bool
) -> None:
    """Cut `each_expert`, and then work on the tokens of all ranks; otherwise experts are whole, and each rank
    sends them its own tokens."""
    if each_expert:
        for part, dim in (("gate", 1), ("up", 1), ("down", 2)):
            held = cutting.held[f"{name}.experts.{part}"]
            held.cut(dim, chunk(held.shape[dim], cutting.group.size(), cutting.group.rank()), cutting.group)
        mixture.register_forward_pre_hook(stream.gather_first)
        mixture.register_forward_hook(stream.sum_last)
    if mixture.shared is not None:
        _cut_feed_forward(mixture.shared, f"{name}.shared", cutting, stream, inside=each_expert)


def _cut_alibi(decoder: Decoder, world: World) -> None:
    slopes = decoder.mask_rule.alibi_slopes
    if slopes is not None:
        share = heads_of(world.layout, world.rank, decoder.config.heads, decoder.config.key_value_heads)
        decoder.mask_rule = replace(decoder.mask_rule, alibi_slopes=slopes[slice(*share.queries)])


def _scaled(bounds: Bounds, size: int) -> Bounds:
    return bounds[0] * size, bounds[1] * size


def _attend_without_heads(q: Tensor, k: Tensor, v: Tensor, mask: object, softcap: float | None) -> Tensor:
    """What is left of attention on a rank without query heads."""
    return q[..., : v.shape[-1]]
