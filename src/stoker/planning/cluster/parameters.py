"""The physical parameters, with meaning and source (`parameters.csv`), and the rates that follow from them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from stoker.planning.cluster.accelerators import Accelerator
from stoker.planning.cluster.software import Software

Parameters = Mapping[str, float]
"""Values by name."""


class Described(NamedTuple):
    """One line of the table."""

    name: str
    value: float
    prior: float
    """What one would expect before fitting, from kernels' own benchmarks."""
    low: float
    high: float
    unit: str
    meaning: str
    source: str


@lru_cache(maxsize=1)
def parameter_table() -> tuple[Described, ...]:
    """All lines of `parameters.csv`."""
    text = files("stoker.planning.cluster").joinpath("parameters.csv").read_text(encoding="utf-8")
    return tuple(
        Described(
            row["name"],
            float(row["value"]),
            float(row["prior"]),
            float(row["low"]),
            float(row["high"]),
            row["unit"],
            row["meaning"],
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    )


@lru_cache(maxsize=1)
def shipped_parameters() -> Parameters:
    """The values that ship with the package."""
    return {line.name: line.value for line in parameter_table()}


_PROCESSORS = {
    "volta": 80,
    "ampere": 108,
    "hopper": 132,
    "blackwell": 148,
    "blackwell_ultra": 148,
    "cdna3": 304,
    "cdna4": 256,
    "ada": 128,
}
TPUS = ("tpu", "tpu_v6")
"""Generations with few large matrix units: there is no last wave of tiles."""
SAME_PRODUCTS = {"blackwell_ultra": "blackwell"}
"""Generations whose 16-bit units are another's: Blackwell Ultra adds to the 4-bit ones and to attention's."""
_USUAL_CEILING = 0.8
"""Measured ceiling over published peak, where nobody measured: about that of H100 (0.80) and B200 (0.78)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds and shares for one accelerator, precision and framework."""

    matmul: float
    """Seconds of an operation in large matrix products of blocks."""
    wide_matmul: float
    """The same in 16 bits: head and router."""
    operand_bytes: float
    """Of an element of a block's matrix operands."""
    cast: float
    """Seconds to scale and cast one element of an operand."""
    wave: float
    """Share of the empty part of a last wave of tiles that costs time."""
    processors: float
    fill: float
    misalignment: float
    attention: float
    """Seconds of an operation of fused attention's forward pass, long sequences and heads of 128."""
    flash2: float
    """Times as long with FlashAttention-2."""
    small_heads: float
    unaligned_heads: float
    attention_length: float
    attention_backward: float
    score_passes: float
    byte: float
    """Seconds of a byte of device memory."""
    pointwise: float
    """Seconds of a byte that pointwise passes move at least."""
    loss: float
    """Seconds of a logit."""
    host_layer: float
    host_expert: float
    host_collective: float
    step: float


@lru_cache(maxsize=4096)
def _rates(accelerator: Accelerator, precision: str, software: Software, key: int) -> Rates:
    return _worked_out(accelerator, precision, software, _BY_KEY[key])


_BY_KEY: dict[int, Parameters] = {}


def rates_of(accelerator: Accelerator, precision: str, software: Software, values: Parameters) -> Rates:
    """Worked out once for each accelerator, precision, framework and set of values."""
    key = id(values)
    if _BY_KEY.get(key) is not values:
        _BY_KEY.clear()
        _rates.cache_clear()
        _BY_KEY[key] = values
    return _rates(accelerator, precision, software, key)


def _worked_out(accelerator: Accelerator, precision: str, software: Software, values: Parameters) -> Rates:
    peak = (accelerator.bf16_tflops or accelerator.fp16_tflops or 0.0) * 1e12
    architecture = accelerator.architecture
    speed, host = software.speed(values), software.host(values)
    if architecture in TPUS:  # XLA issues a whole step as one program, and no framework's kernels
        speed, host = 1.0, values["host_graphed"]
    share = values.get(f"matmul_efficiency.{SAME_PRODUCTS.get(architecture, architecture)}")
    if share is None:
        ceiling = (accelerator.measured_matmul_tflops or 0.0) * 1e12 / peak or _USUAL_CEILING
        share = values["matmul_efficiency.other"] * ceiling
    wide = peak * share * speed
    narrow = wide
    if precision == "fp8" and accelerator.fp8_tflops:
        relative = values.get(f"fp8_efficiency.{architecture}", share * 0.85)
        narrow = accelerator.fp8_tflops * 1e12 * relative * speed
    elif precision == "fp4" and accelerator.fp4_tflops:
        relative = values.get(f"fp4_efficiency.{architecture}", share * 0.6)
        narrow = accelerator.fp4_tflops * 1e12 * relative * speed
    elif precision in ("fp32", "tf32"):
        slower = 2 if precision == "tf32" else 8 if architecture == "volta" else 16
        peak /= slower
        wide = narrow = wide / slower
    byte = 1 / ((accelerator.memory_gbps or 1.0) * 1e9 * values["memory_efficiency"])
    fused = values.get(f"attention_efficiency.{architecture}", share * 0.7)
    return Rates(
        matmul=1 / narrow,
        wide_matmul=1 / wide,
        operand_bytes={"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "fp4": 0.56}.get(precision, 2.0),
        cast=values["cast_bytes"] * byte if narrow is not wide and precision in ("fp8", "fp4") else 0.0,
        wave=0.0 if architecture in TPUS else values["wave_waste"],
        processors=_PROCESSORS.get(architecture, 128),
        fill=values["pipeline_fill"],
        misalignment=values["misalignment"],
        attention=1 / (peak * fused * speed),
        flash2=values.get(f"flash2_slowdown.{SAME_PRODUCTS.get(architecture, architecture)}", 1.0),
        small_heads=values["small_heads"],
        unaligned_heads=values["unaligned_heads"],
        attention_length=values["attention_length"],
        attention_backward=values["attention_backward"],
        score_passes=values["score_passes"] * byte / speed,
        byte=byte,
        pointwise=values["pointwise_passes"] * byte / speed,
        loss=values["loss_bytes"] * byte / speed,
        host_layer=values["host_seconds_per_layer"] * host,
        host_expert=values["host_seconds_per_expert"] * host,
        host_collective=values["host_seconds_per_collective"] * host,
        step=values["step_seconds"] * host,
    )
