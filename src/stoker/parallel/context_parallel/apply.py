"""Lays a decoder's attention over ranks that each hold a part of every sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch.distributed as dist
from torch import Tensor

from stoker.layout import ContextParallelMethod
from stoker.model.decoder import Decoder
from stoker.model.masks import MaskRule
from stoker.parallel.context_parallel.all_gather import all_gather_attention
from stoker.parallel.context_parallel.masks import PartMask, PartMaskRule
from stoker.parallel.context_parallel.ring import ring_attention
from stoker.parallel.context_parallel.split import SequenceSplit
from stoker.parallel.context_parallel.ulysses import ulysses_attention

Method = Callable[[Tensor, Tensor, Tensor, PartMask, float | None, dist.ProcessGroup], Tensor]
"""As `stoker.model.attention.attend`, for the tokens of this rank of the group."""

METHODS: dict[ContextParallelMethod, Method] = {
    "ring": ring_attention,
    "all_gather": all_gather_attention,
    "ulysses": ulysses_attention,
}


@dataclass(frozen=True)
class PartAttention:
    """Takes the place of `stoker.model.attention.attend`."""

    method: ContextParallelMethod
    group: dist.ProcessGroup

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: PartMask, softcap: float | None) -> Tensor:
        """[B, L, H, V], of this rank's tokens."""
        return METHODS[self.method](q, k, v, mask, softcap, self.group)


def context_parallel(decoder: Decoder, group: dist.ProcessGroup, method: ContextParallelMethod) -> SequenceSplit:
    """Let `decoder` work on this rank's part of each sequence; attention reaches the others by `method`.

    From then on tokens, targets and positions are those of the part, `places` says which it is, and
    `documents` are still those of whole sequences. To be called after heads are divided over ranks.
    """
    of_model = {field.name: getattr(decoder.mask_rule, field.name) for field in fields(MaskRule)}
    decoder.mask_rule = PartMaskRule(**of_model, method=method, ranks=group.size(), rank=group.rank())
    for module in decoder.modules():
        if hasattr(module, "attend"):
            setattr(module, "attend", PartAttention(method, group))  # noqa: B010  # modules are typed as tensors
    return SequenceSplit(group)
