"""Attention drawn at random, and how one process computes it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from stoker.layout import ContextParallelMethod
from stoker.model.attention import attend
from stoker.model.masks import MaskRule, dense_mask
from stoker.model.position import alibi_slopes
from stoker.parallel.context_parallel import SequenceSplit, blockwise
from stoker.parallel.context_parallel.apply import METHODS
from stoker.parallel.context_parallel.masks import PartMask, PartMaskRule

ALL_METHODS: list[ContextParallelMethod] = ["ring", "all_gather", "ulysses"]


@dataclass(frozen=True)
class Case:
    length: int
    batch: int
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    window: int | None
    alibi: bool
    softcap: float | None
    packed: bool
    tile: int
    """Queries worked on at once, where that matters."""
    dtype: torch.dtype
    seed: int

    @property
    def rule(self) -> MaskRule:
        slopes = tuple(alibi_slopes(self.heads)) if self.alibi and self.heads else None
        return MaskRule(self.window, slopes, self.softcap is not None)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys, values and the gradient of the outcome, of whole sequences."""
        generator = torch.Generator().manual_seed(self.seed)
        shapes = [(self.heads, self.key_size), (self.kv_heads, self.key_size)]
        shapes += [(self.kv_heads, self.value_size), (self.heads, self.value_size)]
        q, k, v, gradient = (
            torch.randn(self.batch, self.length, *shape, generator=generator, dtype=torch.float64).to(self.dtype)
            for shape in shapes
        )
        return q, k, v, gradient

    def documents(self) -> Tensor | None:
        if not self.packed:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        often = 2.0 / self.length if self.seed % 2 else 0.4
        return (torch.rand(self.batch, self.length, generator=generator) < often).int().cumsum(1)


def draw_case(seed: int, dtype: torch.dtype, **fixed: object) -> Case:
    draw = random.Random(seed)
    kv_heads = draw.choice([1, 1, 2, 3, 4])
    heads = kv_heads * draw.choice([1, 1, 2, 3]) if draw.random() > 0.05 else 0
    key_size = draw.choice([4, 6, 8])
    drawn = {
        "length": draw.choice([1, 2, 3, 5, 7, 11, 12, 16, 23, 32, 33]),
        "batch": draw.choice([1, 2]),
        "heads": heads,
        "kv_heads": kv_heads,
        "key_size": key_size,
        "value_size": draw.choice([key_size, key_size, 2, 9]),
        "window": draw.choice([None, None, 1, 3, 6, 17]),
        "alibi": draw.random() < 0.3,
        "softcap": draw.choice([None, None, 1.5]),
        "packed": draw.random() < 0.5,
        "tile": draw.choice([2, 5, 512]),
    }
    return Case(**{**drawn, **fixed}, dtype=dtype, seed=seed)  # type: ignore[arg-type]


def alone(case: Case) -> list[Tensor]:
    """The outcome and the gradients of q, k and v on one process; bf16 as fp64 would have them."""
    precise = torch.float64 if case.dtype == torch.bfloat16 else case.dtype
    q, k, v, gradient = (x.to(precise).requires_grad_() for x in case.tensors())
    if case.heads == 0:
        return [gradient.detach(), *(torch.zeros_like(x) for x in (q, k, v))]
    rule = case.rule
    mask = dense_mask(case.documents(), case.length, rule.window, rule.alibi_slopes, q.device, precise)
    wider = max(case.value_size - case.key_size, 0)  # `attend` has no values wider than keys
    with torch.autocast("cpu", enabled=False):
        scaled = q * (1 + wider / case.key_size) ** 0.5
        outcome = attend(F.pad(scaled, (0, wider)), F.pad(k, (0, wider)), v, mask, case.softcap)
        return [outcome.detach(), *torch.autograd.grad(outcome, (q, k, v), gradient)]


def part_mask(case: Case, method: ContextParallelMethod, group: dist.ProcessGroup) -> PartMask:
    split, rule = SequenceSplit(group), case.rule
    parts = PartMaskRule(
        rule.window, rule.alibi_slopes, rule.softcap, method=method, ranks=group.size(), rank=group.rank()
    )
    device = torch.device("cpu")
    own = split.sizes(case.length)[group.rank()]
    return parts.build(case.documents(), split.places(case.length, device), own, device, case.dtype)


def in_parts(case: Case, method: ContextParallelMethod, group: dist.ProcessGroup) -> list[Tensor]:
    """This rank's part of the same."""
    split = SequenceSplit(group)
    q, k, v, gradient = (split.cut(x, 1).requires_grad_() for x in case.tensors())
    mask = part_mask(case, method, group)
    with _tiles_of(case.tile):
        outcome = METHODS[method](q, k, v, mask, case.softcap, group)
        return [outcome.detach(), *torch.autograd.grad(outcome, (q, k, v), gradient)]


def error(case: Case, method: ContextParallelMethod, group: dist.ProcessGroup) -> float:
    """The largest relative error (Frobenius) of outcome and gradients in this rank's part.

    Where a gradient is naught but for rounding, as when each query sees one key, the error is relative to
    a tenth of the largest of them.
    """
    split, errors, wholes = SequenceSplit(group), [0.0], alone(case)
    smallest = 0.1 * max(float(whole.norm()) for whole in wholes)
    for own, whole in zip(in_parts(case, method, group), wholes, strict=True):
        assert own.dtype == case.dtype
        expected = split.cut(whole, 1)
        assert own.shape == expected.shape
        if own.numel():
            difference = float((own.to(whole.dtype) - expected).norm())
            errors.append(difference / max(float(whole.norm()), smallest) if difference else 0.0)
    return max(errors)


@contextmanager
def _tiles_of(queries: int) -> Iterator[None]:
    before = blockwise._TILE_QUERIES
    blockwise._TILE_QUERIES = queries
    try:
        yield
    finally:
        blockwise._TILE_QUERIES = before
