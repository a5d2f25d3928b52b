"""How many bytes a forward pass keeps for backward: an account of `stoker.model.Decoder`, tensor by tensor.

Letters as in `stoker.model`: batch B, length L, hidden D, heads H, key and value heads G, head size K,
inner feed-forward width F, vocabulary V, tokens N = B × L. What is said here is held against the bytes
that real forward and backward passes hold, in `tests/planning/test_memory.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

from stoker.layout import ContextParallelMethod
from stoker.recipe import LatentAttention, MixtureOfExperts, Model, Precision
from stoker.recipe.memory import OPERATIONS, Operation, Recomputation, Recomputed

_NOTHING_RECOMPUTED = Recomputation()


@dataclass(frozen=True)
class MicroBatch:
    """What decides the size of one forward and backward pass on one rank."""

    batch: int
    length: int
    """Tokens of each sequence that this rank has a part in: all, or its part along `cp`."""
    vocabulary_size: int
    """Rows of embedding and head at hand."""
    precision: Precision
    compiled: bool
    """Whether the blocks are compiled: pointwise results are then computed again instead of kept."""
    document_mask: bool
    dense_masks: bool
    """Whether a mask is a tensor given to attention (a device without flex attention)."""
    loss_chunk: int
    """Tokens whose logits are held at once."""
    cp: int = 1
    cp_method: ContextParallelMethod = "ring"
    tp: int = 1
    ep: int = 1
    whole_experts: bool = False
    """Whether each tensor-parallel rank sends its own tokens to experts that are whole."""

    @property
    def whole_length(self) -> int:
        """Tokens of each sequence on all ranks."""
        return self.length * self.cp

    @property
    def stream(self) -> float:
        """Part of the tokens whose residual stream this rank holds."""
        return -(-self.length // self.tp) / self.length

    @property
    def routed(self) -> float:
        """Part of the tokens that this rank routes to experts."""
        return self.stream if self.whole_experts else 1.0

    @property
    def tokens(self) -> int:
        """Tokens N."""
        return self.batch * self.length

    @property
    def stream_width(self) -> int:
        """Bytes of an element of the residual stream, and of a parameter."""
        return 2 if self.precision == "pure_bf16" else 4

    @property
    def compute_width(self) -> int:
        """Bytes of an element of a matrix product's result."""
        return 4 if self.precision == "fp32" else 2

    @property
    def casts(self) -> bool:
        """Whether matrix products make 16-bit copies of their inputs and weights (autocast)."""
        return self.stream_width != self.compute_width


@dataclass(frozen=True)
class Activations:
    """Bytes on one rank for one micro-batch."""

    per_block: int
    """Kept by each dense block from its forward to its backward pass."""
    largest_block: int
    """Kept by the block that keeps most, by what recomputation leaves."""
    blocks: int
    """Kept by all blocks together, those with experts and those of modules for further tokens too."""
    results: int
    """Of it, what operations gave in blocks that compute the rest again."""
    outside_blocks: int
    """Kept by what stands before, between and after the blocks, shared masks and angles included."""
    by_loss: int
    """Kept by projection and cross-entropy until backward, which begins with them: 0 where others have them."""
    block_transient: int
    """Most that backward through the blocks holds at a moment beyond what all of them have kept: what one makes for
    a moment or computes again, less what those after it have let go of."""
    end_transient: int
    """What the backward pass of the first block holds for a moment besides what it has kept."""
    loss_transient: int
    """Most that projection and cross-entropy hold at once: chunks of logits, and gradients on their way."""


