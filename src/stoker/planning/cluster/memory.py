"""How many bytes the accelerator that holds most needs, by category."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.planning.cluster.parameters import Parameters
from stoker.planning.cluster.sizes import StageSizes
from stoker.planning.cluster.workload import Workload


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Of one accelerator at its highest moment."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    """Gathered parameters, logits, what one layer needs for a moment."""
    framework: float
    """Context of the driver, communicators, and what an allocator cannot use between its blocks."""

    offloaded: float = 0.0
    """Activations of one micro-batch that rest in the host's memory."""
    optimizer_elements: float = 0.0
    """Parameters that this rank updates."""
    fragmentation: float = 0.0
    """Bytes of `framework` that the allocator holds and cannot give out."""
    host: float = 0.0
    """Bytes that rest in the host's memory, of all that this rank holds."""

    @property
    def allocated(self) -> float:
        """What the framework's own allocator says was used at most."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers

    @property
    def reserved(self) -> float:
        """What the framework's own allocator held at most."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> float:
        """What the device shows as used."""
        return self.allocated + self.framework


def kept_per_token(workload: Workload, experts: bool) -> float:
    """Bytes that one layer keeps for backward of each token of a micro-batch on one rank.

    Korthikanti et al. 2022 (arXiv:2205.05198, eq. 1-4): 34 h + 5 a s for GPT with dropout and unfused
    attention, of which what is beside the sharded matrices is divided over `tp` with sequence parallelism only.
    """
    a, p, again = workload.architecture, workload.parallelism, workload.recompute.operations
    stream = 1 / p.tp if p.sequence_parallel else 1.0
    operand = 1.0 if workload.precision in ("fp8", "fp4") else 2.0
    h, heads = a.hidden_size, a.heads / p.tp
    kept = stream * h * (4 + (2 if a.dropout else 0) + (0 if "pointwise" in again else 2 * operand))
    if a.latent is not None:
        kept += 2 * (a.latent.query_rank + a.latent.kv_rank + a.latent.rope_head_size)
    if "attention_projections" not in again:
        kv_heads = heads if a.latent is not None else max(a.kv_heads / p.tp, 1.0)
        kept += 2 * (heads * a.size_of_head + kv_heads * (a.size_of_head + a.size_of_value))
    unfused = workload.attention_kernel == "unfused"
    if unfused or "attention" not in again:
        kept += 2 * heads * a.size_of_value + 4 * heads
    if unfused and "attention" not in again:
        kept += (5 if a.dropout else 2) * heads * workload.sequence_length
    if not experts or a.experts is None:
        return kept + _inner(a.ffn_hidden_size / p.tp, workload, "feed_forward" in again)
    moe = a.experts
    divided = p.tp if p.expert_tp == 1 else 1
    rows = moe.per_token * moe.imbalance / divided
    if "experts" not in again:
        kept += rows * (2 * h + _inner(moe.ffn_hidden_size / p.expert_tp, workload, False))
    kept += 8 * moe.count / divided
    return kept + _inner(moe.shared_ffn_hidden_size / p.tp, workload, "feed_forward" in again)


def _inner(width: float, workload: Workload, computed_again: bool) -> float:
    """Bytes of what a feed-forward block keeps inside: before its activation, and after."""
    if computed_again:
        return 0.0
    operand = 1.0 if workload.precision in ("fp8", "fp4") else 2.0
    before = (4 if workload.architecture.gated else 2) * width
    return before if "pointwise" in workload.recompute.operations else before + operand * width


def passes_in_flight(workload: Workload) -> float:
    """Micro-batches whose activations the first rank holds, in units of all its layers."""
    p, count = workload.parallelism, workload.micro_batches
    if p.pp == 1:
        return 1.0
    if p.schedule == "gpipe":
        return float(count)
    if p.schedule in ("zbv", "dualpipe_v"):
        return min(count, p.pp + (0.5 if p.schedule == "dualpipe_v" else 0.0))
    if p.schedule == "zb_h2":
        return min(count, 2.0 * p.pp - 1)
    v = p.stages_per_rank
    if v == 1:
        return float(min(count, p.pp))
    return min(float(count), p.pp * (1 + (p.pp - 1) / (p.pp * v)))


