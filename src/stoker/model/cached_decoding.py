"""Logits of the next token, without computing again what earlier tokens gave: a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from stoker.model.attention import Attention, attend
from stoker.model.decoder import Block, Decoder
from stoker.model.latent_attention import LatentAttention
from stoker.model.masks import AttentionMask, MaskRule, dense_mask
from stoker.model.position import Places

_LEAST_ROOM = 64


class CachedLogits:
    """Logits of the next token for sequences that grow, one call after another.

    Of a sequence that begins with the one of the call before, only the new tokens are computed; of any other, all.
    So it can stand wherever a function of whole sequences is wanted. Memory: keys and values of every layer for the
    tokens at hand. Experts of bounded capacity depend on all tokens of a sequence, and nothing is kept for them.
    """

    def __init__(self, model: Decoder) -> None:
        """`model` is whole, not laid out over ranks, and in evaluation mode: raises `ValueError` otherwise."""
        if not (model.begins and model.ends) or model.training:
            raise ValueError("a cache needs a whole model in evaluation mode")
        self._model, self._rule = model, model.mask_rule
        blocks = [block for block in model.blocks.values() if isinstance(block, Block)]
        self._attentions: list[Attention | LatentAttention] = [block.attention for block in blocks]
        self._kept = [_Kept() for _ in blocks]
        self._seen: Tensor | None = None
        moe = model.config.moe
        self._keeps = moe is None or moe.capacity_factor is None

    @torch.no_grad()
    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits [B, V] of the token after `tokens` int64 [B, L]."""
        past, self._seen = self._known(tokens), None
        positions = torch.arange(past, tokens.shape[1], device=tokens.device)[None]
        with self._reaching_back(past):
            logits = self._model(tokens[:, past:], positions=positions, last_only=True)
        assert isinstance(logits, Tensor)
        self._seen = tokens if self._keeps else None
        return logits[:, -1]

    def _known(self, tokens: Tensor) -> int:
        """Tokens at the beginning that need not be computed: at least one is, for its logits."""
        seen = self._seen
        if seen is None or len(seen) != len(tokens) or seen.shape[1] >= tokens.shape[1]:
            return 0
        return seen.shape[1] if torch.equal(seen, tokens[:, : seen.shape[1]]) else 0

    @contextmanager
    def _reaching_back(self, past: int) -> Iterator[None]:
        """Let attention see what is kept of the first `past` tokens, and keep what it computes."""
        before = [attention.attend for attention in self._attentions]
        try:
            self._model.mask_rule = _RuleWithPast(**vars(self._rule), past=past)
            for attention, kept in zip(self._attentions, self._kept, strict=True):
                kept.length = past
                if self._keeps:
                    attention.attend = kept.attend
            yield
        finally:
            self._model.mask_rule = self._rule
            for attention, own in zip(self._attentions, before, strict=True):
                attention.attend = own


class _Kept:
    """Keys and values of one layer."""

    def __init__(self) -> None:
        self._keys = self._values = torch.empty(0)
        self.length = 0
        """Tokens of which they are kept."""

    def attend(
        self, q_BLHK: Tensor, k_BLGK: Tensor, v_BLGK: Tensor, mask: AttentionMask, softcap: float | None
    ) -> Tensor:
        """As `attend`, of new queries over kept and new keys."""
        first, self.length = self.length, self.length + k_BLGK.shape[1]
        self._keys = _with_room(self._keys, k_BLGK, first, self.length)
        self._values = _with_room(self._values, v_BLGK, first, self.length)
        self._keys[:, first : self.length], self._values[:, first : self.length] = k_BLGK, v_BLGK
        return attend(q_BLHK, self._keys[:, : self.length], self._values[:, : self.length], mask, softcap)


def _with_room(kept: Tensor, new: Tensor, first: int, length: int) -> Tensor:
    """`kept` [B, room, G, K] with room for `length` tokens, of which the first `first` are there."""
    if first and kept.shape[1] >= length:
        return kept
    B, _, G, K = new.shape
    found = new.new_empty((B, max(_LEAST_ROOM, 2 * length), G, K))
    if first:
        found[:, :first] = kept[:, :first]
    return found


@dataclass(frozen=True)
class _RuleWithPast(MaskRule):
    """The rule of a model whose first `past` tokens have keys and no queries."""

    past: int

    def build(
        self, documents: Tensor | None, places: Places | None, length: int, device: torch.device, dtype: torch.dtype
    ) -> AttentionMask:
        """The mask [1, H or 1, length, past + length]; without a past that of the model."""
        if not self.past:
            return super().build(documents, places, length, device, dtype)
        return dense_mask(None, self.past + length, self.window, self.alibi_slopes, device, dtype, self.past)