def activations(
    config: Model,
    pass_: MicroBatch,
    layers: range | None = None,
    recomputation: Recomputation = _NOTHING_RECOMPUTED,
) -> Activations:
    """Bytes of the activations of one micro-batch in the stage that has `layers` (default: all there is).

    `config` has this rank's heads and inner widths (`stoker.planning.parts.local_model`).
    """
    layers = range(config.layers) if layers is None else layers
    ends = layers.stop == config.layers
    numbers = numbers_of(config, layers)
    masks = _mask_bytes(config, pass_)
    kept = {number: _kept(config, pass_, number, recomputation) for number in numbers}
    whole = {number: kept_by_layer(config, pass_, number, None) for number in numbers}
    by_loss = (pass_.tokens + pass_.vocabulary_size) * config.hidden_size * pass_.stream_width
    dense = _Block(config, pass_)
    moments = [
        int(pass_.tokens * _Block(config, pass_, config.has_experts(number)).transient())
        + whole[number]
        - kept[number]
        for number in numbers
    ]
    after = list(accumulate((kept[number] for number in reversed(numbers)), initial=0))[-2::-1]
    return Activations(
        per_block=int(pass_.tokens * dense.kept()) + (masks if pass_.casts else 0),
        largest_block=max(kept.values(), default=0),
        blocks=sum(kept.values()),
        results=sum(
            kept[number] - kept_by_layer(config, pass_, number, frozenset(OPERATIONS))
            for number in numbers
            if number in recomputation.layers
        ),
        outside_blocks=_outside(config, pass_, dense, layers.start == 0, ends) + (0 if pass_.casts else masks),
        by_loss=by_loss if ends else 0,
        block_transient=max((moment - gone for moment, gone in zip(moments, after, strict=True)), default=0),
        end_transient=moments[0] if moments else 0,
        loss_transient=_loss_transient(config, pass_) if ends else 0,
    )


def numbers_of(config: Model, layers: range) -> list[int]:
    """The layers of a stage by number, those of modules for further tokens too."""
    ends = layers.stop == config.layers
    return [*layers, *(config.layers + further for further in range(config.mtp_depth if ends else 0))]


def kept_by_layer(config: Model, pass_: MicroBatch, layer: int, recomputed: Recomputed | None) -> int:
    """Bytes that one layer keeps from its forward to its backward pass."""
    block = _Block(config, pass_, config.has_experts(layer))
    if recomputed is not None:
        return int(pass_.tokens * block.kept_besides(recomputed))
    # Autocast makes a 16-bit copy of the mask for each block.
    return int(pass_.tokens * block.kept()) + (_mask_bytes(config, pass_) if pass_.casts else 0)


def _kept(config: Model, pass_: MicroBatch, layer: int, recomputation: Recomputation) -> int:
    most = kept_by_layer(config, pass_, layer, None)
    if layer in recomputation.shares:
        least = kept_by_layer(config, pass_, layer, frozenset(OPERATIONS))
        return int(least + recomputation.shares[layer] * (most - least))
    return kept_by_layer(config, pass_, layer, recomputation.layers.get(layer))