def memory_bytes(workload: Workload, sizes: StageSizes, values: Parameters) -> MemoryBytes:
    """Of the rank that holds most: the first of a pipeline, which has most passes in flight."""
    a, p = workload.architecture, workload.parallelism
    shards = p.dp_shard * p.cp
    dense = sizes.dense_parameters + sizes.embedding_parameters
    expert_ranks = max(1, p.world_size // p.pp // p.ep // p.expert_tp)
    expert_shards = min(expert_ranks, max(1, shards * p.tp // (p.ep * p.expert_tp))) if p.dp_shard > 1 else 1

    def held(stage: int) -> float:
        if p.zero_stage < stage:
            return dense + sizes.expert_parameters
        return dense / shards + sizes.expert_parameters / expert_shards

    tokens = workload.micro_batch_size * workload.sequence_length / p.cp
    stream = tokens / p.tp if p.sequence_parallel else tokens
    plain = tokens * kept_per_token(workload, experts=False)
    sparse = tokens * kept_per_token(workload, experts=True) if sizes.expert_layers else 0.0
    layer_input = stream * a.hidden_size * 2
    again = workload.recompute.layers
    each = again * layer_input + (1 - again) * plain
    each_sparse = again * layer_input + (1 - again) * sparse
    flying = passes_in_flight(workload)
    whole = (sizes.layers - sizes.expert_layers) * each + sizes.expert_layers * each_sparse
    if p.pp > 1 and workload.keeps_stage_outputs:
        whole += layer_input * p.stages_per_rank
    resting = workload.offload.activations
    # Two layers of each micro-batch in flight are on the accelerator at a time.
    activations = flying * whole * (1 - resting) + (2 * max(each, each_sparse) if resting else 0.0)
    working = max(plain, sparse) if again > 0 else 0.0
    widest = 2 * tokens * (2 if a.gated else 1) * a.ffn_hidden_size / p.tp  # its gradient, for a moment
    buffers = max(working + widest, _logits(workload, tokens)) + 2 * layer_input
    away = workload.offload.parameters
    if (p.zero_stage == 3 and shards > 1) or away:
        layer = (sizes.dense_parameters + sizes.expert_parameters) / sizes.layers
        buffers += 2 * layer * workload.parameter_bytes + sizes.embedding_parameters * workload.parameter_bytes
        buffers += layer * workload.gradient_bytes
    parameters = held(3) * workload.kept_parameter_bytes * (1 - away)
    gradients = held(2) * workload.gradient_bytes * (1 - away)
    optimizer = held(1) * workload.optimizer_bytes * (1 - workload.offload.optimizer)
    allocated = parameters + gradients + optimizer + activations + buffers
    communicators = sum(size > 1 for size in (p.tp, p.pp, p.cp, p.ep, p.dp))
    framework = values["context_bytes"] + values["communicator_bytes"] * communicators
    fragmentation = values["fragmentation"] * allocated
    framework += fragmentation
    host = (held(3) * workload.kept_parameter_bytes + held(2) * workload.gradient_bytes) * away
    host += held(1) * workload.optimizer_bytes * workload.offload.optimizer + flying * whole * resting
    return MemoryBytes(
        parameters,
        gradients,
        optimizer,
        activations,
        buffers,
        framework,
        offloaded=whole * resting,
        optimizer_elements=held(1),
        fragmentation=fragmentation,
        host=host,
    )


def _logits(workload: Workload, tokens: float) -> float:
    a, p = workload.architecture, workload.parallelism
    return tokens * a.vocabulary_size / p.tp * (4 + 2)
