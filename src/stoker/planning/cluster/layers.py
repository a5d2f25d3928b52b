"""Seconds of one layer's passes over one micro-batch on one rank."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.planning.cluster.parameters import Rates
from stoker.planning.cluster.workload import Architecture, Workload


@dataclass(slots=True)
class LayerSeconds:
    """Forward and backward of a layer, by part. Recomputation is what `recompute` adds to backward."""

    projections_forward: float = 0.0
    """Products that queries, keys and values come from."""
    output_forward: float = 0.0
    ffn_forward: float = 0.0
    experts_forward: float = 0.0
    matmul_backward: float = 0.0
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    pointwise_forward: float = 0.0
    pointwise_backward: float = 0.0
    host: float = 0.0

    @property
    def matmul_forward(self) -> float:
        """All products of the forward pass."""
        return self.projections_forward + self.output_forward + self.ffn_forward + self.experts_forward

    @property
    def forward(self) -> float:
        """All that the accelerator computes in the forward pass."""
        return self.matmul_forward + self.attention_forward + self.pointwise_forward

    @property
    def backward(self) -> float:
        """All that the accelerator computes in the backward pass, recomputation apart."""
        return self.matmul_backward + self.attention_backward + self.pointwise_backward


def aligned(size: float) -> float:
    """How badly `size` elements fit whole tiles: 0 for multiples of 64, 1 for odd multiples of 8, 2 below that."""
    whole = int(size)
    if whole % 64 == 0:
        return 0.0
    if whole % 32 == 0:
        return 0.25
    if whole % 16 == 0:
        return 0.5
    return 1.0 if whole % 8 == 0 else 4.0


def product(rates: Rates, rows: float, inner: float, columns: float, groups: float = 1.0) -> float:
    """Seconds in units of an operation's: 2·rows·inner·columns with the waste of waves and of filling."""
    outputs = rows * columns * groups
    waves = outputs / (16384.0 * rates.processors)
    waste = 1.0 + rates.wave * (-(-waves // 1.0) / waves - 1.0)
    return 2.0 * outputs * inner * waste * (1.0 + rates.fill / inner)


def linear(rates: Rates, tokens: float, inputs: float, outputs: float, groups: float = 1.0) -> tuple[float, float]:
    """Operations' worth of forward, and of backward (gradients of input and of weight)."""
    bad = 1.0 + rates.misalignment * (aligned(inputs) + aligned(outputs)) if rates.misalignment else 1.0
    forward = product(rates, tokens, inputs, outputs, groups) * bad
    backward = product(rates, tokens, outputs, inputs, groups) + product(rates, inputs, tokens, outputs, groups)
    return forward, backward * bad


def attention_widths(a: Architecture, tp: int) -> list[tuple[float, float]]:
    """Inputs and outputs of attention's projections on one rank."""
    h = a.hidden_size
    if a.latent is None:
        kv = max(a.kv_heads / tp, 1.0) * a.size_of_head
        return [(h, a.heads * a.size_of_head / tp + 2 * kv), (a.heads * a.size_of_head / tp, h)]
    latent = a.latent
    queries = a.heads * a.size_of_head / tp
    first = [(h, latent.query_rank), (latent.query_rank, queries)] if latent.query_rank else [(h, queries)]
    return [
        *first,
        (h, latent.kv_rank + latent.rope_head_size),
        (latent.kv_rank, a.heads * (latent.nope_head_size + latent.value_head_size) / tp),
        (a.heads * latent.value_head_size / tp, h),
    ]


def layer_seconds(workload: Workload, rates: Rates, experts: bool) -> LayerSeconds:
    """One layer, dense or with experts."""
    a, p = workload.architecture, workload.parallelism
    tokens = workload.micro_batch_size * workload.sequence_length / p.cp
    stream = tokens / p.tp if p.sequence_parallel else tokens
    found = LayerSeconds()
    widths = attention_widths(a, p.tp)
    for inputs, outputs in widths[:-1]:
        found.projections_forward += _product(found, rates, tokens, inputs, outputs)
    found.output_forward = _product(found, rates, tokens, *widths[-1])
    inner = a.ffn_hidden_size / p.tp
    if experts and a.experts is not None:
        _mixture(found, workload, rates, tokens)
        inner = a.experts.shared_ffn_hidden_size / p.tp
    if inner:
        found.ffn_forward = _product(found, rates, tokens, a.hidden_size, (2 if a.gated else 1) * inner)
        found.ffn_forward += _product(found, rates, tokens, inner, a.hidden_size)
        found.pointwise_forward += tokens * inner * (6 if a.gated else 4) * rates.pointwise
        found.pointwise_backward += tokens * inner * (10 if a.gated else 6) * rates.pointwise
    _attention(found, workload, rates, tokens)
    drop = 3 if a.dropout else 0
    found.pointwise_forward += stream * a.hidden_size * (20 + drop) * rates.pointwise
    found.pointwise_backward += stream * a.hidden_size * (26 + drop) * rates.pointwise
    found.host = rates.host_layer
    return found


def _product(found: LayerSeconds, rates: Rates, tokens: float, inputs: float, outputs: float) -> float:
    """Adds a linear layer's backward pass, and what its operands' casts take; returns its forward pass."""
    forward, backward = linear(rates, tokens, inputs, outputs)
    found.matmul_backward += backward * rates.matmul
    if rates.cast:
        cast = rates.cast * (tokens * (inputs + outputs) + inputs * outputs) / 2
        found.pointwise_forward += cast
        found.pointwise_backward += cast
    return forward * rates.matmul


def _mixture(found: LayerSeconds, workload: Workload, rates: Rates, tokens: float) -> None:
    a, p = workload.architecture, workload.parallelism
    moe = a.experts
    assert moe is not None
    divided = p.tp if p.expert_tp == 1 else 1
    rows = tokens / divided * moe.per_token * moe.imbalance
    here = moe.count / p.ep
    inner = moe.ffn_hidden_size / p.expert_tp
    each = rows / here
    padded = each + 32.0
    for inputs, outputs in ((a.hidden_size, (2 if a.gated else 1) * inner), (inner, a.hidden_size)):
        forward, backward = linear(rates, padded, inputs, outputs, here)
        weights = here * inputs * outputs * rates.byte
        found.experts_forward += max(forward * rates.matmul, weights * rates.operand_bytes)
        found.matmul_backward += max(backward * rates.matmul, weights * (rates.operand_bytes + 4.0))
        if rates.cast:
            cast = rates.cast * (rows * (inputs + outputs) + here * inputs * outputs)
            found.pointwise_forward += cast / 2
            found.pointwise_backward += cast / 2
    router = linear(rates, tokens / divided, a.hidden_size, moe.count)
    found.experts_forward += router[0] * rates.wide_matmul
    found.matmul_backward += router[1] * rates.wide_matmul
    moved = rows * inner * (6 if a.gated else 4) + rows * a.hidden_size * 8  # permuted and put back
    back = rows * inner * (10 if a.gated else 6) + rows * a.hidden_size * 8
    found.pointwise_forward += moved * rates.pointwise
    found.pointwise_backward += back * rates.pointwise


def pairs_of(length: float, window: float | None) -> float:
    """Query-key pairs of one causal sequence."""
    if window is None or window >= length:
        return length * length / 2
    return window * (length - window / 2)


def _attention(found: LayerSeconds, workload: Workload, rates: Rates, tokens: float) -> None:
    a, p = workload.architecture, workload.parallelism
    length, heads = workload.sequence_length, a.heads / p.tp
    sequences = workload.micro_batch_size
    width = a.size_of_head + a.size_of_value
    rope = tokens * (heads + max(a.kv_heads / p.tp, 1.0)) * a.size_of_head * 4 * rates.pointwise
    found.pointwise_forward += rope
    found.pointwise_backward += rope
    if workload.attention_kernel == "unfused":
        scores = sequences * heads * length * length / p.cp
        bad = 1.0 + (rates.unaligned_heads if a.size_of_head % 8 else 0.0)
        forward = 2.0 * scores * width * (1.0 + rates.fill / a.size_of_head) * bad
        found.attention_forward += forward * rates.wide_matmul + scores * 13 * rates.score_passes
        found.attention_backward += 2 * forward * rates.wide_matmul + scores * 19 * rates.score_passes
        return
    pairs = pairs_of(length, None)
    if a.sliding_window is not None:
        windowed = pairs_of(length, a.sliding_window)
        pairs = a.windowed_layers * windowed + (1 - a.windowed_layers) * pairs
    operations = 2.0 * sequences * heads * width * pairs / p.cp
    small = (1.0 + rates.attention_length / length) * (1.0 + rates.small_heads * max(0.0, 128 / a.size_of_head - 1))
    if workload.attention_kernel == "flash2":
        small *= rates.flash2
    forward = operations * small * rates.attention
    found.attention_forward += forward
    found.attention_backward += forward * rates.attention_backward
