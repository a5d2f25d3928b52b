"""Predictions for clusters that are described: memory and seconds of a step, part by part."""

from stoker.planning.cluster.accelerators import Accelerator, accelerator_named
from stoker.planning.cluster.cluster import Cluster, cluster_of, read_cluster
from stoker.planning.cluster.prediction import Prediction, predict
from stoker.planning.cluster.recipes import architecture_of, parallelism_of, workload_of
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.step import Seconds
from stoker.planning.cluster.workload import (
    Architecture,
    Experts,
    Latent,
    Offload,
    Parallelism,
    Recompute,
    Workload,
)

__all__ = [
    "Accelerator",
    "Architecture",
    "Cluster",
    "Experts",
    "Latent",
    "Offload",
    "Parallelism",
    "Prediction",
    "Recompute",
    "Seconds",
    "Software",
    "Workload",
    "accelerator_named",
    "architecture_of",
    "cluster_of",
    "parallelism_of",
    "predict",
    "read_cluster",
    "workload_of",
]
