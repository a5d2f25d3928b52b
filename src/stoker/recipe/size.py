"""How large a model is and how much arithmetic a token costs, from its config alone."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.recipe import Model


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of parameters."""

    total: int
    embedding: int
    """Token and position embeddings that are only looked up; a tied embedding counts under `matrix`."""
    matrix: int
    """In matrix products: projections of the blocks, all experts, and the head (tied or not)."""
    vector: int
    """Norms and biases."""
    idle: int
    """Of `matrix`, those of experts that a token does not use: E - k of the E in each layer."""

    @property
    def active(self) -> int:
        """Parameters that one token uses, as published for mixtures of experts."""
        return self.total - self.idle


@dataclass(frozen=True)
class FlopsPerToken:
    """Floating-point operations of one token's forward and backward pass (a multiply-add is two).

    A matrix of n parameters costs 2n forward and 4n backward. Attention between a query and a key
    costs 2 × heads × (size of a query + size of a value) forward (logits, then mixing) and twice that
    backward. Norms, activations and the softmax are left out, recomputation too, and the fewer
    tokens that experts with a capacity or modules for further tokens see.
    """

    matrix: int
    """6 × the parameters in a token's matrix products, the head included each time it is used."""
    attention_full: int
    """Attention as if every query saw the whole sequence (the PaLM convention of model FLOPs)."""
    attention_causal: int
    """Attention over the pairs that a causal mask (and the window) allows, averaged over the sequence."""

    @property
    def full(self) -> int:
        """Matrix products and full attention: what published MFU figures count."""
        return self.matrix + self.attention_full

    @property
    def causal(self) -> int:
        """Matrix products and the attention that is needed."""
        return self.matrix + self.attention_causal


def parameter_count(config: Model, vocabulary_size: int, sequence_length: int = 0) -> ParameterCount:
    """Parameters of `Decoder(config, vocabulary_size, sequence_length)`.

    `sequence_length` matters only with learned positions.
    """
    D, depth = config.hidden_size, config.mtp_depth
    norm = _norm(config)
    matrix, vector = vocabulary_size * D + depth * 2 * D * D, norm * (1 + 3 * depth)
    idle = 0
    for layer in range(config.layers + depth):
        matrix += _attention_matrix(config)
        vector += _attention_vector(config) + norm * (4 if config.norm_position == "both" else 2)
        if config.moe is not None and config.has_experts(layer):
            expert = 3 * D * config.expert_width
            matrix += config.moe.experts * D + (config.moe.experts + config.moe.shared_experts) * expert
            idle += (config.moe.experts - config.moe.experts_per_token) * expert
        else:
            gated = config.activation != "gelu"
            matrix += (3 if gated else 2) * D * config.ffn_hidden_size
            vector += ((2 if gated else 1) * config.ffn_hidden_size + D) * config.ffn_bias
    embedding = sequence_length * D if config.position == "learned" else 0
    embedding += 0 if config.tie_embeddings else vocabulary_size * D
    return ParameterCount(embedding + matrix + vector, embedding, matrix, vector, idle)


def flops_per_token(config: Model, vocabulary_size: int, sequence_length: int) -> FlopsPerToken:
    """Arithmetic of one training token in sequences of `sequence_length`; see `FlopsPerToken`."""
    L, window = sequence_length, min(config.sliding_window or sequence_length, sequence_length)
    pair = 6 * config.heads * (config.size_of_head + config.value_size) * (config.layers + config.mtp_depth)
    pairs = window * L - window * (window - 1) // 2
    count = parameter_count(config, vocabulary_size)
    matrix = count.matrix - count.idle + config.mtp_depth * vocabulary_size * config.hidden_size
    return FlopsPerToken(6 * matrix, pair * L, pair * pairs // L)


def _norm(config: Model) -> int:
    return config.hidden_size * (2 if config.norm == "layer" else 1)


def _attention_matrix(config: Model) -> int:
    """Parameters of attention's projections in one block."""
    D, query = config.hidden_size, config.heads * config.size_of_head
    output = config.heads * config.value_size * D
    latent = config.latent_attention
    if latent is None:
        return D * query + 2 * D * config.key_value_heads * config.size_of_head + output
    queries = D * query if latent.query_rank is None else latent.query_rank * (D + query)
    down = D * (latent.kv_rank + latent.rope_head_size)
    up = latent.kv_rank * config.heads * (latent.nope_head_size + latent.value_head_size)
    return queries + down + up + output


def _attention_vector(config: Model) -> int:
    """Norms and biases inside of attention in one block."""
    output = config.hidden_size * config.attention_output_bias
    latent = config.latent_attention
    if latent is not None:
        return latent.kv_rank + (latent.query_rank or 0) + output
    query, kv = config.heads * config.size_of_head, config.key_value_heads * config.size_of_head
    norms = {"none": 0, "head": 2 * config.size_of_head, "full": query + kv}[config.qk_norm]
    return norms + (query + 2 * kv) * config.attention_bias + output