@dataclass(frozen=True)
class _Block:
    """Bytes per token that one block keeps."""

    config: Model
    pass_: MicroBatch
    experts: bool = False
    """Whether the feed-forward is a mixture of experts."""

    def kept(self) -> float:
        """Both sub-blocks."""
        return self.attention() + self.feed_forward()

    def kept_besides(self, recomputed: Recomputed) -> float:
        """The input, and what operations gave that are not `recomputed`."""
        kept = self.pass_.stream * self.config.hidden_size * self.pass_.stream_width
        moe = self.config.moe if self.experts else None
        if moe is not None:  # where each row went is remembered
            kept += self.pass_.routed * moe.experts_per_token * 8 * 4
            kept += self._rows() * (16 if self.pass_.ep > 1 else 0)
        return kept + sum(self._given(operation) for operation in OPERATIONS if operation not in recomputed)

    def _given(self, operation: Operation) -> float:
        """What the results of an operation take."""
        config, pass_, compute = self.config, self.pass_, self.pass_.compute_width
        after = config.norm_position != "pre"
        branch = pass_.stream * config.hidden_size * compute
        moe = config.moe if self.experts else None
        match operation:
            case "attention_projections":
                return self._projected() * compute
            case "attention":
                return self._attended()
            case "attention_output":
                return branch
            case "experts" if moe is not None:
                rows = 2 * config.expert_width + config.hidden_size * (3 if pass_.ep > 1 else 1)
                return self._rows() * rows * compute
            case "feed_forward" if moe is not None:
                shared = moe.shared_experts * config.expert_width / (pass_.tp if pass_.whole_experts else 1)
                return (2 * shared + after * bool(shared) * config.hidden_size) * compute
            case "feed_forward":
                matrices = 1 if config.activation == "gelu" else 2
                return matrices * config.ffn_hidden_size * compute + after * branch
        return 0.0

    def _projected(self) -> int:
        """Elements of what comes into attention."""
        config, latent = self.config, self.config.latent_attention
        if latent is None:
            return (config.heads + 2 * config.key_value_heads) * config.size_of_head
        queries = config.heads * config.size_of_head if latent.query_rank is None else latent.query_rank
        return queries + latent.kv_rank + latent.rope_head_size

    def _attended(self) -> float:
        """The mix and its log-sums; all logits where no kernel knows the attention."""
        config, compute = self.config, self.pass_.compute_width
        width = config.size_of_head if self.pass_.dense_masks else config.value_size
        if config.attention_softcap is not None and self.pass_.cp == 1:
            return config.heads * (self.pass_.length + width) * compute
        exchanged = 0
        if self.pass_.cp > 1 and self.pass_.cp_method == "ulysses":
            exchanged = self._projected() + config.heads * config.value_size
        return (config.heads * width + exchanged) * compute + 4 * config.heads

    def attention(self) -> float:
        """The attention sub-block."""
        if self.config.latent_attention is not None:
            return self._latent_attention(self.config.latent_attention)
        config, compute, length = self.config, self.pass_.compute_width, self.pass_.length
        heads, kv_heads, head_size = config.heads, config.key_value_heads, config.size_of_head
        kept = self._around(first=True, projections=3)
        if config.qk_norm != "none":
            by_head = config.qk_norm == "head"
            kept += self._rms_norm(heads * head_size, heads if by_head else 1, compute)
            kept += self._rms_norm(kv_heads * head_size, kv_heads if by_head else 1, compute)
        if config.attention_softcap is None or self.pass_.cp > 1:
            # q, k, v, the mix; where keys and values are gathered, those of whole sequences.
            gathered = self.pass_.cp if self.pass_.cp_method == "all_gather" else 1
            kept += (2 * heads + 2 * gathered * kv_heads) * head_size * compute + self._handed_back()
            return kept + 4 * heads  # log-sum-exp, fp32
        # Keys and values are repeated for every head, the mix is copied.
        kept += 4 * heads * head_size * compute
        if self.pass_.compiled:
            # The products of queries and keys, largest and sum of each row, and what is in the future.
            return kept + heads * (length * compute + 8) + length / self.pass_.batch
        # Tanh and softmax keep all logits, and the weights again in 16 bits.
        return kept + heads * length * (compute + 4 + (compute if compute == 2 else 0))

    def _handed_back(self) -> float:
        """With `ulysses` the mix is kept as attention gave it, and as it came back from the other ranks."""
        if self.pass_.cp == 1 or self.pass_.cp_method != "ulysses":
            return 0.0
        return self.config.heads * self.config.value_size * self.pass_.compute_width

    def _latent_attention(self, sizes: LatentAttention) -> float:
        """Latents instead of queries, keys and values; the mix, which processors compute as wide as keys."""
        config, compute = self.config, self.pass_.compute_width
        width, narrow = config.size_of_head, config.value_size
        queries = config.heads * width if sizes.query_rank is None else sizes.query_rank
        kept = self._around(first=True, projections=3)
        kept += (queries + sizes.kv_rank + sizes.rope_head_size) * compute
        mix = width + (narrow if narrow < width else 0) if self.pass_.dense_masks else narrow
        kept += config.heads * (mix * compute + 4) + self._handed_back()
        if self.pass_.cp > 1 and self.pass_.cp_method == "all_gather":
            kept += config.heads * (self.pass_.cp * (width + narrow)) * compute
        elif config.attention_softcap is not None and self.pass_.cp == 1:
            kept += config.heads * (3 * width * compute + self.pass_.length * (compute + 4))
        return kept

    def _mixture(self, moe: MixtureOfExperts) -> float:
        """Router, rows sorted by expert, experts and shared experts, none of them compiled."""
        size, stream, compute = self.config.hidden_size, self.pass_.stream_width, self.pass_.compute_width
        kept = replace(self, pass_=replace(self.pass_, compiled=False))._around(first=False, projections=0)
        if not self.pass_.casts:
            kept -= (1 - self.pass_.routed) * size * compute
        routed: float = size * stream if self.pass_.casts else 0
        scores = 1 + (moe.gate == "sigmoid" and moe.auxiliary_loss > 0) + (moe.z_loss > 0)
        routed += scores * moe.experts * 4
        routed += moe.experts_per_token * (8 * 4 + 4 * (2 if moe.normalise_weights else 1))
        kept += self.pass_.routed * routed
        kept += self._rows() * (2 * size + 2 * self.config.expert_width) * compute
        kept += self._rows() * (16 if self.pass_.ep > 1 else 0)  # the order in which rows came
        if moe.shared_experts:
            divided = self.pass_.tp if self.pass_.whole_experts else 1
            kept += 3 * moe.shared_experts * self.config.expert_width / divided * compute
            kept += 2 * size * compute if self.pass_.casts else size * compute * self.pass_.whole_experts
        return kept

    def _rows(self) -> float:
        """Rows that experts compute, for each token, at even load."""
        moe = self.config.moe
        if moe is None:
            return 0.0
        return self.pass_.routed * moe.experts_per_token * min(1.0, moe.capacity_factor or 1.0)

    def feed_forward(self) -> float:
        """The feed-forward sub-block."""
        if self.experts and self.config.moe is not None:
            return self._mixture(self.config.moe)
        gated = self.config.activation != "gelu"
        # Gated: gate, up, their product. Plain: up, its activation. The last is computed again when compiled.
        inner = (3 if gated else 2) - (1 if self.pass_.compiled else 0)
        kept = inner * self.config.ffn_hidden_size * self.pass_.compute_width
        return kept + self._around(first=False, projections=2 if gated else 1)

    def transient(self) -> float:
        """Most that a pass holds besides: backward lets go of what was kept, forward has not kept all of it yet."""
        stream, compute = self.pass_.stream_width, self.pass_.compute_width
        gated = self.config.activation != "gelu"
        # The gradients of the stream and of what a sub-block makes of it, which has the tokens of all ranks.
        both = (1 + self.pass_.stream) * self.config.hidden_size * stream
        feed_forward: float = both
        feed_forward += (2 if gated else 1) * self.config.ffn_hidden_size * compute
        if self.experts:
            feed_forward = both
            feed_forward += self._rows() * (2 * self.config.hidden_size + 3 * self.config.expert_width) * compute
        attention = 2 * both - self.feed_forward()
        if self.config.latent_attention is not None:
            attention += 6 * self.config.heads * self.config.size_of_head * compute
        if self.config.attention_softcap is not None and self.pass_.cp == 1:
            attention += self.config.heads * self.pass_.length * 4
            attention += _dense_mask_elements(self.config, self.pass_) * stream / self.pass_.tokens
        return max(feed_forward, attention)

    def norm(self, input_width: int) -> float:
        """A norm over the hidden size, whose input has elements of `input_width` bytes."""
        if self.config.norm == "rms":
            return self._rms_norm(self.config.hidden_size, 1, input_width)
        return self.config.hidden_size * input_width + 2 * self.pass_.stream_width

    def _rms_norm(self, size: int, groups: int, input_width: int) -> float:
        return size * input_width + 4 * groups

    def _around(self, first: bool, projections: int) -> float:
        """What stands around a sub-block's own work: norms, the projections' shared input, dropout."""
        before, after = self.config.norm_position != "post", self.config.norm_position != "pre"
        if self.pass_.compiled:
            gathered = self.config.hidden_size * self.pass_.compute_width if self.pass_.tp > 1 else 0
            return self.pass_.stream * self._around_compiled(first, before, after) + gathered
        kept = self.norm(self.pass_.stream_width) if before else 0.0
        kept += self.norm(self.pass_.compute_width) if after else 0.0
        if self.config.dropout:
            kept += self.config.hidden_size * self.pass_.compute_width
        return self.pass_.stream * kept + self._projection_input(projections)

    def _around_compiled(self, first: bool, before: bool, after: bool) -> float:
        """The stream as it comes in and what the branches give; norms, sums and casts of these are made again."""
        stream, compute = self.pass_.stream_width, self.pass_.compute_width
        if first:
            kept = (stream if before else compute) + compute
        else:
            cast = not before and self.pass_.casts  # the first's sum, as the second's projections take it
            kept = (compute if after else 0) + (compute if cast else 0)
        statistics = (before + after) * (4 if self.config.norm == "rms" else 8)
        return kept * self.config.hidden_size + statistics

    def _projection_input(self, projections: int) -> float:
        """What matrix products keep of the tensor they share; autocast copies it for each of them."""
        copies = projections if self.pass_.casts else 1
        return copies * self.config.hidden_size * self.pass_.compute_width


