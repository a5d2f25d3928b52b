"""Seconds of one step on the rank that computes longest, part by part."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from stoker.planning.cluster.bubbles import bubble_seconds
from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.layers import LayerSeconds, layer_seconds, linear
from stoker.planning.cluster.links import Links
from stoker.planning.cluster.memory import MemoryBytes
from stoker.planning.cluster.parameters import Parameters, Rates, rates_of
from stoker.planning.cluster.sizes import StageSizes, stage_sizes
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import Workload


@dataclass(slots=True)
class Seconds:
    """One step on the busiest rank; the parts add up to `total`."""

    matmul: float = 0.0
    attention: float = 0.0
    pointwise: float = 0.0
    launch: float = 0.0
    tp: float = 0.0
    cp: float = 0.0
    ep: float = 0.0
    dp: float = 0.0
    pp_bubble: float = 0.0
    pp_transfer: float = 0.0
    optimizer: float = 0.0
    recompute: float = 0.0
    offload: float = 0.0
    data: float = 0.0
    straggler: float = 0.0

    @property
    def total(self) -> float:
        """All parts."""
        return float(sum(getattr(self, one.name) for one in fields(self)))


def _combined(gpu: float, host: float) -> float:
    """Seconds of work that a host issues while an accelerator computes: the longer, with a soft corner."""
    if host <= 0.0:
        return gpu
    ratio = host / gpu
    if ratio < 0.2:
        return gpu
    return float(gpu * (1.0 + ratio**4) ** 0.25)


@dataclass(slots=True)
class _Pass:
    """Seconds of one micro-batch in all layers of a rank, forward and backward with recomputation apart."""

    seconds: Seconds
    forward: float
    backward: float


def step_seconds(
    workload: Workload, cluster: Cluster, software: Software, values: Parameters, memory: MemoryBytes | None = None
) -> Seconds:
    """Seconds of one step, part by part. `memory` is only asked for by what is offloaded."""
    rates = rates_of(cluster.accelerator, workload.precision, software, values)
    links = Links.of(cluster, values)
    sizes = stage_sizes(workload)
    p, count = workload.parallelism, workload.micro_batches
    one = _passes(workload, rates, links, values, sizes, software)
    seconds, head = one.seconds, _head(workload, rates)
    # The rank with the head computes longest where layers divide evenly; else its layers are fewer.
    ends = head if workload.architecture.layers % p.pp == 0 else 0.0
    for part in _OF_A_PASS:
        setattr(seconds, part, getattr(seconds, part) * count)
    seconds.matmul += ends * count
    busy = (one.forward + one.backward + ends) * count
    if p.pp > 1:
        _pipeline(seconds, workload, links, values, software, one)
    seconds.dp = _data_parallel(workload, links, values, sizes, software, one.forward + one.backward + ends, busy)
    seconds.optimizer = _optimizer(workload, rates, sizes)
    if memory is not None:
        seconds.offload = _offload(workload, memory, cluster, values, busy)
    seconds.data = rates.step
    nodes = p.world_size / links.per_node
    if nodes > 1:
        seconds.straggler = values["straggler"] * math.log2(nodes) * seconds.total
    return seconds


_OF_A_PASS = ("matmul", "attention", "pointwise", "launch", "tp", "cp", "ep", "recompute")


def _pipeline(
    seconds: Seconds, workload: Workload, links: Links, values: Parameters, software: Software, one: _Pass
) -> None:
    p, count = workload.parallelism, workload.micro_batches
    seconds.pp_bubble = bubble_seconds(p.schedule, p.pp, p.stages_per_rank, count, one.forward, one.backward)
    tokens = workload.micro_batch_size * workload.sequence_length / p.cp
    amount = tokens * workload.architecture.hidden_size * 2
    hop = links.hop(p.tp * p.cp * p.dp, amount / p.tp if software.scatters_transfers else amount)
    seconds.pp_transfer = 2 * hop * (count * p.stages_per_rank * values["pp_exposed"] + p.pp - 1)


def _passes(
    workload: Workload, rates: Rates, links: Links, values: Parameters, sizes: StageSizes, software: Software
) -> _Pass:
    a = workload.architecture
    seconds = Seconds()
    forward = backward = 0.0
    held = (sizes.dense_parameters + sizes.expert_parameters) / sizes.layers
    weights = held * (values["weight_bytes"] + software.bucket_bytes) * rates.byte
    kinds = [(sizes.layers - sizes.expert_layers, False), (sizes.expert_layers, True)]
    for count, experts in kinds:
        if count <= 0:
            continue
        layer = layer_seconds(workload, rates, experts)
        tp, tp_calls = _tensor_parallel(workload, links, values, software)
        cp = _context_parallel(workload, links, values, layer)
        ep = _expert_parallel(workload, links, values) if experts else 0.0
        host = layer.host + tp_calls * rates.host_collective
        if experts and a.experts is not None:
            host += rates.host_expert * a.experts.count / workload.parallelism.ep
        if workload.cuda_graphs:
            host *= values["host_graphed"]
        again, again_sent = _recomputed(workload, layer, tp, cp, ep)
        layer.pointwise_backward += weights
        gpu_forward = layer.forward + (tp + cp + ep) / 2
        gpu_backward = layer.backward + again + again_sent + (tp + cp + ep) / 2
        waits_forward = _combined(gpu_forward, host / 3) - gpu_forward
        share = 2 / 3 + (workload.recompute.layers / 3)
        waits_backward = _combined(gpu_backward, host * share) - gpu_backward
        seconds.matmul += count * (layer.matmul_forward + layer.matmul_backward)
        seconds.attention += count * (layer.attention_forward + layer.attention_backward)
        seconds.pointwise += count * (layer.pointwise_forward + layer.pointwise_backward)
        seconds.launch += count * (waits_forward + waits_backward)
        seconds.tp += count * tp
        seconds.cp += count * cp
        seconds.ep += count * ep
        seconds.recompute += count * (again + again_sent)
        forward += count * (gpu_forward + waits_forward)
        backward += count * (gpu_backward + waits_backward)
    return _Pass(seconds, forward, backward)


def _recomputed(workload: Workload, layer: LayerSeconds, tp: float, cp: float, ep: float) -> tuple[float, float]:
    """Seconds of computation and of traffic that backward repeats, a layer."""
    recompute = workload.recompute
    part = 0.0
    for operation in recompute.operations:
        match operation:
            case "attention":
                part += layer.attention_forward
            case "attention_projections":
                part += layer.projections_forward
            case "attention_output":
                part += layer.output_forward
            case "feed_forward":
                part += layer.ffn_forward
            case "experts":
                part += layer.experts_forward
            case "pointwise":
                part += layer.pointwise_forward
    whole = recompute.layers
    # Of a ring of keys and values one pass in three is forward; of all other traffic half is.
    return whole * layer.forward + (1 - whole) * part, whole * (tp / 2 + cp / 3 + ep / 2)


def _tensor_parallel(
    workload: Workload, links: Links, values: Parameters, software: Software
) -> tuple[float, float]:
    p = workload.parallelism
    if p.tp == 1:
        return 0.0, 0.0
    amount = workload.micro_batch_size * workload.sequence_length / p.cp * workload.architecture.hidden_size * 2
    one = links.ring(p.tp, 1, amount)
    # Each half of the layer: two ring passes (gather and scatter, or the halves of a sum) forward, two backward.
    total = 8 * one
    if software.overlaps_tp:
        total *= 1 - values["tp_overlap"]
    return total, 8 if p.sequence_parallel else 4


def _context_parallel(workload: Workload, links: Links, values: Parameters, layer: LayerSeconds) -> float:
    p, a = workload.parallelism, workload.architecture
    if p.cp == 1:
        return 0.0
    kv = max(a.kv_heads / p.tp, 1.0) * (a.size_of_head + a.size_of_value) * 2
    if a.latent is not None:
        kv = a.heads / p.tp * (a.size_of_head + a.size_of_value) * 2
    amount = workload.micro_batch_size * workload.sequence_length * kv
    one = links.ring(p.cp, p.tp, amount)
    return 3 * one * (1 - values["cp_overlap"])


def _expert_parallel(workload: Workload, links: Links, values: Parameters) -> float:
    p, a = workload.parallelism, workload.architecture
    if p.ep == 1 or a.experts is None:
        return 0.0
    tokens = workload.micro_batch_size * workload.sequence_length / p.cp / (p.tp if p.expert_tp == 1 else 1)
    amount = tokens * a.experts.per_token * a.experts.imbalance * a.hidden_size * 2
    stride = 1 if p.expert_tp == 1 else p.tp
    hidden = values["dualpipe_overlap"] if p.schedule == "dualpipe_v" else values["ep_overlap"]
    return 4 * links.exchange(p.ep, stride, amount, a.experts.per_token) * (1 - hidden)


def _head(workload: Workload, rates: Rates) -> float:
    a, p = workload.architecture, workload.parallelism
    tokens = workload.micro_batch_size * workload.sequence_length / p.cp
    forward, backward = linear(rates, tokens, a.hidden_size, -(-a.vocabulary_size // (128 * p.tp)) * 128)
    passes = 1 + a.mtp_depth
    return passes * ((forward + backward) * rates.wide_matmul + tokens * a.vocabulary_size / p.tp * rates.loss)


@dataclass(slots=True)
class _Replicas:
    """Who holds the same parameters: shards of one copy, and copies."""

    workload: Workload
    links: Links
    sizes: StageSizes

    def _rings(self) -> list[tuple[float, int, int, int]]:
        """Parameters, shards, copies and stride, of what all ranks share and of experts."""
        p = self.workload.parallelism
        shards = p.dp_shard * p.cp if p.zero_stage else p.dp * p.cp
        shared = self.sizes.dense_parameters + self.sizes.embedding_parameters
        found = [(shared, shards, p.dp * p.cp // shards, p.tp)]
        if self.sizes.expert_parameters:
            stride = p.ep * p.expert_tp
            ranks = max(1, p.world_size // p.pp // stride)
            own = min(ranks, max(1, shards * p.tp // stride)) if p.zero_stage else ranks
            found.append((self.sizes.expert_parameters, own, max(1, ranks // own), stride))
        return found

    def gathered(self, parameter_bytes: float) -> float:
        """Seconds to gather or scatter the shards of one copy."""
        return sum(
            self.links.ring(shards, stride, held * parameter_bytes) for held, shards, _, stride in self._rings()
        )

    def summed(self, parameter_bytes: float) -> float:
        """Seconds to sum over shards and, what each then holds, over copies."""
        copied = sum(
            2 * self.links.ring(copies, stride * shards, held / shards * parameter_bytes)
            for held, shards, copies, stride in self._rings()
        )
        return self.gathered(parameter_bytes) + copied


def _data_parallel(
    workload: Workload,
    links: Links,
    values: Parameters,
    sizes: StageSizes,
    software: Software,
    backward: float,
    busy: float,
) -> float:
    p = workload.parallelism
    if p.dp * p.cp == 1:
        return 0.0
    replicas, count = _Replicas(workload, links, sizes), workload.micro_batches
    gradients, gathers = replicas.summed(workload.gradient_bytes), replicas.gathered(workload.parameter_bytes)
    if p.zero_stage >= 2:
        # Only a shard of the gradients is kept, so every micro-batch's are summed, while others are computed.
        whole = count * gradients + (2 * count if p.zero_stage == 3 else 1) * gathers
        overlap, hidden_behind = values["fsdp_overlap"], busy
    else:
        whole = gradients + (gathers if p.zero_stage else gradients)
        if software.broadcasts_shards and p.zero_stage and p.dp_shard * p.tp > links.domain:
            whole += p.dp_shard * values["broadcast_latency"]
        if not software.overlaps_gradients:
            return whole
        overlap, hidden_behind = values["dp_overlap"], backward
    return (1 - overlap) * whole + max(0.0, overlap * whole - hidden_behind)


def _optimizer(workload: Workload, rates: Rates, sizes: StageSizes) -> float:
    p = workload.parallelism
    held = sizes.dense_parameters + sizes.embedding_parameters
    shards = p.dp_shard * p.cp if p.zero_stage else 1
    own = held / shards
    if sizes.expert_parameters:
        copies = max(1, p.world_size // p.pp // p.ep // p.expert_tp)
        own += sizes.expert_parameters / (copies if p.zero_stage else 1)
        held += sizes.expert_parameters
    kept = held if p.zero_stage < 2 else own
    moved = own * (2 * workload.optimizer_bytes + workload.gradient_bytes + workload.parameter_bytes)
    moved += kept * 2 * workload.gradient_bytes
    return moved * rates.byte


def _offload(workload: Workload, memory: MemoryBytes, cluster: Cluster, values: Parameters, busy: float) -> float:
    """Seconds that the step waits for the host: activations there and back, and parameters that rest there,
    as far as computation does not hide it; then gradients there, the update by the processor, and parameters back.
    """
    share = workload.offload
    if not share.activations and not share.optimizer and not share.parameters:
        return 0.0
    published = cluster.accelerator.host_gbps
    link = published * 1e9 * values["link_efficiency"] if published else values["host_link"]
    moved = 2 * memory.offloaded * workload.micro_batches / link
    # Each micro-batch has its weights brought twice, and its gradients taken away.
    each = 2 * workload.kept_parameter_bytes + workload.gradient_bytes
    moved += memory.optimizer_elements * share.parameters * each * workload.micro_batches / link
    own = memory.optimizer_elements * share.optimizer
    update = own * (1 - share.parameters) * (workload.gradient_bytes + workload.parameter_bytes) / link
    update += own * (2 * workload.optimizer_bytes + 4) * cluster.accelerators_per_node / values["host_memory"]
    return max(0.02 * moved, moved - busy) + update
