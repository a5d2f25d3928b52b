"""The framework that a row of measurements was taken with, from the names of its source and model."""

from __future__ import annotations

import re

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
    (r"megatron-bridge|nemo|dgx cloud|mlperf|megascale|megatron-lm readme", software.NEMO),
    (r"megatron|simumax|zero.?bubble|nanotron", software.MEGATRON_LM),
)
"""First match counts."""

LAST_YEAR_BEFORE_FUSED_ATTENTION = 2022
_BEFORE_FUSED_ATTENTION = {
    software.MEGATRON_DEEPSPEED.name: software.MEGATRON_DEEPSPEED_2022,
    software.MEGATRON_LM.name: software.MEGATRON_2021,
    software.NEMO.name: software.MEGATRON_2021,
}


def software_in(row: Row) -> Software:
    """The named framework, in the state of the row's year; `UNKNOWN` for any other."""
    text = f"{row['model_name']} {row['source']}".lower()
    found = next((one for pattern, one in _KNOWN if re.search(pattern, text)), software.UNKNOWN)
    year = number(row, "year") or 0
    if 0 < year <= LAST_YEAR_BEFORE_FUSED_ATTENTION:
        return _BEFORE_FUSED_ATTENTION.get(found.name, found)
    return found
