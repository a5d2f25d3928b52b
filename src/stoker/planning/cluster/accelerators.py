"""The table of accelerators: what their makers say of them, with sources (`planning/accelerators.csv`)."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

from stoker.errors import BadInput

FOUR_FIGURES = ("bf16_tflops", "memory_gb", "memory_gbps", "link_gbps_per_direction")
"""Without these an accelerator that is not in the table cannot be planned for."""

_LEAST = 1e-6


class Accelerator(BaseModel):
    """Published figures of one accelerator; None where the source gives none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """As people call it, such as H100-SXM-80GB."""
    device_name: str | None = None
    """As the driver reports it."""
    architecture: str = "unknown"
    """Generation, whose kernels reach like shares of the peak: volta, ampere, hopper, blackwell, cdna3, tpu."""
    bf16_tflops: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """Dense matrix products, 10^12 floating-point operations a second."""
    fp16_tflops: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    fp8_tflops: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    fp4_tflops: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    memory_gb: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    memory_gbps: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """10^9 bytes a second."""
    link_gbps_per_direction: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """To the other accelerators of its link domain (NVLink, xGMI, ICI), 10^9 bytes a second."""
    link_domain: int | None = Field(default=None, ge=1)
    """Accelerators that reach each other by these links; by default those of a node."""
    neighbours: int | None = Field(default=None, ge=1)
    """Accelerators that its links are divided among where they join pairs; None: a switch or a torus."""
    nic_gbps: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """Share of one accelerator in its node's network, 10^9 bytes a second; 400 Gb/s are 50."""
    host_gbps: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """To its host's memory, each way: PCIe 3, 4 or 5 with 16 lanes, or NVLink-C2C."""
    per_node: int | None = Field(default=None, ge=1)
    measured_matmul_tflops: float | None = Field(default=None, gt=_LEAST, allow_inf_nan=False)
    """The most that matrix products of any shape were found to reach (ml-engineering's MAMF), bf16."""
    source: str = ""
    notes: str | None = None

    @property
    def links_leave_the_node(self) -> bool:
        """Whether its links join more than a node: a rack (NVL72) or a torus of hosts (TPU)."""
        return self.link_domain is not None and self.link_domain > (self.per_node or 8)

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
        # A word more than the table knows, such as a power limit, does no harm; a form factor picks among several.
        alike = [(entry, words) for entry, words in known if _model(entry.name) in wanted]
        agreeing = [(entry, words) for entry, words in alike if _memory_agrees(entry, wanted, len(alike) == 1)]
        shared = [(len(words & wanted & _FORMS), len(words & wanted)) for _, words in agreeing]
        found = [entry for (entry, _), most in zip(agreeing, shared, strict=True) if most == max(shared)]
    if not found:
        names = ", ".join(entry.name for entry in _table())
        raise BadInput(
            f"accelerator {name!r} is not in the table; give its {', '.join(FOUR_FIGURES)} or use one of {names}"
        )
    return max(found, key=_preferred)


_PREFERRED = ("A100-SXM-80GB", "V100-SXM2-16GB", "V100-SXM3-32GB", "H100-SXM-80GB", "A800-SXM-80GB", "TPU v5p")


def _preferred(entry: Accelerator) -> int:
    return entry.name in _PREFERRED


_NOISE = {"nvidia", "amd", "instinct", "google", "gpu", "gpus", "tesla", "geforce", "cloud", "intel", "habana"}
_GENERATIONS = {"5": "p", "6": "e", "7": "x"}
"""The letter that people leave out."""
_SPELLINGS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"^\d+ ?[x×] ?(?=[a-z])|(?<=[\db]) ?[x×] ?\d+$", ""),  # 8xA100, H100x8
    (r"\bsxm(\d)", r"sxm sxm\1"),
    (r"(?<![a-z\d])(\d+) ?g(?:i?b)?\b", r"\1gb"),
    (r"\bhl-?2\d\d\w?\b", "gaudi2"),
    (r"\bhl-?3\d\d\w?\b", "gaudi3"),
    (r"gaudi[ -]?(\d)", r"gaudi\1"),
    (r"\brtx[ -]?(\w?\d{4})", r"rtx \1"),
    (r"\bmi-?(\d{3}\w?)", r"mi\1"),
    (r"(?:huawei )?ascend[ -]?910[ -]?([abc]?)", lambda found: f"ascend 910{found[1].strip('a')}"),
    (r"trillium", "tpu v6e"),
    (r"ironwood", "tpu v7x"),
    (r"\bv5[ -]?lite(?:pod)?", "v5e"),
    (
        r"\b(?:tpu[ -]?v?|v)([4-7][epx]?)(?=$|[ -])",
        lambda found: f"tpu v{found[1]}{_GENERATIONS.get(found[1], '')}",
    ),
)
_FORMS = {"sxm", "pcie", "nvl"}


def _words(name: str) -> frozenset[str]:
    lowered = name.casefold().strip()
    for pattern, spelling in _SPELLINGS:
        lowered = re.sub(pattern, spelling, lowered)
    return frozenset(word for word in re.split(r"[^a-z0-9.]+", lowered) if word) - _NOISE


def _model(name: str) -> str:
    """The one word of a table name that says which product it is."""
    parts = name.casefold().split()
    return parts[-1] if len(parts) > 1 else parts[0].split("-")[0]


def _memory_agrees(entry: Accelerator, wanted: frozenset[str], only: bool) -> bool:
    """To 4 GB; to 8% where `only` one product has the name, for makers and drivers count differently."""
    given = [int(word[:-2]) for word in wanted if re.fullmatch(r"\d+gb", word)]
    if not given or entry.memory_gb is None:
        return True
    allowed = max(4.0, 0.08 * entry.memory_gb if only else 0.0)
    return any(abs(size - entry.memory_gb) <= allowed for size in given)
