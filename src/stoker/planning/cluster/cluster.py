"""A cluster that is described, not looked at: which accelerators, how many, and how they are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stoker.errors import BadInput
from stoker.planning.cluster.accelerators import FOUR_FIGURES, Accelerator, accelerator_named

_USUAL_PER_NODE = 8
_MOST = 1_000_000
_USUAL_HOST_GB = 128.0
"""For each accelerator: a node of eight has a terabyte at least."""


class Cluster(BaseModel):
    """Nodes of alike accelerators. Bandwidths in 10^9 bytes a second (400 Gb/s are 50), each way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accelerator: Accelerator
    """By name, as in `planning/accelerators.csv`, or by its figures."""
    nodes: int = Field(default=1, ge=1, le=_MOST)
    accelerators_per_node: int = Field(default=_USUAL_PER_NODE, ge=1, le=_MOST)
    link_domain: int = Field(default=_USUAL_PER_NODE, ge=1, le=_MOST)
    """Accelerators that reach each other over NVLink or its like; 72 in an NVL72 rack. By default the
    accelerator's own, at most a node where it has none."""
    nic_gbps: float = Field(default=25.0, gt=0, allow_inf_nan=False)
    """Share of one accelerator in its node's network. By default the accelerator's usual one."""
    oversubscription: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """How many times less the network carries between all nodes than at their ports; 1 is a full fat tree."""

    host_memory_gb: float = Field(default=_USUAL_HOST_GB * _USUAL_PER_NODE, gt=0, allow_inf_nan=False)
    """Of a node, 10^9 bytes, for what is offloaded. By default 128 for each accelerator."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_from_the_accelerator(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "accelerator" not in given:
            return given
        filled = dict(given)
        accelerator = filled["accelerator"]
        if isinstance(accelerator, str):
            accelerator = accelerator_named(accelerator)
        elif isinstance(accelerator, dict):
            accelerator = Accelerator.model_validate({"name": "described accelerator", **accelerator})
        filled["accelerator"] = accelerator
        if isinstance(accelerator, Accelerator):
            filled.setdefault("accelerators_per_node", accelerator.per_node or _USUAL_PER_NODE)
            filled.setdefault("nic_gbps", accelerator.nic_gbps or 25.0)
            per_node = filled["accelerators_per_node"]
            filled.setdefault("link_domain", accelerator.link_domain or per_node)
            if isinstance(per_node, int):
                if "link_domain" not in given and not accelerator.links_leave_the_node:
                    filled["link_domain"] = max(1, min(filled["link_domain"], per_node))
                filled.setdefault("host_memory_gb", _USUAL_HOST_GB * max(1, per_node))
        return filled

    @model_validator(mode="after")
    def _has_the_four_figures(self) -> Cluster:
        known = self.accelerator
        missing = [name for name in FOUR_FIGURES if getattr(known, name) is None]
        if known.fp16_tflops is not None and "bf16_tflops" in missing:
            missing.remove("bf16_tflops")
        if missing:
            raise ValueError(
                f"accelerator {known.name!r}: {', '.join(missing)} missing; "
                f"an accelerator needs its four figures {', '.join(FOUR_FIGURES)}"
            )
        return self

    @property
    def accelerators(self) -> int:
        """All of them."""
        return self.nodes * self.accelerators_per_node


def cluster_of(given: dict[str, Any], where: str = "cluster") -> Cluster:
    """The cluster that `given` describes. Raises `BadInput` naming each field that is wrong and what is needed."""
    try:
        return Cluster.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'as a whole'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        )
        raise BadInput(
            f"{where}: {problems}. Needed: accelerator (a name, or {', '.join(FOUR_FIGURES)}), "
            "nodes and accelerators_per_node of 1 or more"
        ) from None


def read_cluster(path: Path) -> Cluster:
    """The cluster described in a YAML file. Raises `BadInput` for one that cannot be read or cannot be."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); expected a YAML file of a cluster") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(given, dict):
        raise BadInput(f"{path}: expected fields such as `accelerator: H100` and `nodes: 4`, got {given!r}")
    return cluster_of(given, str(path))
