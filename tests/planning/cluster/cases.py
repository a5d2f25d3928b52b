"""Small configurations that the tests of the cluster model share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.planning.cluster import Architecture, Cluster, Parallelism, Workload, cluster_of

MEASUREMENTS = Path(__file__).parent / "data" / "measurements.csv"

LLAMA_8B = Architecture(
    layers=32, hidden_size=4096, heads=32, kv_heads=8, ffn_hidden_size=14336, vocabulary_size=128256
)
GPT_175B = Architecture(
    layers=96,
    hidden_size=12288,
    heads=96,
    kv_heads=96,
    ffn_hidden_size=49152,
    vocabulary_size=51200,
    gated=False,
    tied_embeddings=True,
    dropout=True,
)


def h100(nodes: int = 1, **changes: Any) -> Cluster:
    return cluster_of({"accelerator": "H100", "nodes": nodes, **changes})


def workload(architecture: Architecture = LLAMA_8B, **changes: Any) -> Workload:
    given: dict[str, Any] = {
        "architecture": architecture,
        "sequence_length": 4096,
        "parallelism": Parallelism(dp_shard=8, zero_stage=3),
        "micro_batch_size": 1,
        "global_batch_size": 64,
    }
    return Workload(**{**given, **changes})


def with_architecture(one: Workload, **changes: Any) -> Workload:
    return replace(one, architecture=replace(one.architecture, **changes))
