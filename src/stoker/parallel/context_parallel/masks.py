"""What attention needs to know of a forward pass when each rank holds a part of every sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from stoker.layout import ContextParallelMethod
from stoker.model.masks import MaskRule, block_mask, flex_attention_works_on, packed_documents
from stoker.model.position import Places
from stoker.parallel.context_parallel.blockwise import Logits
from stoker.parallel.context_parallel.kernels import accumulator
from stoker.parallel.context_parallel.split import own_length


class PartMask(NamedTuple):
    """The mask of a forward pass, from which a method finds what any tokens see of any others."""

    length: int
    """Tokens of the whole sequence."""
    starts: Tensor | None
    """bool [B, length] on the CPU, where the work is laid out: the first token of each document."""
    window: int | None
    slopes: Tensor | None
    """ALiBi's, one for each query head before heads are exchanged."""
    blocks: BlockMask | None = None
    """For flex_attention, where the method and the device use it: own tokens (or all) by all tokens."""

    def logits(self, softcap: float | None) -> Logits:
        """What is done to the logits."""
        return Logits(self.window, self.slopes, softcap)


@dataclass(frozen=True)
class PartMaskRule(MaskRule):
    """Builds `PartMask`s, for the attention of `method`."""

    method: ContextParallelMethod
    ranks: int
    rank: int

    def build(  # type: ignore[override]  # the attention that `context_parallel` sets takes no other mask
        self, documents: Tensor | None, places: Places | None, length: int, device: torch.device, dtype: torch.dtype
    ) -> PartMask:
        """The mask for this rank's `length` tokens of sequences of `places.length`; `documents` are whole.

        Raises `ValueError` when these do not agree.
        """
        whole = self._whole_length(documents, places, length)
        window = None if self.window is None or self.window >= whole else self.window
        if documents is not None and bool((documents == documents[:, :1]).all()):
            documents = None
        starts = None if documents is None else packed_documents(documents).starts.cpu()
        slopes = None
        if self.alibi_slopes is not None:
            slopes = torch.tensor(self.alibi_slopes, device=device, dtype=accumulator(dtype))
        blocks = None
        if slopes is None and flex_attention_works_on(device):
            special = documents is not None or window is not None or self.softcap
            if self.method == "all_gather" and places is not None and length:
                blocks = own_block_mask(documents, places, window)
            elif self.method == "ulysses" and special:
                blocks = block_mask(documents, whole, window, device)
        return PartMask(whole, starts, window, slopes, blocks)

    def _whole_length(self, documents: Tensor | None, places: Places | None, length: int) -> int:
        if places is None:
            raise ValueError("with context parallelism the model must be told which places its tokens have")
        own = own_length(places.length, self.ranks, self.rank)
        if length != own:
            raise ValueError(
                f"context-parallel rank {self.rank} of {self.ranks} holds {own} of {places.length} tokens, "
                f"got {length}"
            )
        if documents is not None and documents.shape[1] != places.length:
            raise ValueError(
                f"documents must be those of the whole sequence, {places.length} tokens, got {documents.shape[1]}"
            )
        return places.length


def own_block_mask(documents: Tensor | None, places: Places, window: int | None) -> BlockMask:
    """Which of all keys the queries at `places` see, for flex_attention."""
    own = places.own

    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        place = own[query]
        may = place >= key
        if window is not None:
            may = may & (place - key < window)
        if documents is not None:
            may = may & (documents[batch, place] == documents[batch, key])
        return may

    batch = None if documents is None else len(documents)
    return create_block_mask(allowed, B=batch, H=None, Q_LEN=len(own), KV_LEN=places.length, device=str(own.device))
