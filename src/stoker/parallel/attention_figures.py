"""How large attention's logits are and how evenly it looks, from a sample of queries and all keys they may see."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from stoker.model.masks import PackedDocuments
from stoker.parallel.context_parallel import SequenceSplit
from stoker.parallel.context_parallel.masks import PartMask

SEQUENCES, QUERIES = 2, 32
"""At most so many sequences of a micro-batch, and so many places of each, evenly spaced, the last one included."""
_MOST_LOGITS = 2**22
"""At a time: where sequences are so long that a row of all heads is large, fewer places are looked at."""


class Figures(NamedTuple):
    """Of a sample of queries: scalars on the device."""

    largest: Tensor
    """The largest logit before softmax and before any cap, ALiBi's bias included."""
    entropy: Tensor
    """Sum over queries and heads of the entropy over that of the uniform distribution: 0 to 1 each."""
    queries: Tensor
    """How many those were: queries that see at least two tokens, times heads."""


def attention_figures(
    q_BLHK: Tensor, k_BLGK: Tensor, mask: object, softcap: float | None, split: SequenceSplit | None
) -> Figures | None:
    """Figures of this rank's queries and heads; None where it has none. Collective over `split`.

    Arguments as `stoker.model.attention.attend` gets them.
    """
    if not q_BLHK.shape[2]:  # alike on all ranks of `split`
        return None
    length = mask.length if isinstance(mask, PartMask) else q_BLHK.shape[1]
    places = sampled_places(length, q_BLHK.shape[2]).to(q_BLHK.device)
    k_BLGK = k_BLGK[:SEQUENCES]
    rows = places
    if split is not None:
        k_BLGK = split.gather(k_BLGK, 1, length)
        own = split.places(length, q_BLHK.device).own
        rows = torch.isin(own, places).nonzero().flatten()
        places = own[rows]
    if not len(rows):
        return None
    found = [
        _of_sequence(q_BLHK[at, rows], k_BLGK[at], _bias(mask, at, places, length, q_BLHK.device), softcap)
        for at in range(len(k_BLGK))
    ]
    largest, entropy, count = (torch.stack(column) for column in zip(*found, strict=True))
    return Figures(largest.max(), entropy.sum(), count.sum())


def sampled_places(length: int, heads: int) -> Tensor:
    """int64: which places of a sequence are looked at."""
    count = min(length, QUERIES, max(1, _MOST_LOGITS // (length * max(heads, 1))))
    return (torch.arange(1, count + 1) * length) // count - 1


def _of_sequence(q_RHK: Tensor, k_LGK: Tensor, bias_HRL: Tensor, softcap: float | None) -> Figures:
    R, H, K = q_RHK.shape
    L, G, _ = k_LGK.shape
    if q_RHK.device.type == "cpu" and q_RHK.dtype.itemsize < 4:  # processors multiply 16-bit numbers slowly
        q_RHK, k_LGK = q_RHK.float(), k_LGK.float()
    by_key_head = q_RHK.view(R, G, H // G, K).permute(1, 2, 0, 3).reshape(G, -1, K)
    logits = (by_key_head @ k_LGK.permute(1, 2, 0)).view(H, R, L)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) * K**-0.5
    seen = logits if softcap is None else torch.tanh(logits / softcap) * softcap
    log_shares = torch.log_softmax(seen + bias_HRL, dim=-1)
    allowed = bias_HRL > -torch.inf
    entropy = -(log_shares.exp() * log_shares.where(allowed, 0.0)).sum(dim=-1)
    sees = allowed.sum(dim=-1).expand(H, R)
    share = (entropy / sees.clamp(min=2).log()).where(sees > 1, 0.0)
    return Figures((logits + bias_HRL).max(), share.sum(dtype=torch.float64), (sees > 1).sum())


def _bias(mask: object, at: int, places: Tensor, length: int, device: torch.device) -> Tensor:
    """What is added to the logits of sequence `at`, -inf where a query may not look: [H or 1, places, length]."""
    keys = torch.arange(length, device=device)
    if isinstance(mask, Tensor):
        return mask[min(at, len(mask) - 1)][:, places].to(torch.promote_types(mask.dtype, torch.float32))
    if isinstance(mask, BlockMask):
        numbers = torch.zeros((), dtype=torch.int64, device=device)
        allowed = mask.mask_mod(numbers + at, numbers, places[:, None], keys[None])
        return torch.zeros(allowed.shape, device=device).masked_fill(~allowed, -torch.inf)[None]
    starts, window, slopes = None, None, None
    if isinstance(mask, PackedDocuments):
        starts = mask.starts
    elif isinstance(mask, PartMask):
        starts, window, slopes = mask.starts, mask.window, mask.slopes
    documents = None if starts is None else starts[at : at + 1].to(device).cumsum(dim=1)
    distance = places[:, None] - keys[None]
    allowed = distance >= 0
    if window is not None:
        allowed = allowed & (distance < window)
    if documents is not None:
        allowed = allowed & (documents[0, places][:, None] == documents[0][None])
    bias = torch.zeros((), device=device)
    if slopes is not None:
        bias = -slopes[:, None, None].float() * distance
    return torch.where(allowed, bias, -torch.inf).reshape(-1, len(places), length)
