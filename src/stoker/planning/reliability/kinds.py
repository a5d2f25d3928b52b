"""What breaks: a kind of failure, and the kinds that one large run was interrupted by."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stoker.recipe.section import Section

Loses = Literal["process", "node", "job"]
USUAL_PER_NODE = 8
_MOST_PER_1000_NODE_DAYS = 1e7
_LONGEST_SECONDS = 30 * 86400.0


class Kind(Section):
    """One kind of failure: how often, how it is found, what it takes with it."""

    name: str = Field(min_length=1, max_length=60)
    per_1000_node_days: float | None = Field(default=None, ge=0, le=_MOST_PER_1000_NODE_DAYS, allow_inf_nan=False)
    """Failures of this kind in 1,000 days of a node. Either this or `per_day`."""
    per_day: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False)
    """Failures a day of the whole job, however many nodes it has: what software does to a run."""
    grows_with: Literal["nodes", "accelerators"] = "nodes"
    """`accelerators`: the rate is that of a node of eight and grows with the accelerators in a node."""
    loses: Loses = "node"
    """What is gone: processes (their node's memory is still there), a node, or more than a copy on a peer."""
    replaces_node: bool = True
    """The node leaves the run and is repaired."""
    silent: bool = False
    """The run goes on with wrong values until it is found; all work since is lost."""
    detection_seconds: float | None = Field(default=None, ge=0, le=_LONGEST_SECONDS, allow_inf_nan=False)
    """From the failure until its restart begins, seconds. By default `recovery.detection_seconds`."""
    restart_seconds: float | None = Field(default=None, ge=0, le=_LONGEST_SECONDS, allow_inf_nan=False)
    """Restart after this kind, seconds, without loading. By default `recovery.restart_seconds`."""

    @model_validator(mode="after")
    def _has_one_rate(self) -> Kind:
        if (self.per_1000_node_days is None) == (self.per_day is None):
            raise ValueError(f"expected one of per_1000_node_days and per_day, got {self._given()}; keep one rate")
        if self.per_day is not None and self.grows_with == "accelerators":
            raise ValueError(
                "grows_with: expected `nodes` or nothing beside per_day, got accelerators; the rate of a whole job "
                "does not grow"
            )
        return self

    def _given(self) -> str:
        return "both" if self.per_day is not None else "neither"


_RUN_NODE_DAYS = 16384 / USUAL_PER_NODE * 54
"""Of the run that the table below counts: 16,384 accelerators in nodes of eight for 54 days."""

_MINUTE = 60.0


def _kind(
    name: str,
    count: int,
    loses: Loses,
    replaces_node: bool,
    detection_seconds: float,
    of_accelerators: bool = False,
    silent: bool = False,
) -> Kind:
    return Kind(
        name=name,
        per_1000_node_days=count / _RUN_NODE_DAYS * 1000,
        grows_with="accelerators" if of_accelerators else "nodes",
        loses=loses,
        replaces_node=replaces_node,
        silent=silent,
        detection_seconds=detection_seconds,
    )


USUAL_KINDS: tuple[Kind, ...] = (
    _kind("gpu", 148, "node", True, _MINUTE, of_accelerators=True),
    _kind("hbm", 72, "node", True, _MINUTE, of_accelerators=True),
    _kind("software", 54, "process", False, _MINUTE),
    _kind("network", 35, "process", False, 5 * _MINUTE),
    _kind("host maintenance", 32, "node", True, _MINUTE),
    _kind("gpu sram", 19, "node", True, _MINUTE, of_accelerators=True),
    _kind("gpu system processor", 17, "node", True, _MINUTE, of_accelerators=True),
    _kind("nic", 7, "node", True, 5 * _MINUTE),
    _kind("collective timeout", 7, "process", False, 10 * _MINUTE),
    _kind("silent corruption", 6, "node", True, 60 * _MINUTE, of_accelerators=True, silent=True),
    _kind("gpu thermal", 6, "node", True, _MINUTE, of_accelerators=True),
    _kind("host parts", 16, "node", True, 2 * _MINUTE),
)
"""Counts: Llama 3 (arXiv 2407.21783, table 5), 419 unexpected interruptions in 54 days. `host parts` are SSD (3),
power supply (3), chassis (2), expansion board (2), dependency (2), CPU (2) and system memory (2).

What each loses, and how soon it is found, that table does not say: these are assumptions. A crash is seen within a
minute, a hang when a collective times out, a wrong value when a check fails an hour later."""
