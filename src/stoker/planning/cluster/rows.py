"""From a row of published measurements to what the model asks for, with every assumption that it takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from stoker.planning.cluster import software
from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.filling_in import fits, with_largest_micro_batch, with_least_recompute
from stoker.planning.cluster.row_architecture import CannotBeModelled, Row, architecture_in, need, number, says
from stoker.planning.cluster.row_cells import problem_of, tidied
from stoker.planning.cluster.row_cluster import cluster_in
from stoker.planning.cluster.row_layout import parallelism_in, shards_parameters
from stoker.planning.cluster.row_recompute import recompute_in
from stoker.planning.cluster.row_software import software_in
from stoker.planning.cluster.sizes import layers_of_rank
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import ALL_BUT_PRODUCTS, NONE, Precision, Workload

__all__ = ["CannotBeModelled", "Case", "case_of"]

_OFFLOADED_SINCE = 2025
"""From then on recipes for XLA rest products on the host where memory is short."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row, understood."""

    workload: Workload
    cluster: Cluster
    software: Software
    assumptions: tuple[str, ...]
    memory_of: Literal["device", "allocated", "reserved"] = "device"
    """What was read: what the device shows, or of the allocator what it gave out or what it held."""


def case_of(row: Row) -> Case:
    """What `row` measured. Raises `CannotBeModelled`, with the reason, where that cannot be said."""
    assumptions: list[str] = []
    row = tidied(row)
    if row.get("pretrain") == "no":
        raise CannotBeModelled("not pretraining")
    problem = problem_of(row)
    if problem:
        raise CannotBeModelled(problem)
    architecture, cluster = architecture_in(row, assumptions), cluster_in(row)
    used = software_in(row, cluster.accelerator.architecture)
    parallelism = parallelism_in(row, used, assumptions)
    unfused = used.attention == "unfused"
    micro = number(row, "micro_batch")
    batch = number(row, "global_batch_seqs")
    if batch is None:
        batch = (micro or 1) * parallelism.dp
        assumptions.append(f"global batch of {batch} sequences: one micro-batch a step")
    workload = Workload(
        architecture=replace(architecture, dropout=unfused),
        sequence_length=need(row, "seq_len"),
        parallelism=parallelism,
        micro_batch_size=micro or 1,
        global_batch_size=batch,
        attention_kernel=used.attention,
        optimizer_bytes=used.optimizer_bytes,
        kept_parameter_bytes=used.kept_parameter_bytes,
        cuda_graphs=says(row["notes"].lower(), r"cuda.?graph"),
        keeps_stage_outputs=used.keeps_stage_outputs,
    )
    workload = _in_its_precision(workload, row, cluster, used, assumptions)
    if shards_parameters(row) and parallelism.zero_stage == 1:
        # The fp32 copy stays divided; what is gathered for the step has 16 bits.
        workload = replace(workload, kept_parameter_bytes=workload.parameter_bytes, optimizer_bytes=12.0)
    stated = recompute_in(row["recompute"], layers_of_rank(architecture.layers, parallelism.pp), used)
    workload = replace(workload, recompute=stated or NONE)
    if micro is None:
        workload = with_largest_micro_batch(workload, cluster)
        assumptions.append(f"micro-batch of {workload.micro_batch_size}, the largest that fits")
    if stated is None:
        offloads = (number(row, "year") or _OFFLOADED_SINCE) >= _OFFLOADED_SINCE
        workload = _usual_recompute(workload, cluster, used, offloads, assumptions)
    return Case(workload, cluster, used, tuple(assumptions), _memory_of(row["notes"].lower()))


def _memory_of(notes: str) -> Literal["device", "allocated", "reserved"]:
    if "allocated" in notes:
        return "allocated"
    return "reserved" if "reserved" in notes else "device"


def _in_its_precision(
    workload: Workload, row: Row, cluster: Cluster, used: Software, assumptions: list[str]
) -> Workload:
    precision = _precision(row, cluster, assumptions)
    if precision in ("fp32", "tf32"):
        return replace(
            workload, precision=precision, parameter_bytes=4.0, kept_parameter_bytes=4.0, optimizer_bytes=8.0
        )
    half = precision == "fp16" or "PURE" in row["notes"]
    return replace(workload, precision=precision, gradient_bytes=2.0 if half else used.bf16_gradient_bytes)


def _usual_recompute(
    workload: Workload, cluster: Cluster, used: Software, offloads: bool, assumptions: list[str]
) -> Workload:
    products_kept = replace(workload, recompute=ALL_BUT_PRODUCTS)
    if used is software.JAX and (offloads or fits(products_kept, cluster)):
        assumptions.append(
            "all but matrix products computed again, as XLA's usual policies do, on the host if need be"
        )
        return products_kept
    workload = with_least_recompute(workload, cluster)
    share, away = workload.recompute.layers, workload.offload.activations
    if away:
        assumptions.append(f"{away:.0%} of the activations on the host, the least that fits")
    else:
        assumptions.append(f"recomputation of {share:.0%} of the layers, the least that fits")
    return workload


def _precision(row: Row, cluster: Cluster, assumptions: list[str]) -> Precision:
    text, known = row["precision"].lower(), cluster.accelerator
    if "fp4" in text and known.fp4_tflops:
        return "fp4"
    if re.search(r"fp8|float8|int8|e4m3", text):
        if known.fp8_tflops:
            return "fp8"
        assumptions.append("16 bits, for the accelerator has no faster 8-bit products")
    sixteen = re.search(r"fp16|float16|bf16|half|mixed|amp", text)
    if not sixteen and "tf32" in text and known.architecture != "volta":
        return "tf32"
    if not sixteen and re.search(r"fp32|float32|tf32|single", text):
        return "fp32"
    half = re.search(r"fp16|float16|half", text) and not re.search(r"bf16|bfloat16", text)
    # Volta has no bf16: what is mixed there is fp16.
    return "fp16" if half or known.bf16_tflops is None else "bf16"
