"""The table of accelerators: what their makers say of them, with sources (`planning/accelerators.csv`)."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from stoker.errors import BadInput

FOUR_FIGURES = ("bf16_tflops", "memory_gb", "memory_gbps", "link_gbps_per_direction")
"""Without these an accelerator that is not in the table cannot be planned for."""


class Accelerator(BaseModel):
    """Published figures of one accelerator; None where the source gives none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """As people call it, such as H100-SXM-80GB."""
    device_name: str | None = None
    """As the driver reports it."""
    architecture: str = "unknown"
    """Generation, whose kernels reach like shares of the peak: volta, ampere, hopper, blackwell, cdna3, tpu."""
    bf16_tflops: float | None = Field(default=None, gt=0)
    """Dense matrix products, 10^12 floating-point operations a second."""
    fp16_tflops: float | None = Field(default=None, gt=0)
    fp8_tflops: float | None = Field(default=None, gt=0)
    fp4_tflops: float | None = Field(default=None, gt=0)
    memory_gb: float | None = Field(default=None, gt=0)
    memory_gbps: float | None = Field(default=None, gt=0)
    """10^9 bytes a second."""
    link_gbps_per_direction: float | None = Field(default=None, gt=0)
    """To the other accelerators of its link domain (NVLink, xGMI, ICI), 10^9 bytes a second."""
    link_domain: int | None = Field(default=None, ge=1)
    """Accelerators that reach each other by these links; by default those of a node."""
    nic_gbps: float | None = Field(default=None, gt=0)
    """Share of one accelerator in its node's network, 10^9 bytes a second; 400 Gb/s are 50."""
    host_gbps: float | None = Field(default=None, gt=0)
    """To its host's memory, each way: PCIe 3, 4 or 5 with 16 lanes, or NVLink-C2C."""
    per_node: int | None = Field(default=None, ge=1)
    measured_matmul_tflops: float | None = Field(default=None, gt=0)
    """The most that matrix products of any shape were found to reach (ml-engineering's MAMF), bf16."""
    source: str = ""
    notes: str | None = None

    def peak_flops_per_second(self, precision: str) -> float | None:
        """The published peak for the type that `precision` computes in; None where there is none."""
        tflops = {
            "bf16": self.bf16_tflops,
            "pure_bf16": self.bf16_tflops,
            "fp16": self.fp16_tflops,
            "fp8": self.fp8_tflops,
            "fp4": self.fp4_tflops,
        }.get(precision)
        return None if tflops is None else tflops * 1e12


@lru_cache(maxsize=1)
def _table() -> tuple[Accelerator, ...]:
    text = files("stoker.planning").joinpath("accelerators.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(Accelerator.model_validate({key: value or None for key, value in row.items()}) for row in rows)


def accelerators() -> dict[str, Accelerator]:
    """The table by the driver's device name, in lower case, of those that have one."""
    return {entry.device_name.casefold(): entry for entry in _table() if entry.device_name is not None}


@lru_cache(maxsize=256)
def accelerator_named(name: str) -> Accelerator:
    """The accelerator that people call `name`: `H100`, `H100-80GB`, `A100 SXM4 40GB`, `NVIDIA H200`, `TPU v5p`.

    All words of `name` must be in the table's name or device name; among several the first in the table's
    order that has most memory left unsaid counts (`A100` is the 80 GB one, `H100` the SXM one). Raises
    `BadInput` for a name that is not there.
    """
    wanted = _words(name)
    known = [(entry, _words(f"{entry.name} {entry.device_name or ''}")) for entry in _table()]
    exact = [entry for entry, words in known if _words(entry.name) == wanted]
    found = exact or [entry for entry, words in known if wanted and wanted <= words]
    if not found:
        # A word more than the table knows, such as a form factor or a power limit, does no harm.
        found = [entry for entry, _ in known if _model(entry.name) in wanted and _memory_agrees(entry, wanted)]
    if not found:
        names = ", ".join(entry.name for entry in _table())
        raise BadInput(
            f"accelerator {name!r} is not in the table; give its {', '.join(FOUR_FIGURES)} or use one of {names}"
        )
    return max(found, key=_preferred)


_PREFERRED = ("A100-SXM-80GB", "V100-SXM2-16GB", "H100-SXM-80GB", "A800-SXM-80GB", "TPU v5p")


def _preferred(entry: Accelerator) -> int:
    return entry.name in _PREFERRED


_NOISE = {"nvidia", "amd", "instinct", "google", "gpu", "tesla", "geforce", "cloud", "intel", "habana"}


def _words(name: str) -> frozenset[str]:
    lowered = re.sub(r"sxm\d", "sxm", name.casefold())
    lowered = re.sub(r"(\d+) ?gi?b\b", r"\1gb", lowered)
    lowered = re.sub(r"tpu[ -]?v?(\d\w*)", r"tpu v\1", lowered)
    return frozenset(word for word in re.split(r"[^a-z0-9]+", lowered) if word) - _NOISE


def _model(name: str) -> str:
    """The one word of a table name that says which product it is."""
    parts = name.casefold().split()
    return parts[-1] if len(parts) > 1 else parts[0].split("-")[0]


def _memory_agrees(entry: Accelerator, wanted: frozenset[str]) -> bool:
    given = [int(word[:-2]) for word in wanted if re.fullmatch(r"\d+gb", word)]
    return not given or entry.memory_gb is None or any(abs(size - entry.memory_gb) <= 4 for size in given)