def _mask_bytes(config: Model, pass_: MicroBatch) -> int:
    """The mask tensor that attention keeps; a soft-cap adds it to the logits and does not need it again."""
    return 0 if config.attention_softcap is not None else _dense_mask_elements(config, pass_) * pass_.compute_width


def _dense_mask_elements(config: Model, pass_: MicroBatch) -> int:
    """Elements of a mask that is a tensor. Documents alone need none: each is attended to by itself."""
    if pass_.cp > 1:
        return 0  # made piece by piece, and let go of
    window = config.sliding_window is not None and config.sliding_window < pass_.length
    alibi, capped = config.position == "alibi", config.attention_softcap is not None
    if not alibi and not (pass_.dense_masks and (window or (capped and pass_.document_mask))):
        return 0
    rows = pass_.batch if pass_.document_mask else 1
    return rows * (config.heads if alibi else 1) * pass_.length**2


def _outside(config: Model, pass_: MicroBatch, block: _Block, begins: bool, ends: bool) -> int:
    """Embedding, angles, and the last norm, which is never compiled; the latter where the stage has them."""
    size, stream = config.hidden_size, pass_.stream_width
    kept = pass_.stream * block.norm(stream) + 4 if ends else 0.0  # and the tokens' losses
    if begins and pass_.tp > 1:
        kept += 8 + 1  # which rows of the embedding are here
    if config.dropout and begins:
        kept += pass_.stream * size * stream
    if config.position == "rope":
        kept += config.rotary_size * 4
    if not ends:
        return int(pass_.tokens * kept)
    # Each module for a further token: what two norms make and are joined, of which one has an input that is kept
    # already, its last norm, its tokens, and the gradients that its loss has computed already.
    # What goes into its block is a product, in 16 bits under autocast, and so is what comes out unless RMS norms of
    # branches raise it; layer norms leave it so.
    narrow = config.norm == "layer" or config.norm_position == "pre"
    out = pass_.compute_width if narrow else stream
    joined = 2 * size * pass_.compute_width + 2 * block.norm(stream) - size * stream + block.norm(out)
    joined -= size * (stream - pass_.compute_width)
    kept += config.mtp_depth * (pass_.stream * joined + size * (out if config.norm == "layer" else stream) + 8)
    heads = config.mtp_depth * pass_.vocabulary_size * size * stream
    return int(pass_.tokens * kept) + heads


def _loss_transient(config: Model, pass_: MicroBatch) -> int:
    """Bytes of projection and cross-entropy at their highest, the head's finished gradient not counted."""
    rows, vocabulary, size = min(pass_.loss_chunk, pass_.tokens), pass_.vocabulary_size, config.hidden_size
    held = 2 * pass_.tokens * size * pass_.stream_width  # the last hidden states, and their gradient
    held += vocabulary * size * (4 - pass_.stream_width)  # the weight's gradient is summed in fp32
    one = rows * vocabulary  # logits of a chunk; their gradient takes their place
    logits = one * (8 if config.logit_softcap is not None else 4)
    if pass_.compute_width == 4:
        return held + logits
    logits += 2 * one * 2  # as the product gives them, and their gradient as the next product takes it
    product = 2 * one * 2 + vocabulary * size * 2  # added to the fp32 sum, chunk by chunk
    weight = vocabulary * size * 2 if pass_.casts else 0  # in 16 bits
    return held + weight + max(logits, product)
