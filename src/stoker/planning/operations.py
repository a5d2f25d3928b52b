"""What one training step computes: its matrix products, its attention, and the bytes its other passes move.

Letters as in `stoker.model`. A matrix product is named by its rows, inner size and columns.
"""

from __future__ import annotations

from typing import NamedTuple

from stoker.planning.activations import MicroBatch
from stoker.recipe import Model
from stoker.recipe.memory import OPERATIONS, Recomputed

DOCUMENTS_PER_SEQUENCE = 2
"""What is assumed of packed text, whose lengths a plan does not know."""


class Matmul(NamedTuple):
    """[rows, inner] times [inner, columns]."""

    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counting two."""
        return 2 * self.rows * self.inner * self.columns


def projection(rows: int, inputs: int, outputs: int) -> list[Matmul]:
    """A linear layer's three products: its output, its input's gradient, its weight's gradient."""
    return [Matmul(rows, inputs, outputs), Matmul(rows, outputs, inputs), Matmul(outputs, rows, inputs)]


def block_matmuls(config: Model, tokens: int, layer: int = 0, pass_: MicroBatch | None = None) -> list[Matmul]:
    """The products of one block, forward and backward, over `tokens` tokens; experts at even load.

    `pass_` says how experts are divided; without it they are not.
    """
    size = config.hidden_size
    widths = _attention_widths(config)
    found = []
    moe = config.moe
    if moe is None or not config.has_experts(layer):
        inner = config.ffn_hidden_size
        widths += [(size, inner), (inner, size), *([(size, inner)] if config.activation != "gelu" else [])]
    else:
        inner, shared = config.expert_width, moe.shared_experts * config.expert_width
        ep, routed = (1, 1.0) if pass_ is None else (pass_.ep, pass_.routed)
        if pass_ is not None and pass_.whole_experts:
            shared = -(-shared // pass_.tp)
        widths += [(size, shared), (size, shared), (shared, size)] if shared else []
        found += projection(max(1, round(tokens * routed)), size, moe.experts)
        rows = tokens * routed * moe.experts_per_token * min(1.0, moe.capacity_factor or 1.0) / moe.experts
        for inputs, outputs in ((size, inner), (size, inner), (inner, size)):
            found += moe.experts // ep * projection(max(1, round(rows * ep)), inputs, outputs)
    return found + [matmul for inputs, outputs in widths for matmul in projection(tokens, inputs, outputs)]


def expanded_again(config: Model, tokens: int) -> list[Matmul]:
    """The products by which a block's backward pass makes queries, keys and values of latents once more."""
    return [Matmul(tokens, inputs, outputs) for inputs, outputs in _expanded(config)]


def further_token_matmuls(config: Model, pass_: MicroBatch) -> list[Matmul]:
    """The products of one module for a further token, outside its block and its loss."""
    return projection(round(pass_.tokens * pass_.stream), 2 * config.hidden_size, config.hidden_size)


def _attention_widths(config: Model) -> list[tuple[int, int]]:
    """Inputs and outputs of attention's projections."""
    size, query = config.hidden_size, config.heads * config.size_of_head
    output = (config.heads * config.value_size, size)
    latent = config.latent_attention
    if latent is None:
        kv = config.key_value_heads * config.size_of_head
        return [(size, query), (size, kv), (size, kv), output]
    rank = latent.query_rank
    queries = [(size, query)] if rank is None else [(size, rank), (rank, query)]
    up = config.heads * (latent.nope_head_size + latent.value_head_size)
    return [*queries, (size, latent.kv_rank), (size, latent.rope_head_size), (latent.kv_rank, up), output]


def _expanded(config: Model) -> list[tuple[int, int]]:
    """Of these, the ones that make queries, keys and values of latents, which backward keeps in their place."""
    if config.latent_attention is None:
        return []
    return [(inputs, outputs) for inputs, outputs in _attention_widths(config)[:-1] if inputs != config.hidden_size]


class Repeated(NamedTuple):
    """What a layer's backward pass does again of its forward pass."""

    matmuls: list[Matmul]
    attention_flops: float
    moved: float
    """Bytes that other passes read and write."""
    sent: float
    """Bytes to other ranks."""


def repeated(config: Model, pass_: MicroBatch, layer: int, recomputed: Recomputed) -> Repeated:
    """Of a layer that recomputes these operations and whatever is cheap; see `stoker.parallel.recompute`.

    The last product of a layer is not wanted again where nothing but a sum follows it.
    """
    tokens, size, moe = pass_.tokens, config.hidden_size, config.moe if config.has_experts(layer) else None
    of_attention = _attention_widths(config)
    widths = _expanded(config)
    last = 1 if config.norm_position != "pre" else 0
    if "attention_projections" in recomputed:
        widths += [one for one in of_attention[:-1] if one[0] == size]
    if "attention_output" in recomputed:
        widths += of_attention[-1:]
    if "feed_forward" in recomputed:
        inner = config.ffn_hidden_size if moe is None else moe.shared_experts * config.expert_width
        if pass_.whole_experts and moe is not None:
            inner = -(-inner // pass_.tp)
        gated = 2 if config.activation != "gelu" else 1
        widths += ([(size, inner)] * gated + [(inner, size)] * last) if inner else []
    found = [Matmul(tokens, inputs, outputs) for inputs, outputs in widths]
    sent = 0.0
    if pass_.tp > 1:
        sent += 2 * tokens * size * pass_.stream_width
        sent += tokens * size * pass_.compute_width if recomputed == frozenset(OPERATIONS) else 0
    if moe is not None:
        found.append(Matmul(max(1, round(tokens * pass_.routed)), size, moe.experts))
        if "experts" in recomputed:
            rows = pass_.routed * moe.experts_per_token * min(1.0, moe.capacity_factor or 1.0) * tokens
            each = max(1, round(rows * pass_.ep / moe.experts))
            shapes = ((size, config.expert_width),) * 2 + ((config.expert_width, size),)
            found += [Matmul(each, *shape) for shape in shapes] * (moe.experts // pass_.ep)
            sent += 2 * rows * size * pass_.compute_width if pass_.ep > 1 else 0
    attended = "attention" in recomputed
    if pass_.cp > 1 and (attended or pass_.cp_method == "all_gather"):
        keys = config.heads if config.latent_attention else config.key_value_heads
        sent += (pass_.cp - 1) * tokens * keys * (config.size_of_head + config.value_size) * pass_.compute_width
    return Repeated(
        found,
        attention_flops(config, pass_) / 3 if attended else 0.0,
        block_bytes(config, pass_) * _OF_FORWARD,
        sent,
    )


_OF_FORWARD = 1 / 3
"""The part of a block's passes over memory that its forward pass makes."""


def loss_matmuls(config: Model, pass_: MicroBatch) -> list[Matmul]:
    """The products of one chunk of projection and cross-entropy."""
    rows = min(pass_.loss_chunk, pass_.tokens)
    return projection(rows, config.hidden_size, pass_.vocabulary_size)


def attention_flops(config: Model, pass_: MicroBatch) -> float:
    """Operations of one micro-batch's attention in one block, forward and backward.

    Causal attention counts in full, as its rate does. Where packed documents are attended to one by
    one, each sequence is taken to hold two of equal length: half of all pairs.
    """
    pairs = float(pass_.batch * pass_.length * pass_.whole_length)
    by_document = config.sliding_window is None and config.position != "alibi" and config.attention_softcap is None
    if pass_.document_mask and by_document:
        pairs /= DOCUMENTS_PER_SEQUENCE
    # Kernels for processors compute values as wide as keys.
    value = config.size_of_head if pass_.dense_masks else config.value_size
    return 6 * config.heads * (config.size_of_head + value) * pairs


def block_bytes(config: Model, pass_: MicroBatch) -> int:
    """Bytes that one block's passes over activations read and write, outside matrix products and attention.

    Counted forward and backward: a pass reads its inputs and writes its output. Compiled blocks fuse
    neighbouring passes, so that each tensor moves once where one region ends.
    """
    size, inner = config.hidden_size, config.ffn_hidden_size
    if config.moe is not None:  # rows of experts, and these sorted and put back
        inner = (config.moe.experts_per_token + config.moe.shared_experts) * config.expert_width
        inner += 2 * config.moe.experts_per_token * size
        inner = int(inner * pass_.routed)
    heads = (config.heads + config.key_value_heads) * config.size_of_head
    gated = config.activation != "gelu"
    norms = 4 if config.norm_position == "both" else 2
    compiled = pass_.compiled
    moved = pass_.stream * norms * _norm_elements(config, compiled)
    if config.qk_norm != "none":
        moved += heads * (6 if compiled else 14)
    if config.position == "rope":
        moved += heads * (4 if compiled else 10)
    # Residual sums, and adding the two gradients of the stream.
    moved += pass_.stream * 2 * size * (2 if compiled else 3)
    moved += (3 + 6 if compiled else 5 + 11) * inner if gated else (2 + 3) * inner
    if not compiled:
        # Gradients that arrive from several projections of one input are added.
        moved += 3 * size * (2 + (1 if gated else 0))
    if config.dropout:
        moved += pass_.stream * 2 * size * (4 if compiled else 9)
    if pass_.casts and not compiled:
        moved += 10 * size  # 16-bit copies of the projections' inputs, and their gradients' way back
    if config.attention_softcap is not None:
        moved += 26 * config.heads * pass_.whole_length
    return int(pass_.tokens * moved * _mean_width(pass_))


def outside_bytes(config: Model, pass_: MicroBatch) -> int:
    """Bytes that embedding and last norm move, forward and backward."""
    moved = _norm_elements(config, compiled=False) + 6 * config.hidden_size
    return int(pass_.tokens * pass_.stream * moved * _mean_width(pass_))


def _norm_elements(config: Model, compiled: bool) -> float:
    """Elements a norm moves per token: RMS norm is a chain of operations unless fused, layer norm one each way.

    Compiled norms are fused, and their result is written again in the backward pass.
    """
    return config.hidden_size * (8 if compiled or config.norm != "rms" else 17)


def _mean_width(pass_: MicroBatch) -> float:
    return (pass_.stream_width + pass_.compute_width) / 2


def loss_bytes(config: Model, pass_: MicroBatch) -> int:
    """Bytes that the passes over one chunk's logits move."""
    rows = min(pass_.loss_chunk, pass_.tokens)
    passes = 7 + (8 if config.logit_softcap is not None else 0) + (4 if pass_.compute_width == 2 else 0)
    return passes * rows * pass_.vocabulary_size * 4
