"""From a row of published measurements to what the model asks for, with every assumption that it takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from stoker.errors import BadInput
from stoker.planning.cluster import software
from stoker.planning.cluster.accelerators import accelerator_named
from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.filling_in import fits, with_largest_micro_batch, with_least_recompute
from stoker.planning.cluster.row_architecture import CannotBeModelled, Row, architecture_in, need, number
from stoker.planning.cluster.row_software import software_in
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import (
    ALL_BUT_PRODUCTS,
    FULL,
    NONE,
    SELECTIVE,
    Parallelism,
    PipelineName,
    Precision,
    Recompute,
    Workload,
)

__all__ = ["CannotBeModelled", "Case", "case_of"]

_LARGEST_SHARD_GROUP = 256
"""Of hybrid sharding whose groups a row does not say."""


_MOST_STAGES_ASSUMED = 8
"""Of each rank, where a row says that stages are interleaved and not how many: at most a layer each."""
_OFFLOADED_SINCE = 2025
"""From then on recipes for XLA rest products on the host where memory is short."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row, understood."""

    workload: Workload
    cluster: Cluster
    software: Software
    assumptions: tuple[str, ...]
    allocated_memory: bool = False
    """Whether memory was read from the allocator; otherwise it is what the device shows."""


def case_of(row: Row) -> Case:
    """What `row` measured. Raises `CannotBeModelled`, with the reason, where that cannot be said."""
    assumptions: list[str] = []
    if row.get("pretrain") == "no":
        raise CannotBeModelled("not pretraining")
    architecture = architecture_in(row, assumptions)
    cluster, used = _cluster(row), software_in(row)
    parallelism = _parallelism(row, used, assumptions)
    precision = _precision(row, cluster, assumptions)
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
        precision=precision,
        attention_kernel=used.attention,
        gradient_bytes=2.0 if precision == "fp16" or "PURE" in row["notes"] else used.bf16_gradient_bytes,
        optimizer_bytes=used.optimizer_bytes,
        kept_parameter_bytes=used.kept_parameter_bytes,
        cuda_graphs=re.search(r"cuda.?graph", row["notes"], re.IGNORECASE) is not None,
        keeps_stage_outputs=used.keeps_stage_outputs,
    )
    stated = _recompute(row["recompute"], unfused)
    workload = replace(workload, recompute=stated or NONE)
    if micro is None:
        workload = with_largest_micro_batch(workload, cluster)
        assumptions.append(f"micro-batch of {workload.micro_batch_size}, the largest that fits")
    if stated is None:
        offloads = (number(row, "year") or _OFFLOADED_SINCE) >= _OFFLOADED_SINCE
        workload = _usual_recompute(workload, cluster, used, offloads, assumptions)
    return Case(workload, cluster, used, tuple(assumptions), "allocated" in row["notes"])


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


def _recompute(text: str, unfused: bool) -> Recompute | None:
    """None where nothing is said: `full`, `selective`, `none`, `every 2`, `1/3`, `0.25`, `selective op`."""
    words = text.strip().lower()
    if not words:
        return None
    share = re.search(r"(\d+)\s*/\s*(\d+)|every (\d+)|(\d*\.\d+)", words)
    if share:
        over, under, every, decimal = share.groups()
        if over:
            return Recompute(min(1.0, int(over) / int(under)))
        return Recompute(1 / int(every)) if every else Recompute(min(1.0, float(decimal)))
    if words in ("none", "no", "off", "false"):
        return NONE
    if re.search(r"selective.?op|\bop\b|operation|\bdots?\b|minimal", words):
        return ALL_BUT_PRODUCTS
    if "selective" in words or "attention" in words or "attn" in words:
        return SELECTIVE if unfused else Recompute(0.0, frozenset({"attention"}))
    return FULL


def _cluster(row: Row) -> Cluster:
    gpus, per_node = need(row, "gpus_total"), number(row, "gpus_per_node")
    try:
        return _cluster_of(row["gpu"], gpus, per_node, row.get("interconnect", ""))
    except BadInput as error:
        raise CannotBeModelled(str(error)) from None


