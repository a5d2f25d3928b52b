"""The decoder-only transformer: embedding, blocks, norm, head."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stoker.model.attention import Attention
from stoker.model.draws import LayerDraws, PassDraws, branch_scales, drop, dropout_keys, token_numbers
from stoker.model.feed_forward import build_feed_forward
from stoker.model.latent_attention import LatentAttention
from stoker.model.loss import TokenLosses, Vocabulary, chunked_cross_entropy
from stoker.model.masks import AttentionMask, MaskRule
from stoker.model.mixture_of_experts import MixtureOfExperts
from stoker.model.multi_token import FurtherToken, Future, shifted
from stoker.model.normalisation import build_norm
from stoker.model.position import Places, Rotary, alibi_slopes, rotary_angles
from stoker.model.router import Routing
from stoker.recipe import Model


class Shared(NamedTuple):
    """What all blocks of one forward pass share."""

    rotary: Rotary | None = None
    mask: AttentionMask = None
    tokens: Tensor | None = None
    """int64 [B, L]: numbers of the residual stream's tokens, for dropout."""
    routing: Routing | None = None
    """What the routers of experts share and remember."""


_NOTHING_SHARED, NO_DRAWS = Shared(), LayerDraws()


class Block(nn.Module):
    """One layer: attention and feed-forward, each added to the residual stream.

    Norms stand before a sub-block, on its output, or both, as `norm_position` says. The feed-forward is
    a mixture of experts where `config` has one for the layer numbered `layer`.
    """

    def __init__(self, config: Model, layer: int = 0) -> None:
        super().__init__()
        before, after = config.norm_position != "post", config.norm_position != "pre"

        def norm(wanted: bool) -> nn.Module:
            return build_norm(config.norm, config.hidden_size, config.norm_epsilon) if wanted else nn.Identity()

        self.attention_norm = norm(before)
        latent = config.latent_attention is not None
        self.attention = LatentAttention(config) if latent else Attention(config)
        self.attention_output_norm = norm(after)
        self.feed_forward_norm = norm(before)
        self.has_experts = config.has_experts(layer)
        self.feed_forward = MixtureOfExperts(config) if self.has_experts else build_feed_forward(config)
        self.feed_forward_output_norm = norm(after)
        self.dropout = config.dropout

    def forward(self, x_BLD: Tensor, shared: Shared = _NOTHING_SHARED, draws: LayerDraws = NO_DRAWS) -> Tensor:
        """The residual stream after this layer: [B, L, D]."""
        branch = self.attention(self.attention_norm(x_BLD), shared.rotary, shared.mask)
        x_BLD = self._add(x_BLD, self.attention_output_norm(branch), shared, draws, 0)
        branch = self.feed_forward_norm(x_BLD)
        branch = self.feed_forward(branch, shared.routing) if self.has_experts else self.feed_forward(branch)
        return self._add(x_BLD, self.feed_forward_output_norm(branch), shared, draws, 1)

    def _add(self, x_BLD: Tensor, branch: Tensor, shared: Shared, draws: LayerDraws, site: int) -> Tensor:
        if shared.tokens is not None and draws.dropout_keys is not None:
            branch = drop(branch, self.dropout, shared.tokens, draws.dropout_keys[site])
        if draws.branch_scale is not None:
            branch = branch * draws.branch_scale.to(branch.dtype)
        return x_BLD + branch


RunBlock = Callable[..., Tensor]
"""From a block, the residual stream, and what `Block.forward` takes besides, to the stream after the block."""


def run_block(block: nn.Module, x_BLD: Tensor, shared: Shared, draws: LayerDraws = NO_DRAWS) -> Tensor:
    """How a block is run where nothing else is wanted."""
    return block(x_BLD, shared, draws)  # type: ignore[no-any-return]


def _embedding(rows: int, width: int) -> nn.Embedding:
    """Without values: drawing them, even on `meta`, loads torch's compiler, and `initialise` draws all."""
    return nn.Embedding(rows, width, _weight=torch.zeros(rows, width))


class Stream:
    """Which tokens of a forward pass the residual stream holds: here, all of them."""

    length = 0
    """Tokens of the forward pass that goes on."""

    def own(self, x: Tensor, dim: int) -> Tensor:
        """The part of `x`, whose `dim` runs over all tokens, that belongs to the stream's tokens."""
        return x

    def whole(self, x: Tensor, dim: int) -> Tensor:
        """All tokens along `dim`, of an `x` that holds the stream's."""
        return x


