"""From a row of published measurements to what the model asks for, with every assumption that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from stoker.errors import BadInput
from stoker.planning.cluster import software
from stoker.planning.cluster.accelerators import accelerator_named
from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.filling_in import with_largest_micro_batch, with_least_recompute
from stoker.planning.cluster.sizes import total_parameters
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import (
    ALL_BUT_PRODUCTS,
    FULL,
    NONE,
    SELECTIVE,
    Architecture,
    Experts,
    Latent,
    Parallelism,
    Workload,
)

Row = Mapping[str, str]


class CannotBeModelled(BadInput):
    """A row lacks what a prediction needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row, understood."""

    workload: Workload
    cluster: Cluster
    software: Software
    assumptions: tuple[str, ...]
    allocated_memory: bool = False
    """Whether memory was read from the allocator; otherwise it is what the device shows."""


def number(row: Row, column: str) -> int | None:
    """A count, or None where the row is silent."""
    text = row.get(column, "").strip()
    return int(float(text)) if text else None


def _need(row: Row, column: str) -> int:
    found = number(row, column)
    if not found:
        raise CannotBeModelled(f"no {column}")
    return found


def case_of(row: Row) -> Case:
    """Raises `CannotBeModelled`."""
    assumptions: list[str] = []
    if row.get("pretrain") == "no":
        raise CannotBeModelled("not pretraining")
    if "hybrid" in row["notes"] or "mamba" in row["notes"].lower():
        raise CannotBeModelled("layers that are no transformer's")
    architecture = _architecture(row, assumptions)
    cluster = _cluster(row)
    used = _software(row)
    parallelism = _parallelism(row, cluster, assumptions)
    precision = _precision(row)
    kernel = used.attention
    old = kernel == "unfused"
    micro = number(row, "micro_batch")
    batch = _need(row, "global_batch_seqs")
    dropout = old
    architecture = replace(architecture, dropout=dropout)
    workload = Workload(
        architecture=architecture,
        sequence_length=_need(row, "seq_len"),
        parallelism=parallelism,
        micro_batch_size=micro or 1,
        global_batch_size=batch,
        recompute=_RECOMPUTE.get(row["recompute"].strip(), NONE),
        precision=precision,
        attention_kernel=kernel,
        gradient_bytes=2.0 if precision == "fp16" else used.bf16_gradient_bytes,
        optimizer_bytes=used.optimizer_bytes,
        kept_parameter_bytes=used.kept_parameter_bytes,
        keeps_stage_outputs=used.keeps_stage_outputs,
    )
    if "PURE" in row["notes"]:
        workload = replace(workload, gradient_bytes=2.0)
    if micro is None:
        workload = with_largest_micro_batch(workload, cluster)
        assumptions.append(f"micro-batch of {workload.micro_batch_size}, the largest that fits")
    if not row["recompute"].strip():
        if used is software.JAX:
            workload = replace(workload, recompute=ALL_BUT_PRODUCTS)
            assumptions.append("all but matrix products computed again, as XLA's usual policies do")
        else:
            workload = with_least_recompute(workload, cluster)
            assumptions.append(
                f"recomputation of {workload.recompute.layers:.0%} of the layers, the least that fits"
            )
    return Case(workload, cluster, used, tuple(assumptions), "allocated" in row["notes"])


def _architecture(row: Row, assumptions: list[str]) -> Architecture:
    layers, hidden = _need(row, "layers"), _need(row, "hidden")
    heads = number(row, "heads")
    head_size = re.search(r"head_dim (\d+)", row["notes"])
    if heads is None or (hidden % heads and not head_size and not number(row, "experts")):
        heads = layers if heads is None and hidden % layers == 0 else max(1, hidden // 128)
        assumptions.append(f"{heads} heads")
    name, notes = row["model_name"].lower(), row["notes"]
    experts = number(row, "experts")
    ffn = number(row, "ffn") or 4 * hidden
    if not number(row, "ffn") and "internlm" in name:
        ffn = 13824
    gated = ffn != 4 * hidden or "llama" in name or "qwen" in name
    vocabulary = number(row, "vocab")
    if vocabulary is None:
        vocabulary = 51200
        assumptions.append("vocabulary of 51,200")
    common = dict(
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=number(row, "kv_heads") or heads,
        vocabulary_size=vocabulary,
        head_size=int(head_size.group(1)) if head_size else 0,
        gated=gated or experts is not None,
        tied_embeddings=not gated and experts is None,
        learned_positions=not gated and experts is None,
    )
    if experts is None:
        return _nearest_in_size(Architecture(ffn_hidden_size=ffn, **common), row)
    first = 0
    latent = None
    shared = 0
    if "MLA" in notes or "deepseek" in name:
        latent = Latent(1536, 512, 128, 64, 128)
        first = 1 if "first layer" in notes else 3
        if "L4" in row["model_name"]:
            first = 1
        found = re.search(r"(\d+) shared expert", notes)
        shared = ffn * (int(found.group(1)) if found else 1)
    dense = re.search(r"dense ffn (\d+)", notes)
    return Architecture(
        ffn_hidden_size=int(dense.group(1)) if dense else ffn,
        latent=latent,
        experts=Experts(experts, number(row, "topk") or 2, ffn, shared, first),
        sliding_window=128 if "gpt-oss" in name else None,
        windowed_layers=0.5,
        **common,
    )


def _nearest_in_size(architecture: Architecture, row: Row) -> Architecture:
    """With embeddings tied or not, whichever comes nearer to the size that the row states."""
    text = row.get("params_b", "")
    if not text:
        return architecture
    either = [
        replace(architecture, tied_embeddings=tied)
        for tied in (architecture.tied_embeddings, not architecture.tied_embeddings)
    ]
    length = number(row, "seq_len") or 0
    return min(either, key=lambda one: abs(total_parameters(one, length) - float(text) * 1e9))


_SOFTWARE = (
    (r"maxtext|jax|pax|tpu", software.JAX),
    (r"oneflow", software.ONEFLOW),
    (r"internevo|internlm train", software.INTERNEVO),
    (r"vtrain|bigscience|deepspeed", software.MEGATRON_DEEPSPEED),
    (r"dlperf|megatron-lm 20(19|20)", software.MEGATRON_2020),
    (r"megatron-lm 20(21|22)|ptd-p|korthikanti", software.MEGATRON_2021),
    (r"foundry|fsdp|torchtitan|automodel|composer|lightning", software.FSDP),
    (r"megatron-bridge|nemo|dgx cloud|mlperf|megascale", software.NEMO),
    (r"megatron-lm readme", software.MEGATRON_LM_TUNED),
    (r"megatron|simumax|zero.bubble", software.MEGATRON_LM),
)


def _software(row: Row) -> Software:
    text = f"{row['model_name']} {row['source']}".lower()
    found = next((one for pattern, one in _SOFTWARE if re.search(pattern, text)), software.UNKNOWN)
    year = number(row, "year") or 0
    if 0 < year <= _LAST_UNFUSED_YEAR:
        return _BEFORE_FUSED.get(found.name, found)
    return found


_LAST_UNFUSED_YEAR = 2022
_BEFORE_FUSED = {
    software.MEGATRON_DEEPSPEED.name: software.MEGATRON_DEEPSPEED_2022,
    software.MEGATRON_LM.name: software.MEGATRON_2021,
    software.NEMO.name: software.MEGATRON_2021,
}


def _cluster(row: Row) -> Cluster:
    gpus, per_node = _need(row, "gpus_total"), number(row, "gpus_per_node")
    return _cluster_of(row["gpu"], gpus, per_node, row.get("interconnect", ""))


@lru_cache(maxsize=1024)
def _cluster_of(gpu: str, gpus: int, per_node: int | None, interconnect: str) -> Cluster:
    accelerator = accelerator_named(gpu)
    per_node = per_node or accelerator.per_node or 8
    given: dict[str, object] = {"accelerator": accelerator, "accelerators_per_node": per_node}
    given["nodes"] = max(1, -(-gpus // per_node))
    network = _network(interconnect, per_node)
    if network:
        given["nic_gbps"] = network
    if "NVL72" in interconnect:
        given["link_domain"] = 72
    return Cluster.model_validate(given)


def _network(text: str, per_node: int) -> float | None:
    """10^9 bytes a second of one accelerator, from words such as `8x200Gb` or `1600 Gbps RoCE/node`."""
    ports = re.search(r"(\d+) ?x ?(\d+) ?Gb", text)
    if ports:
        return int(ports[1]) * int(ports[2]) / 8 / per_node
    links = re.search(r"(\d+) [\w-]*(?: [\w-]+)? ?(\d+) ?Gb/s links per node", text)
    if links:
        return int(links[1]) * int(links[2]) / 8 / per_node
    whole = re.search(r"(\d+) ?Gb(?:ps|/s)[^;]*(?:/|per )node", text)
    return int(whole[1]) / 8 / per_node if whole else None


_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3}


def _parallelism(row: Row, cluster: Cluster, assumptions: list[str]) -> Parallelism:
    tp, pp, cp = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "cp") or 1
    dp = number(row, "dp") or max(1, _need(row, "gpus_total") // (tp * pp * cp))
    stage = _STAGES.get(row["dp_kind"].lower(), 0)
    replicate, shard = (dp, 1) if stage == 0 else (1, dp)
    if row["dp_kind"] == "hsdp":
        shard = min(dp, 256)
        replicate = dp // shard
    group = re.search(r"(?:sharding group=|zero1 group )(\d+)", row["notes"])
    if group:
        shard = min(dp, int(group[1]))
        replicate = dp // shard
    v = number(row, "vpp") or 1
    ep = number(row, "ep") or 1
    return Parallelism(
        tp=tp,
        sequence_parallel=tp > 1 and row["sp"] == "yes",
        pp=pp,
        stages_per_rank=v if pp > 1 else 1,
        schedule="interleaved_1f1b" if v > 1 else "1f1b",
        cp=cp,
        ep=ep,
        dp_replicate=replicate,
        dp_shard=shard,
        zero_stage=stage,  # type: ignore[arg-type]
    )


def _precision(row: Row) -> str:
    text = row["precision"].lower()
    return "fp4" if "fp4" in text else text


_RECOMPUTE = {"full": FULL, "selective": SELECTIVE, "none": NONE}
