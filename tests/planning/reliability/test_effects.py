"""What would change nothing is refused, with the reason and a remedy; a default that is written out is not."""

from __future__ import annotations

import pytest
import yaml

from stoker.errors import BadInput
from stoker.planning.reliability import RunDescription, read_run

_NOTHING_REPLACED = "failures.kinds=[{name: hang, per_day: 3, loses: process, replaces_node: false}]"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["replicas.count=64"],
            "replicas.count: `mode: fixed` does not look at this.*take `mode: shrink or per_step`",
        ),
        (["replicas.minimum=2"], "replicas.minimum: `mode: fixed` does not look at this"),
        (["replicas.batch=kept", "replicas.mode=shrink"], "replicas.batch: `mode: shrink`.*take `mode: per_step`"),
        (["replicas.heal_seconds=9", "replicas.mode=shrink"], "replicas.heal_seconds: `mode: shrink`"),
        (["replicas.reconfigure_seconds=9"], "replicas.reconfigure_seconds: `mode: fixed`"),
        (
            ["recovery.detection_seconds=5"],
            r"every kind of failure says itself.*detection_factor=0.0833 to scale all of them \(60 s become 5 s\)",
        ),
        (
            ["failures.kinds=[{name: seen, per_day: 3, detection_seconds: 0}]", "failures.detection_factor=0.5"],
            "failures.detection_factor: every kind is found at once",
        ),
        (
            ["stragglers.slow_nodes_per_1000_node_days=0", "stragglers.slowdown=0.5"],
            "stragglers.slowdown: no node becomes slow",
        ),
        (["planned.pause_seconds=5"], "planned.pause_seconds: nothing is planned.*give per_day"),
        (
            [_NOTHING_REPLACED, "stragglers.slow_nodes_per_1000_node_days=0", "spares.repair_hours=3"],
            "spares.repair_hours: no kind of failure replaces a node",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_value_that_changes_nothing_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_run(None, overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["replicas.count=64", "replicas.mode=shrink"],
        ["replicas.batch=kept", "replicas.heal_seconds=9", "replicas.mode=per_step"],
        [_NOTHING_REPLACED, "recovery.detection_seconds=5"],
        ["planned.pause_seconds=5", "planned.per_day=1"],
        [_NOTHING_REPLACED, "spares.repair_hours=3"],
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_a_value_that_changes_something_is_taken(overrides: list[str]) -> None:
    read_run(None, overrides)


def test_a_description_with_all_its_defaults_written_out_is_read_again() -> None:
    written = yaml.safe_dump(RunDescription().model_dump(mode="json"), default_flow_style=True, width=10**9)
    given = yaml.safe_load(written)
    overrides = [
        f"{name}={yaml.safe_dump(value, default_flow_style=True, width=10**9)}" for name, value in given.items()
    ]
    assert read_run(None, overrides) == RunDescription.model_validate(given)
