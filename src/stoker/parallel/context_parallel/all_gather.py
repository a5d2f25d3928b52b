"""Each rank gathers all keys and values and attends to them with its own queries (as Llama 3, section 3.3.2).

Backward sums the gradients of keys and values over ranks and leaves each its own part.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.model.attention import attend
from stoker.parallel.context_parallel.local import attend_to_all
from stoker.parallel.context_parallel.masks import PartMask
from stoker.parallel.context_parallel.split import SequenceSplit, own_ranges


def all_gather_attention(
    q_BLHK: Tensor, k_BLGK: Tensor, v_BLGV: Tensor, mask: PartMask, softcap: float | None, group: dist.ProcessGroup
) -> Tensor:
    """[B, L, H, V]: of this rank's queries to the keys and values of all ranks of `group`."""
    kv = SequenceSplit(group).gather(torch.cat((k_BLGK, v_BLGV), dim=-1), 1, mask.length)
    k, v = torch.split(kv, [k_BLGK.shape[-1], v_BLGV.shape[-1]], dim=-1)
    if mask.blocks is not None and q_BLHK.numel():
        return attend(q_BLHK, k, v, mask.blocks, softcap)
    return attend_to_all(q_BLHK, k, v, own_ranges(mask.length, group.size(), group.rank()), mask, softcap)