@lru_cache(maxsize=1024)
def _cluster_of(gpu: str, gpus: int, per_node: int | None, interconnect: str) -> Cluster:
    accelerator = accelerator_named(gpu)
    per_node = per_node or accelerator.per_node or 8
    given: dict[str, object] = {"accelerator": accelerator, "accelerators_per_node": per_node}
    given["nodes"] = max(1, -(-gpus // per_node))
    network = _network(interconnect, per_node)
    if network:
        given["nic_gbps"] = network
    rack = re.search(r"NVL(\d+)", interconnect)
    if rack:
        given["link_domain"] = int(rack[1])
    return Cluster.model_validate(given)


def _network(text: str, per_node: int) -> float | None:
    """10^9 bytes a second of one accelerator, from words such as `8x200Gb` or `1600 Gbps RoCE/node`."""
    ports = re.search(r"(\d+) ?x ?(\d+) ?Gb", text)
    if ports:
        return int(ports[1]) * int(ports[2]) / 8 / per_node
    links = re.search(r"(\d+) [A-Za-z -]*?(\d+) ?Gb/s links per node", text)
    if links:
        return int(links[1]) * int(links[2]) / 8 / per_node
    whole = re.search(r"(\d+) ?Gb(?:ps|/s)[^;]*(?:/|per )node", text)
    if whole:
        return int(whole[1]) / 8 / per_node
    each = re.search(r"(\d+) ?Gb(?:ps|/s)", text)  # of one port, which an accelerator usually has to itself
    return int(each[1]) / 8 if each and int(each[1]) <= 800 else None


def _zero_stage(row: Row, used: Software, assumptions: list[str]) -> Literal[0, 1, 2, 3]:
    kind = re.sub(r"[^a-z0-9]", "", row["dp_kind"].lower())
    if re.search(r"zero3|fsdp|hsdp|hybrid|fullshard", kind):
        return 3
    if re.search(r"zero2|shardgradop", kind):
        return 2
    if re.search(r"zero1|dist", kind):
        return 1
    if kind:
        return 0
    usual: Literal[1, 3] = 3 if used in (software.FSDP, software.JAX) else 1
    assumptions.append(f"ZeRO stage {usual}")
    return usual


def _parallelism(row: Row, used: Software, assumptions: list[str]) -> Parallelism:
    tp, pp, cp = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "cp") or 1
    ranks = max(1, need(row, "gpus_total") // (tp * pp * cp))
    dp = number(row, "dp") or ranks
    if dp * tp * pp * cp > need(row, "gpus_total"):
        assumptions.append(f"{ranks} data-parallel ranks, as many as there are accelerators for")
        dp = ranks
    stage = _zero_stage(row, used, assumptions)
    if stage == 3 and pp > 1:
        # Gathering for each of many micro-batches would dwarf all else: Llama 3 keeps what is gathered.
        stage = 2
        assumptions.append("parameters gathered once a step, for there is a pipeline")
    shard = dp if stage else 1
    group = re.search(r"(?:sharding group=|zero1 group )(\d+)", row["notes"])
    if group:
        shard = min(dp, int(group[1]))
    elif "hsdp" in row["dp_kind"].lower() and dp > _LARGEST_SHARD_GROUP:
        shard = _LARGEST_SHARD_GROUP
        assumptions.append(f"parameters sharded over {shard}")
    schedule, v = _schedule(row, pp)
    return Parallelism(
        tp=tp,
        sequence_parallel=tp > 1 and row["sp"] == "yes",
        pp=pp,
        stages_per_rank=v,
        schedule=schedule,
        cp=cp,
        ep=number(row, "ep") or 1,
        dp_replicate=max(1, dp // shard),
        dp_shard=shard,
        zero_stage=stage,
    )


def _schedule(row: Row, pp: int) -> tuple[PipelineName, int]:
    """Schedule and stages of each rank; ZB1p is ZB-H1, ZB2p is ZB-H2 (Qi et al. 2023)."""
    text, v = re.sub(r"[^a-z0-9]", "", row.get("schedule", "").lower()), number(row, "vpp") or 1
    if pp == 1:
        return "1f1b", 1
    if re.search(r"dualpipe", text):
        return "dualpipe_v", 2
    if re.search(r"zbv|vhalf|vmin|zerobubblev", text):
        return "zbv", 2
    if re.search(r"zbh2|zb2p|zb2", text):
        return "zb_h2", 1
    if re.search(r"zb|zerobubble", text):
        return "interleaved_zero_bubble", v
    if re.search(r"gpipe|afab|allforward", text):
        return "gpipe", 1
    if v > 1 or "interleaved" in text:
        stated = number(row, "vpp") or 0
        return "interleaved_1f1b", max(2, stated or min(_MOST_STAGES_ASSUMED, need(row, "layers") // pp))
    return "1f1b", 1


def _precision(row: Row, cluster: Cluster, assumptions: list[str]) -> Precision:
    text, known = row["precision"].lower(), cluster.accelerator
    if "fp4" in text and known.fp4_tflops:
        return "fp4"
    if re.search(r"fp8|float8|int8|e4m3", text):
        if known.fp8_tflops:
            return "fp8"
        assumptions.append("16 bits, for the accelerator has no faster 8-bit products")
    if re.search(r"fp32|float32|tf32", text) and "bf16" not in text:
        return "fp32"
    half = re.search(r"fp16|float16", text) and not re.search(r"bf16|bfloat16", text)
    return "fp16" if half else "bf16"
