"""Floating-point operations of the model itself in one step; recomputation is not counted."""

from __future__ import annotations

from typing import NamedTuple

from stoker.planning.cluster.layers import attention_widths, pairs_of
from stoker.planning.cluster.workload import Architecture, Workload


class ModelFlops(NamedTuple):
    """Of all accelerators, a multiply-add counting two."""

    full: float
    """Attention as if every token saw all (the PaLM convention), or as many as its window is wide."""
    causal: float
    """Attention over the pairs that are not masked."""


def matmul_parameters(a: Architecture) -> float:
    """Parameters that a token is multiplied with: of experts those it uses, the head, no embedding."""
    attention = sum(inputs * outputs for inputs, outputs in attention_widths(a, 1))
    dense = attention + a.hidden_size * a.ffn_matrices * a.ffn_hidden_size
    found, extra = a.layers * dense, dense
    if a.experts is not None:
        moe = a.experts
        inner = moe.per_token * moe.ffn_hidden_size + moe.shared_ffn_hidden_size
        sparse = attention + a.hidden_size * (a.ffn_matrices * inner + moe.count)
        routed = moe.layers(a.layers)
        found, extra = (a.layers - routed) * dense + routed * sparse, sparse
    head = a.vocabulary_size * a.hidden_size
    return found + head + a.mtp_depth * (extra + 2 * a.hidden_size**2 + head)


def model_flops(workload: Workload) -> ModelFlops:
    """Of one step: six per parameter in a matrix product and token, and attention's two products three times."""
    a, length = workload.architecture, workload.sequence_length
    products = 6 * matmul_parameters(a) * workload.tokens
    layers = a.layers + a.mtp_depth
    each = 6 * workload.global_batch_size * a.heads * (a.size_of_head + a.size_of_value)
    whole, seen = float(length * length), pairs_of(length, None)
    if a.sliding_window is not None:
        near = a.windowed_layers
        whole = near * length * min(a.sliding_window, length) + (1 - near) * whole
        seen = near * pairs_of(length, a.sliding_window) + (1 - near) * seen
    return ModelFlops(products + layers * each * whole, products + layers * each * seen)
