"""Descriptions drawn at random, the same ones every time."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.planning.reliability.description import RunDescription

QUIET = {"spread": 0.0, "jitter": 0.0, "network_jitter": 0.0, "slow_nodes_per_1000_node_days": 0.0}
"""Stragglers of a run in which every rank is as fast as the others."""


def plain(**fields: Any) -> RunDescription:
    """A run that loses time to failures alone, of one kind and without a node to replace."""
    kind = {"name": "crash", "per_day": 24.0, "replaces_node": False, "detection_seconds": 0, "restart_seconds": 0}
    checkpoint = {"interval_seconds": 600, "stall_seconds": 0, "write_seconds": 0, "load_seconds": 0}
    fields = {
        "accelerators": 8192,
        "step_seconds": 1.0,
        "stragglers": QUIET,
        "failures": {"kinds": [kind]},
        "checkpoints": [checkpoint],
        **fields,
    }
    return RunDescription.model_validate(fields)


def drawn(seed: int, mode: str) -> RunDescription:
    """Any run in which something is left to do: size, rates, copies, spares and stragglers at random."""
    random = np.random.default_rng((seed, ("fixed", "shrink", "per_step").index(mode)))

    def between(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    groups = int(2 ** random.integers(4, 8))
    nodes = groups * int(random.integers(1, 9))
    mtbf_hours = between(0.4, 12)
    per_1000_node_days = 24 / mtbf_hours / nodes * 1000
    repair_hours = between(2, 24)
    broken = 24 / mtbf_hours * 0.6 * repair_hours / 24
    spares = min(nodes, round(broken + random.uniform(2, 4) * broken**0.5))
    checkpoints: list[dict[str, Any]] = [_copies("store", between(300, 4000), between(1, 60), between(10, 240))]
    if random.random() < 0.5:
        checkpoints.insert(0, _copies("peer", between(20, 120), between(0.05, 1), between(2, 20)))
    return RunDescription.model_validate(
        {
            "accelerators": nodes * 8,
            "step_seconds": between(1, 20),
            "failures": {
                "per_1000_node_days": per_1000_node_days,
                "kinds": [
                    _kind("node", 6, between(5, 300), between(20, 400), replaces_node=True),
                    _kind("process", 3, between(5, 600), between(20, 400), loses="process", replaces_node=False),
                    _kind("fabric", 0.5, between(60, 900), between(20, 400), loses="job", replaces_node=False),
                    _kind("wrong", 0.2, between(600, 3600), between(20, 400), silent=True),
                ],
            },
            "recovery": {"restart_seconds": between(20, 400)},
            "checkpoints": checkpoints,
            "spares": {
                "count": spares,
                "repair_hours": repair_hours,
                "replace_hours": between(0.5, 6) if random.random() < 0.5 else None,
                "swap_seconds": between(5, 200),
            },
            "replicas": {
                "count": groups,
                "mode": mode,
                "minimum": groups // 2,
                "batch": "kept" if random.random() < 0.5 else "shrinks",
            },
            "planned": {"per_day": between(0.1, 3)},
            "stragglers": {
                "slow_nodes_per_1000_node_days": per_1000_node_days / 10,
                "found_after_hours": between(1, 6),
            },
        }
    )


def _copies(where: str, interval: float, stall: float, write: float) -> dict[str, Any]:
    write = max(stall, write)
    return {
        "where": where,
        "interval_seconds": max(interval, 1.1 * write),
        "stall_seconds": stall,
        "write_seconds": write,
        "load_seconds": write / 2,
    }


def _kind(name: str, rate: float, detection: float, restart: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "per_1000_node_days": rate,
        "detection_seconds": detection,
        "restart_seconds": restart,
        **more,
    }
