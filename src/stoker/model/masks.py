"""Which tokens a token may attend to, as one value built once per forward pass and shared by all blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from stoker.model.position import Places


class PackedDocuments(NamedTuple):
    """Causal within each document: `starts` bool [B, L] marks the first token of each."""

    starts: Tensor


AttentionMask = Tensor | PackedDocuments | BlockMask | None
"""None: plain causal. A tensor [B or 1, H or 1, L, L] is added to the attention logits.
A `BlockMask` names the pairs for flex_attention."""


@dataclass(frozen=True)
class MaskRule:
    """What decides, besides the documents, who may look at whom; builds the mask of a forward pass."""

    window: int | None
    """Tokens that are seen, the token itself included."""
    alibi_slopes: tuple[float, ...] | None
    """ALiBi's slope of each head, where it is used."""
    softcap: bool
    """Whether attention caps its logits and so must have them at hand."""

    def build(
        self, documents: Tensor | None, places: Places | None, length: int, device: torch.device, dtype: torch.dtype
    ) -> AttentionMask:
        """The mask in the form that costs least, for `length` tokens.

        `documents` [B, L] numbers the document of each token, each a run of neighbours (None: each
        sequence is one document). This rule is for whole sequences: `places` must be None.
        """
        if places is not None:
            raise ValueError("a part of a sequence needs attention that reaches the other parts")
        window = None if self.window is None or self.window >= length else self.window
        if documents is not None and bool((documents == documents[:, :1]).all()):
            documents = None
        if documents is None and window is None and self.alibi_slopes is None:
            return None
        if self.alibi_slopes is None and flex_attention_works_on(device):
            return block_mask(documents, length, window, device)
        plainly = window is None and self.alibi_slopes is None and not self.softcap and device.type == "cpu"
        if documents is not None and plainly:
            return packed_documents(documents)
        return dense_mask(documents, length, window, self.alibi_slopes, device, dtype)


def packed_documents(documents: Tensor) -> PackedDocuments:
    """The mask for `document_attention`."""
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return PackedDocuments(starts)


def dense_mask(
    documents: Tensor | None,
    length: int,
    window: int | None,
    slopes: Sequence[float] | None,
    device: torch.device,
    dtype: torch.dtype,
    past: int = 0,
) -> Tensor:
    """The mask as a tensor [B or 1, H or 1, L, L]: 0 or ALiBi's bias where a token may look, -inf elsewhere.

    Without the rows of the first `past` tokens: [..., L - past, L].
    """
    places = torch.arange(length, device=device)
    distance = places[past:, None] - places[None, :]
    allowed = (distance >= 0)[None]
    if window is not None:
        allowed = allowed & (distance < window)
    if documents is not None:
        allowed = allowed & (documents[:, past:, None] == documents[:, None, :])
    bias = torch.zeros((), device=device, dtype=dtype)
    if slopes is not None:
        bias = -torch.tensor(slopes, device=device, dtype=dtype)[None, :, None, None] * distance
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
