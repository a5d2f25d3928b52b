"""What a configuration leaves open is taken to be what an engineer would choose who has the memory."""

from __future__ import annotations

from dataclasses import replace

from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.memory import memory_bytes
from stoker.planning.cluster.parameters import shipped_parameters
from stoker.planning.cluster.sizes import stage_sizes
from stoker.planning.cluster.workload import FULL, NONE, SELECTIVE, Offload, Recompute, Workload

_FAST_HOST_GBPS = 200
_USABLE = 1.0
_MICRO_BATCHES_FOR_EACH_STAGE = 4


def fits(workload: Workload, cluster: Cluster) -> bool:
    """Whether an accelerator's memory holds it."""
    needed = memory_bytes(workload, stage_sizes(workload), shipped_parameters()).allocated
    return needed <= _USABLE * (cluster.accelerator.memory_gb or 0.0) * 1e9


def with_least_recompute(workload: Workload, cluster: Cluster) -> Workload:
    """Nothing is computed again unless memory asks for it; then core attention, then whole layers.

    Where the host is reached as fast as a neighbour (Grace), activations rest there instead.
    """
    if (cluster.accelerator.host_gbps or 0.0) >= _FAST_HOST_GBPS:
        for quarter in range(4):
            trial = replace(workload, offload=Offload(activations=quarter / 4))
            if fits(trial, cluster):
                return trial
    shares = tuple(Recompute(quarter / 4) for quarter in (1, 2, 3))
    candidates = (NONE, SELECTIVE) if workload.attention_kernel == "unfused" else (NONE, *shares)
    for recompute in candidates:
        trial = replace(workload, recompute=recompute)
        if fits(trial, cluster):
            return trial
    return replace(workload, recompute=FULL)


def with_largest_micro_batch(workload: Workload, cluster: Cluster) -> Workload:
    """The largest power of two that fits and leaves each pipeline stage at least four micro-batches."""
    p = workload.parallelism
    each = workload.global_batch_size // p.dp
    fewest = _MICRO_BATCHES_FOR_EACH_STAGE * p.pp if p.pp > 1 else 1
    best, size = replace(workload, micro_batch_size=1), 2
    while each % size == 0 and each // size >= fewest:
        trial = replace(workload, micro_batch_size=size)
        if not fits(trial, cluster):
            break
        best, size = trial, 2 * size
    return best
