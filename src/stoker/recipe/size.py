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
    """In matrix products with every token: projections of the blocks and the head (tied or not)."""
    vector: int
    """Norms and biases."""


@dataclass(frozen=True)
class FlopsPerToken:
    """Floating-point operations of one token's forward and backward pass (a multiply-add is two).

    A matrix of n parameters costs 2n forward and 4n backward. Attention between a query and a key
    costs 4 × heads × head size forward (logits, then mixing) and twice that backward. Norms,
    activations and the softmax are left out, recomputation too.
    """

    matrix: int
    """6 × the parameters in matrix products, head included."""
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
    D, inner = config.hidden_size, config.ffn_hidden_size
    query, kv = config.heads * config.size_of_head, config.key_value_heads * config.size_of_head
    gated = config.activation != "gelu"
    norm = D * (2 if config.norm == "layer" else 1)
    matrix = 2 * D * query + 2 * D * kv + (3 if gated else 2) * D * inner
    vector = norm * (4 if config.norm_position == "both" else 2)
    vector += {"none": 0, "head": 2 * config.size_of_head, "full": query + kv}[config.qk_norm]
    vector += (query + 2 * kv) * config.attention_bias + D * config.attention_output_bias
    vector += ((2 if gated else 1) * inner + D) * config.ffn_bias
    matrix, vector = matrix * config.layers + vocabulary_size * D, vector * config.layers + norm
    embedding = sequence_length * D if config.position == "learned" else 0
    embedding += 0 if config.tie_embeddings else vocabulary_size * D
    return ParameterCount(embedding + matrix + vector, embedding, matrix, vector)


def flops_per_token(config: Model, vocabulary_size: int, sequence_length: int) -> FlopsPerToken:
    """Arithmetic of one training token in sequences of `sequence_length`; see `FlopsPerToken`."""
    L, window = sequence_length, min(config.sliding_window or sequence_length, sequence_length)
    pair = 12 * config.heads * config.size_of_head * config.layers
    pairs = window * L - window * (window - 1) // 2
    matrix = 6 * parameter_count(config, vocabulary_size).matrix
    return FlopsPerToken(matrix, pair * L, pair * pairs // L)
