"""The layout that a row of measurements means."""

from __future__ import annotations

import re
from typing import Literal

from stoker.planning.cluster import software
from stoker.planning.cluster.row_architecture import Row, need, number
from stoker.planning.cluster.software import Software
from stoker.planning.cluster.workload import Parallelism, PipelineName

_LARGEST_SHARD_GROUP = 256
"""Of hybrid sharding whose groups a row does not say."""
_MOST_STAGES_ASSUMED = 8
"""Of each rank, where a row says that stages are interleaved and not how many: at most a layer each."""
_SEQUENCE_PARALLEL_SINCE = 2023
"""From then on whoever divides layers divides the stream between them too, and seldom says so."""


def shards_parameters(row: Row) -> bool:
    """Whether the row says FSDP, whatever a pipeline makes of it."""
    return _stated_stage(row["dp_kind"]) == 3


def _stated_stage(words: str) -> Literal[0, 1, 2, 3] | None:
    kind = re.sub(r"[^a-z0-9]", "", words.lower())
    if not kind or re.match(r"unknown|na$|notstated|notsaid|unstated|default", kind):
        return None
    if re.search(r"(?:zero|stage)3|fsdp|hsdp|hybrid|full.?y?shard|gemini", kind):
        return 3
    if re.search(r"(?:zero|stage)2|shardgradop", kind):
        return 2
    if re.search(r"(?:zero|stage)1|dist|shard", kind):
        return 1
    return 0


def _zero_stage(row: Row, used: Software, assumptions: list[str]) -> Literal[0, 1, 2, 3]:
    stated = _stated_stage(row["dp_kind"])
    if stated is not None:
        return stated
    usual: Literal[1, 3] = 3 if used in (software.FSDP, software.JAX) else 1
    assumptions.append(f"ZeRO stage {usual}")
    return usual


def parallelism_in(row: Row, used: Software, assumptions: list[str]) -> Parallelism:
    """Adds what was assumed to `assumptions`."""
    tp, pp, cp = number(row, "tp") or 1, number(row, "pp") or 1, number(row, "cp") or 1
    ranks = max(1, need(row, "gpus_total") // (tp * pp * cp))
    dp = number(row, "dp") or ranks
    if dp * tp * pp * cp > need(row, "gpus_total"):
        assumptions.append(f"{ranks} data-parallel ranks, as many as there are accelerators for")
        dp = ranks
    stage = _zero_stage(row, used, assumptions)
    if stage == 3 and pp > 1:
        # torch's stages and Llama 3 keep what is gathered, and sum gradients after the last micro-batch.
        stage = 1
        assumptions.append("parameters gathered and gradients summed once a step, for there is a pipeline")
    schedule, v = _schedule(row, pp)
    shard = _shard_group(row, dp, assumptions) if stage else 1
    return Parallelism(
        tp=tp,
        sequence_parallel=tp > 1 and _sequence_parallel(row, assumptions),
        pp=pp,
        stages_per_rank=v,
        schedule=schedule,
        cp=cp,
        ep=number(row, "ep") or 1,
        dp_replicate=max(1, dp // shard),
        dp_shard=shard,
        zero_stage=stage,
    )


def _sequence_parallel(row: Row, assumptions: list[str]) -> bool:
    if row.get("sp"):
        return row["sp"] == "yes"
    usual = (number(row, "year") or _SEQUENCE_PARALLEL_SINCE) >= _SEQUENCE_PARALLEL_SINCE
    assumptions.append("sequence parallelism" if usual else "no sequence parallelism, before 2023")
    return usual


def _shard_group(row: Row, dp: int, assumptions: list[str]) -> int:
    words = f"{row['dp_kind']} {row['notes']}".lower()
    group = re.search(r"(?:sharding group=|zero1 group |shard(?:ing)? (?:degree |size |group )?=?)(\d+)", words)
    if group and int(group[1]):
        return min(dp, int(group[1]))
    if "hsdp" in row["dp_kind"].lower() and dp > _LARGEST_SHARD_GROUP:
        assumptions.append(f"parameters sharded over {_LARGEST_SHARD_GROUP}")
        return _LARGEST_SHARD_GROUP
    return dp


def _schedule(row: Row, pp: int) -> tuple[PipelineName, int]:
    """Schedule and stages of each rank; ZB1p is ZB-H1, ZB2p is ZB-H2 (Qi et al. 2023)."""
    words, v = row.get("schedule", "").lower(), number(row, "vpp") or 1
    text = re.sub(r"[^a-z0-9]", "", words)
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
    if v > 1 or re.search(r"interleav|1f1bi$|vpp|virtual|loop", text):
        stated = number(row, "vpp") or 0
        return "interleaved_1f1b", max(2, stated or min(_MOST_STAGES_ASSUMED, need(row, "layers") // pp))
    return "1f1b", 1
