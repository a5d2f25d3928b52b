"""The decoder-only transformer: embedding, blocks, norm, head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stoker.model.attention import Attention
from stoker.model.feed_forward import build_feed_forward
from stoker.model.layer_drop import branch_scales
from stoker.model.loss import TokenLosses, chunked_cross_entropy
from stoker.model.masks import AttentionMask, attention_mask
from stoker.model.normalisation import build_norm
from stoker.model.position import Rotary, rotary_angles
from stoker.recipe import Model


class Block(nn.Module):
    """One layer: attention and feed-forward, each added to the residual stream.

    Norms stand before a sub-block, on its output, or both, as `norm_position` says.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        before, after = config.norm_position != "post", config.norm_position != "pre"

        def norm(wanted: bool) -> nn.Module:
            return build_norm(config.norm, config.hidden_size, config.norm_epsilon) if wanted else nn.Identity()

        self.attention_norm = norm(before)
        self.attention = Attention(config)
        self.attention_output_norm = norm(after)
        self.feed_forward_norm = norm(before)
        self.feed_forward = build_feed_forward(config)
        self.feed_forward_output_norm = norm(after)
        self.dropout = config.dropout

    def forward(
        self,
        x_BLD: Tensor,
        rotary: Rotary | None = None,
        mask: AttentionMask = None,
        branch_scale: Tensor | None = None,
    ) -> Tensor:
        """The residual stream after this layer: [B, L, D].

        `branch_scale` [B, 1, 1] multiplies what the layer adds: 0 skips the layer for a sample.
        """
        branch = self.attention(self.attention_norm(x_BLD), rotary, mask)
        x_BLD = self._add(x_BLD, self.attention_output_norm(branch), branch_scale)
        branch = self.feed_forward(self.feed_forward_norm(x_BLD))
        return self._add(x_BLD, self.feed_forward_output_norm(branch), branch_scale)

    def _add(self, x_BLD: Tensor, branch: Tensor, branch_scale: Tensor | None) -> Tensor:
        if self.training and self.dropout:
            branch = F.dropout(branch, self.dropout)
        if branch_scale is not None:
            branch = branch * branch_scale
        return x_BLD + branch


class Decoder(nn.Module):
    """A decoder-only language model for sequences of up to `sequence_length` tokens.

    Parameters are built uninitialised in meaning: call `initialise` (on any device, also after
    construction on `meta` and `to_empty`). There are no buffers.
    """

    def __init__(self, config: Model, vocabulary_size: int, sequence_length: int) -> None:
        super().__init__()
        self.config, self.vocabulary_size, self.sequence_length = config, vocabulary_size, sequence_length
        self.embedding = nn.Embedding(vocabulary_size, config.hidden_size)
        if config.position == "learned":
            self.position_embedding = nn.Embedding(sequence_length, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = build_norm(config.norm, config.hidden_size, config.norm_epsilon)
        self.head = nn.Linear(config.hidden_size, vocabulary_size, bias=False)
        if config.tie_embeddings:
            del self.head.weight  # absent, not shared: a state dict then names each tensor once
        self.layer_drop = config.layer_drop

    @property
    def head_weight(self) -> Tensor:
        """The output projection [V, D]: the head's own, or the embedding matrix when tied."""
        return self.embedding.weight if self.config.tie_embeddings else self.head.weight

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        samples: Tensor | None = None,
        *,
        step: int = 0,
        seed: int = 0,
        loss_scale: float = 1.0,
        chunk: int | None = None,
        last_only: bool = False,
    ) -> TokenLosses | Tensor:
        """Losses of `targets` (see `chunked_cross_entropy`), or without them the logits [B, L, V].

        All of tokens, targets (-100 counts for nothing), positions (0… in each document; default
        0…L-1) and documents (a token sees only its own; default one per sequence) are [B, L];
        samples [B] are global sample numbers, which with `step` and `seed` decide LayerDrop.
        `chunk` is how many tokens' logits are held at once. `last_only` gives the logits of the last
        place alone: [B, 1, V].
        """
        hidden_BLD = self.hidden(tokens, positions, documents, samples, step, seed)
        if targets is None:
            return self.logits(hidden_BLD[:, -1:] if last_only else hidden_BLD)
        return chunked_cross_entropy(
            hidden_BLD,
            self.head_weight,
            targets,
            logit_softcap=self.config.logit_softcap,
            z_loss=self.config.z_loss,
            loss_scale=loss_scale,
            chunk=chunk,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., D]."""
        logits = F.linear(hidden, self.head_weight)
        cap = self.config.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        samples: Tensor | None = None,
        step: int = 0,
        seed: int = 0,
    ) -> Tensor:
        """The normed last hidden states [B, L, D], which the head turns into logits."""
        L = tokens.shape[1]
        if self.config.position == "learned" and self.sequence_length < L:
            raise ValueError(f"learned positions end at {self.sequence_length}, but a sequence has {L} tokens")
        if positions is None:
            positions = torch.arange(L, device=tokens.device)[None]
        x_BLD = self.embedding(tokens)
        rotary = None
        if self.config.position == "learned":
            x_BLD = x_BLD + self.position_embedding(positions)
        elif self.config.position == "rope":
            rotary = rotary_angles(positions, self.config.size_of_head, self.config.rope_theta, x_BLD.dtype)
        if self.training and self.config.dropout:
            x_BLD = F.dropout(x_BLD, self.config.dropout)
        mask = attention_mask(
            documents,
            L,
            self.config.sliding_window,
            self.config.heads if self.config.position == "alibi" else None,
            self.config.attention_softcap is not None,
            tokens.device,
            x_BLD.dtype,
        )
        scales: Sequence[Tensor | None] = [None] * len(self.blocks)
        if self.training and self.layer_drop:
            scales = branch_scales(samples, self.layer_drop, len(self.blocks), step, seed, x_BLD)
        for block, scale in zip(self.blocks, scales, strict=True):
            x_BLD = block(x_BLD, rotary, mask, scale)
        return self.norm(x_BLD)  # type: ignore[no-any-return]