class Decoder(nn.Module):
    """A decoder-only language model for sequences of up to `sequence_length` tokens, or consecutive layers of one.

    Parameters are built uninitialised in meaning: call `initialise` (on any device, also after
    construction on `meta` and `to_empty`). `keep` makes it a part of the model.
    """

    def __init__(self, config: Model, vocabulary_size: int, sequence_length: int) -> None:
        super().__init__()
        self.config, self.vocabulary_size, self.sequence_length = config, vocabulary_size, sequence_length
        self.embedding: nn.Module | None = _embedding(vocabulary_size, config.hidden_size)
        if config.position == "learned":
            self.position_embedding = _embedding(sequence_length, config.hidden_size)
        self.blocks = nn.ModuleDict({str(layer): Block(config, layer) for layer in range(config.layers)})
        self.norm: nn.Module | None = build_norm(config.norm, config.hidden_size, config.norm_epsilon)
        self.head: nn.Linear | None = None
        if not config.tie_embeddings:  # absent, not shared: a state dict then names each tensor once
            self.head = nn.Linear(config.hidden_size, vocabulary_size, bias=False)
        self.mtp = nn.ModuleDict(
            {str(i): FurtherToken(config, Block(config, config.layers + i)) for i in range(config.mtp_depth)}
        )
        self.begins = self.ends = True
        self.mask_rule = MaskRule(
            config.sliding_window,
            tuple(alibi_slopes(config.heads)) if config.position == "alibi" else None,
            config.attention_softcap is not None,
        )
        self.stream = Stream()
        self.vocabulary = Vocabulary()
        self.run_block: RunBlock = run_block
        """How each block is run, those of modules for further tokens too."""

    def keep(self, first: int, last: int) -> None:
        """Keep the layers `first` … `last` - 1 only; embedding, norm and head stay where they are used.

        A tied embedding is kept at the end too, which reads it as the head, and so is one that modules
        for further tokens (`mtp_depth`), which stand at the end, embed those with.
        """
        self.begins, self.ends = first == 0, last == self.config.layers
        for layer in range(self.config.layers):
            if not first <= layer < last:
                del self.blocks[str(layer)]
        if not self.begins:
            if not (self.ends and (self.config.tie_embeddings or self.config.mtp_depth)):
                self.embedding = None
            if self.config.position == "learned":
                del self.position_embedding
        if not self.ends:
            self.norm = self.head = None
            self.mtp = nn.ModuleDict()

    def mixtures(self) -> dict[str, MixtureOfExperts]:
        """This part's mixtures of experts, by the name of their block."""
        return {
            name.removesuffix(".feed_forward"): module
            for name, module in self.named_modules()
            if isinstance(module, MixtureOfExperts)
        }

    @property
    def head_weight(self) -> Tensor:
        """The output projection [V, D]: the head's own, or the embedding matrix when tied."""
        module = self.embedding if self.config.tie_embeddings else self.head
        assert module is not None
        assert isinstance(module.weight, Tensor)
        return module.weight

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        samples: Tensor | None = None,
        *,
        hidden: Tensor | None = None,
        places: Places | None = None,
        future: Future | None = None,
        step: int = 0,
        seed: int = 0,
        loss_scale: float = 1.0,
        chunk: int | None = None,
        last_only: bool = False,
    ) -> TokenLosses | Tensor:
        """Losses of `targets` (see `chunked_cross_entropy`), or without them the logits [B, L, V].

        All of tokens, targets (-100 counts for nothing), positions (0… in each document; default
        0…L-1) and documents (a token sees only its own; default one per sequence) are [B, L];
        samples [B] are global sample numbers, which with `step` and `seed` decide dropout and LayerDrop.
        `places` says where the tokens stand when they are a part of their sequences; documents are then
        those of the whole sequences. `chunk` is how many tokens' logits are held at once. `last_only`
        gives the logits of the last place alone: [B, 1, V].

        In training mode the loss has the terms of routers and of further tokens (`mtp_depth`) in its
        gradient, and the latter in `loss_sum`; `token_losses` are those of the next token alone. Routers'
        terms act where there are targets, and in parts that do not end the model. `future` is what
        `shifted` gives for the whole sequences, cut as `tokens` are; needed with `places` alone.

        A part that does not begin the model takes up `hidden`, the residual stream [B, L, D] of the part
        before; one that does not end it gives its own.
        """
        routing = self._routing(loss_scale, tokens.device) if targets is not None or not self.ends else None
        x_BLD, shared = self._run(tokens, positions, documents, samples, hidden, places, step, seed, routing)
        if not (self.training and self.mtp):
            shared = _NOTHING_SHARED  # a mask may be large: let go of it before the loss
        if not self.ends:
            return x_BLD
        assert self.norm is not None
        if targets is None:
            hidden_BLD = self.stream.whole(self.norm(x_BLD), 1)
            return self.logits(hidden_BLD[:, -1:] if last_only else hidden_BLD)
        losses = self._losses(x_BLD, self.norm, targets, loss_scale, chunk)
        if not (self.training and self.mtp):
            return losses
        if future is None:
            if places is not None:
                raise ValueError("the future of a part of a sequence is in the others: `future` must be given")
            future = shifted(tokens, targets, documents, len(self.mtp))
        weight = loss_scale * self.config.mtp_loss_weight / len(self.mtp)
        total = losses.loss_sum
        for module, next_tokens, next_targets in zip(self.mtp.values(), *future, strict=True):
            assert self.embedding is not None
            assert isinstance(module, FurtherToken)
            x_BLD = module(x_BLD, self.embedding(next_tokens), shared, self.run_block)
            total = total + self._losses(x_BLD, module.norm, next_targets, weight, chunk).loss_sum
        return losses._replace(loss_sum=total)

    def _losses(
        self, x_BLD: Tensor, norm: nn.Module, targets: Tensor, loss_scale: float, chunk: int | None
    ) -> TokenLosses:
        return chunked_cross_entropy(
            self.stream.whole(norm(x_BLD), 1),
            self.head_weight,
            targets,
            logit_softcap=self.config.logit_softcap,
            z_loss=self.config.z_loss,
            loss_scale=loss_scale,
            chunk=chunk,
            vocabulary=self.vocabulary,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., D]."""
        logits = self.vocabulary.whole(F.linear(hidden, self.head_weight), self.vocabulary_size)
        cap = self.config.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def run(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        samples: Tensor | None = None,
        *,
        hidden: Tensor | None = None,
        places: Places | None = None,
        step: int = 0,
        seed: int = 0,
    ) -> Tensor:
        """The residual stream [B, L, D] after the last of this part's layers; arguments as for `forward`."""
        return self._run(tokens, positions, documents, samples, hidden, places, step, seed, None)[0]

    def _run(
        self,
        tokens: Tensor,
        positions: Tensor | None,
        documents: Tensor | None,
        samples: Tensor | None,
        hidden: Tensor | None,
        places: Places | None,
        step: int,
        seed: int,
        routing: Routing | None,
    ) -> tuple[Tensor, Shared]:
        self.stream.length = L = tokens.shape[1]
        if positions is None:
            positions = (torch.arange(L, device=tokens.device) if places is None else places.own)[None]
        draws = self._draws(tokens, samples, places, step, seed)
        x_BLD = hidden
        if self.begins:
            x_BLD = self._embed(tokens, positions)
            if draws.tokens is not None and draws.dropout_keys is not None:
                x_BLD = drop(x_BLD, self.config.dropout, draws.tokens, draws.dropout_keys[0])
        assert x_BLD is not None, "a part that does not begin the model needs `hidden`"
        rotary = None
        if self.config.position == "rope":
            rotary = rotary_angles(positions, self.config.rotary_size, self.config.rope_theta, x_BLD.dtype)
        mask = self.mask_rule.build(documents, places, L, tokens.device, x_BLD.dtype)
        shared = Shared(rotary, mask, draws.tokens, routing or self._routing(None, tokens.device))
        for layer, block in self.blocks.items():
            x_BLD = self.run_block(block, x_BLD, shared, draws.of_layer(int(layer)))
        return x_BLD, shared

    def _routing(self, loss_scale: float | None, device: torch.device) -> Routing | None:
        if self.config.moe is None:
            return None
        if loss_scale is None or not self.training:
            return Routing()
        return Routing(torch.full((), loss_scale, dtype=torch.float64, device=device))

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        assert self.embedding is not None
        x_BLD: Tensor = self.embedding(tokens)
        if self.config.position != "learned":
            return x_BLD
        if self.sequence_length < tokens.shape[1]:
            raise ValueError(
                f"learned positions end at {self.sequence_length}, but a sequence has {tokens.shape[1]} tokens"
            )
        return x_BLD + self.position_embedding(self.stream.own(positions, 1))  # type: ignore[no-any-return]

    def _draws(
        self, tokens: Tensor, samples: Tensor | None, places: Places | None, step: int, seed: int
    ) -> PassDraws:
        config, draws = self.config, PassDraws()
        if self.training and config.layer_drop:
            draws = draws._replace(
                branch_scales=branch_scales(samples, config.layer_drop, config.layers, step, seed)
            )
        if self.training and config.dropout:
            own = torch.arange(tokens.shape[1], device=tokens.device) if places is None else places.own
            draws = draws._replace(
                tokens=token_numbers(samples, self.stream.own(own, 0)),
                dropout_keys=dropout_keys(config.layers, step, seed, tokens.device),
            )
        return draws
