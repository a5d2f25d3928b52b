"""How many parameters a model has, and how many of them one rank holds."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.planning.cluster.layers import attention_widths
from stoker.planning.cluster.workload import Architecture, Workload


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of one layer on one tensor-parallel rank."""

    dense: float
    """Attention, norms and what all tokens go through."""
    experts: float = 0.0
    """Of the experts at hand."""


def layer_parameters(a: Architecture, tp: int, ep: int, expert_tp: int, experts: bool) -> LayerParameters:
    """Of a dense layer or of one with experts."""
    dense = sum(inputs * outputs for inputs, outputs in attention_widths(a, tp)) + 2.0 * a.hidden_size
    matrix = a.hidden_size * a.ffn_matrices
    if not experts or a.experts is None:
        return LayerParameters(dense + matrix * a.ffn_hidden_size / tp)
    moe = a.experts
    dense += matrix * moe.shared_ffn_hidden_size / tp + a.hidden_size * moe.count
    return LayerParameters(dense, matrix * moe.ffn_hidden_size / expert_tp * moe.count / ep)


def total_parameters(a: Architecture, sequence_length: int = 0) -> float:
    """Of the whole model."""
    with_experts = a.experts.layers(a.layers) if a.experts else 0
    dense = layer_parameters(a, 1, 1, 1, experts=False)
    sparse = layer_parameters(a, 1, 1, 1, experts=True)
    found = (a.layers - with_experts) * dense.dense + with_experts * (sparse.dense + sparse.experts)
    found += a.mtp_depth * (sparse.dense + sparse.experts + 2 * a.hidden_size**2)
    found += a.vocabulary_size * a.hidden_size * (1 if a.tied_embeddings else 2)
    return found + (sequence_length * a.hidden_size if a.learned_positions else 0) + a.hidden_size


@dataclass(frozen=True, slots=True)
class StageSizes:
    """What the busiest pipeline rank holds."""

    layers: float
    """Of its layers, those of modules for further tokens too."""
    expert_layers: float
    """Those of them that have experts."""
    dense_parameters: float
    expert_parameters: float
    embedding_parameters: float
    """Of embedding or head, on one rank."""


def layers_of_rank(layers: int, pp: int) -> float:
    """Layers of the rank that has most.

    Where `layers` do not divide but two more would, embedding and head stand for a layer each (Llama 3).
    """
    if layers % pp == 0:
        return layers / pp
    return float(-(-layers // pp))


def stage_sizes(workload: Workload) -> StageSizes:
    """Of the rank with most layers and an end of the model."""
    a, p = workload.architecture, workload.parallelism
    layers = layers_of_rank(a.layers, p.pp)
    share = a.experts.layers(a.layers) / a.layers if a.experts else 0.0
    dense = layer_parameters(a, p.tp, p.ep, p.expert_tp, experts=False).dense
    sparse = layer_parameters(a, p.tp, p.ep, p.expert_tp, experts=True)
    # Leading dense layers are on the first rank alone: the others' layers all have experts.
    routed = layers * share if p.pp == 1 else min(layers, layers * p.pp * share)
    with_experts = routed + (a.mtp_depth if a.experts else 0)
    plain = layers - routed + (0 if a.experts else a.mtp_depth)
    ends = 2 if p.pp == 1 and not a.tied_embeddings else 1
    return StageSizes(
        layers=layers + a.mtp_depth,
        expert_layers=with_experts,
        dense_parameters=plain * dense + with_experts * sparse.dense,
        expert_parameters=with_experts * sparse.experts,
        embedding_parameters=ends * a.vocabulary_size * a.hidden_size / p.tp,
    )
