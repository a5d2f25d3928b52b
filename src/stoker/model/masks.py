"""Which tokens a token may attend to, as one value built once per forward pass and shared by all blocks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from stoker.model.position import alibi_slopes


class PackedDocuments(NamedTuple):
    """Causal within each document: `starts` bool [B, L] marks the first token of each."""

    starts: Tensor


AttentionMask = Tensor | PackedDocuments | BlockMask | None
"""None: plain causal. A tensor [B or 1, H or 1, L, L] is added to the attention logits.
A `BlockMask` names the pairs for flex_attention."""


def attention_mask(
    documents: Tensor | None,
    length: int,
    window: int | None,
    alibi_heads: int | None,
    softcap: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> AttentionMask:
    """The mask of one forward pass, in the form that costs least.

    `documents` [B, L] numbers the document of each token, each a run of neighbours (None: each
    sequence is one document); `window` tokens are seen, the token itself included; `alibi_heads`
    asks for ALiBi's bias; `softcap` says that the logits must be at hand to be capped.
    """
    if window is not None and window >= length:
        window = None
    if documents is not None and bool((documents == documents[:, :1]).all()):
        documents = None
    if documents is None and window is None and alibi_heads is None:
        return None
    if alibi_heads is None and flex_attention_works_on(device):
        return block_mask(documents, length, window, device)
    if documents is not None and window is None and alibi_heads is None and not softcap and device.type == "cpu":
        return packed_documents(documents)
    return dense_mask(documents, length, window, alibi_heads, device, dtype)


def packed_documents(documents: Tensor) -> PackedDocuments:
    """The mask for `document_attention`."""
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return PackedDocuments(starts)


def dense_mask(
    documents: Tensor | None,
    length: int,
    window: int | None,
    alibi_heads: int | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """The mask as a tensor [B or 1, H or 1, L, L]: 0 or ALiBi's bias where a token may look, -inf elsewhere."""
    places = torch.arange(length, device=device)
    distance = places[:, None] - places[None, :]
    allowed = (distance >= 0)[None]
    if window is not None:
        allowed = allowed & (distance < window)
    if documents is not None:
        allowed = allowed & (documents[:, :, None] == documents[:, None, :])
    bias = torch.zeros((), device=device, dtype=dtype)
    if alibi_heads is not None:
        slopes = torch.tensor(alibi_slopes(alibi_heads), device=device, dtype=dtype)
        bias = -slopes[None, :, None, None] * distance
    return torch.where(allowed[:, None], bias, float("-inf")).to(dtype)


def block_mask(documents: Tensor | None, length: int, window: int | None, device: torch.device) -> BlockMask:
    """The same for flex_attention, which skips blocks that nobody may look at."""

    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        may = query >= key
        if window is not None:
            may = may & (query - key < window)
        if documents is not None:
            may = may & (documents[batch, query] == documents[batch, key])
        return may

    batch = None if documents is None else len(documents)
    return create_block_mask(allowed, B=batch, H=None, Q_LEN=length, KV_LEN=length, device=str(device))


def flex_attention_works_on(device: torch.device) -> bool:
    """Whether flex_attention has forward and backward kernels on `device`; on processors it has no backward."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
