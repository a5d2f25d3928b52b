"""The framework that a row of measurements was taken with, from the names of its source and model."""

from __future__ import annotations

import re
from dataclasses import replace

from stoker.planning.cluster import software
from stoker.planning.cluster.row_architecture import Row, number
from stoker.planning.cluster.software import Software

_KNOWN = (
    (r"maxtext|\bjax|\bpax|\btpu|levanter|xla", software.JAX),
    (r"oneflow", software.ONEFLOW),
    (r"internevo", software.INTERNEVO),
    (r"vtrain|bigscience|deepspeed|\bmt-nlg", software.MEGATRON_DEEPSPEED),
    (r"dlperf|megatron-lm 20(?:19|20)", software.MEGATRON_2020),
    (r"megatron-lm 20(?:21|22)|ptd-p|korthikanti", software.MEGATRON_2021),
    (r"foundry|fsdp|torchtitan|automodel|composer|lightning|lingua|olmo", software.FSDP),
    (r"megatron-bridge|nemo(?!tron)|dgx cloud|mlperf|megascale|megatron-lm readme", software.NEMO),
    (r"megatron|simumax|zero.?bubble|nanotron", software.MEGATRON_LM),
)
"""First match counts."""

LAST_YEAR_BEFORE_FUSED_ATTENTION = 2022
_BEFORE_FUSED_ATTENTION = {
    software.MEGATRON_DEEPSPEED.name: software.MEGATRON_DEEPSPEED_2022,
    software.MEGATRON_LM.name: software.MEGATRON_2021,
    software.NEMO.name: software.MEGATRON_2021,
    software.FSDP.name: replace(software.FSDP, attention="unfused"),
    software.UNKNOWN.name: replace(software.UNKNOWN, attention="unfused"),
}


def software_in(row: Row, architecture: str) -> Software:
    """The named framework, in the state of the row's year, on that generation of accelerators.

    A row's own model name counts before its source, which may have measured several. `UNKNOWN` for any other.
    """
    found = software.UNKNOWN
    for column in ("model_name", "source", "url_or_path"):
        text = row.get(column, "").lower()
        found = next((one for pattern, one in _KNOWN if re.search(pattern, text)), software.UNKNOWN)
        if found is not software.UNKNOWN:
            break
    year = number(row, "year") or 0
    if 0 < year <= LAST_YEAR_BEFORE_FUSED_ATTENTION:
        found = _BEFORE_FUSED_ATTENTION.get(found.name, found)
    if architecture == "volta" and found.attention != "unfused":
        return replace(found, attention="unfused")  # FlashAttention asks for Ampere
    return found
