"""The software that runs a workload: what it does, and at most two numbers for how well."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Software:
    """A framework. Its two numbers are in `parameters.csv`, as `framework.NAME.speed` and `.host`."""

    name: str
    overlaps_gradients: bool = True
    """Whether gradients are summed while backward goes on."""
    overlaps_tp: bool = False
    """Whether tensor-parallel traffic goes on beside the products it belongs to (userbuffers, async TP)."""
    scatters_transfers: bool = True
    """Whether tensor-parallel ranks send their part of a stage's output, instead of all of it each."""
    broadcasts_shards: bool = False
    """Whether updated parameters are sent from each rank in turn, instead of gathered at once."""
    bucket_bytes: float = 0.0
    """Moved for each parameter and micro-batch where gradients are copied into buckets and summed there."""
    optimizer_bytes: float = 12.0
    """Of an optimizer's state for a parameter at the highest moment of its step: master copy and two moments, and
    where gradients are copied to fp32 first (and changed in copies) those too."""
    kept_parameter_bytes: float = 2.0
    """Of a parameter between steps; where it is fp32 it is the master copy too."""
    bf16_gradient_bytes: float = 4.0
    """Of a gradient kept through a step in bf16 training."""
    keeps_stage_outputs: bool = False
    """Whether a pipeline stage keeps what it sent until the gradient of it has come."""
    attention: Literal["flash", "flash2", "unfused"] = "flash"
    """`flash2`: FlashAttention-2, which does not use what Hopper and later add."""

    def speed(self, values: Mapping[str, float]) -> float:
        """Of its kernels, over Megatron-Core's."""
        return self._number("speed", values)

    def host(self, values: Mapping[str, float]) -> float:
        """Its host's time to issue them, over Megatron-Core's."""
        return self._number("host", values)

    def _number(self, kind: str, values: Mapping[str, float]) -> float:
        own = values.get(f"framework.{self.name}.{kind}")
        if own is not None:
            return own
        alike = [values.get(f"framework.{name}.{kind}") for name in _OF_TODAY]
        known = [value for value in alike if value is not None]
        return math.prod(known) ** (1 / len(known)) if known else 1.0


NEMO = Software("nemo", overlaps_tp=True, bf16_gradient_bytes=2.0)
MEGATRON_LM = Software("megatron-lm")
MEGATRON_2021 = Software("megatron-2021", overlaps_gradients=False, attention="unfused")
MEGATRON_2020 = Software("megatron-2021", overlaps_gradients=False, scatters_transfers=False, attention="unfused")
MEGATRON_DEEPSPEED = Software(
    "megatron-deepspeed",
    overlaps_gradients=False,
    attention="flash2",
    optimizer_bytes=20.0,
    bf16_gradient_bytes=6.0,
    keeps_stage_outputs=True,
)
MEGATRON_DEEPSPEED_2022 = replace(
    MEGATRON_DEEPSPEED,
    name="megatron-deepspeed-2022",
    bucket_bytes=24.0,
    scatters_transfers=False,
    attention="unfused",
)
ONEFLOW = Software("oneflow", overlaps_gradients=False, scatters_transfers=False, attention="unfused")
FSDP = Software("fsdp", attention="flash2", kept_parameter_bytes=4.0, optimizer_bytes=8.0)
JAX = Software("jax", kept_parameter_bytes=4.0, optimizer_bytes=8.0)
INTERNEVO = Software(
    "internevo", broadcasts_shards=True, optimizer_bytes=24.0, bf16_gradient_bytes=2.0, attention="flash2"
)
UNKNOWN = Software("unknown")
_OF_TODAY = tuple(
    one.name for one in (NEMO, MEGATRON_LM, MEGATRON_DEEPSPEED, FSDP, JAX, INTERNEVO) if one.attention != "unfused"
)
"""Frameworks with fused attention, whose mean an unknown one gets: what ran before 2023 says little of others."""
