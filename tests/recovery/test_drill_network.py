"""Whole runs over nodes whose network is slow, narrow or cut: they end in the same place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from stoker.record import SUPERVISOR, Record
from stoker.recovery import drill
from stoker.recovery.drill_network import why_not
from stoker.recovery.faults import parse_fault
from tests.recovery.several_commands import in_a_process, prepared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, one on each node; nothing but the last step is written to the disk."""
    return prepared(
        tmp_path_factory.mktemp("network"),
        training__steps=12,
        training__deterministic="across_layouts",
        training__micro_batch_size=1,
        layout={"dp_replicate": 2},
        checkpoint={"every": 1000},
        recovery={"ranks_per_node": 1, "copy_every": 1, "node_wait_seconds": 30.0},
    )


@pytest.fixture(scope="module")
def found(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A network that is slow and narrow, and one that is cut between the node that leads and the other."""
    if said := why_not():
        pytest.skip(said)
    folder = tmp_path_factory.mktemp("drills")
    faults = ("delay@4:1:ms=15,jitter=5,steps=3+bandwidth@8:0:mbit=5,steps=3", "partition@6:0:seconds=8")
    return folder, in_a_process(_rehearsed, recipe, folder, faults)


def _rehearsed(recipe: Path, folder: Path, faults: Sequence[str]) -> list[dict[str, Any]]:
    drills = [tuple(parse_fault(one) for one in of_run.split("+")) for of_run in faults]
    found = drill.rehearse(load_recipe(recipe), drills, folder, Silent(), nodes=2)
    return [one.as_json() for one in found]


def test_a_slow_and_narrow_network_raises_no_alarm(found: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, (slow, _) = found
    assert slow["survived"], slow
    assert (slow["came"], slow["restarts"], slow["detect_seconds"]) == (2, 0, ())
    # Each way of a message takes 15 ms, and a step has several one after another.
    steps = Record(folder / "drill-001" / "record").steps()
    seconds = dict(zip(steps["step"], steps["seconds.total"], strict=True))
    assert min(seconds[step] for step in (5, 6)) > 0.03


def test_a_node_that_is_cut_off_is_named_and_comes_back_when_the_network_does(
    found: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, (_, cut) = found
    assert cut["survived"], cut
    assert (cut["came"], cut["commands"], cut["restarts"]) == (1, 1, 1)
    events = [e for e in Record(folder / "drill-002" / "record").events(SUPERVISOR) if e["event"] != "ranks_ended"]
    # Before the nodes are cut off from each other, node-0 or node-1 may have come to lead.
    failure = next(e for e in events if e["event"] == "failure")
    assert failure["detail"]["kind"] == "node_lost"
    assert failure["detail"]["missing"] == [failure["detail"]["node"]]
    assert failure["detail"]["arrived"] == [{"node-0": "node-1", "node-1": "node-0"}[failure["detail"]["node"]]]
    assert "has not been heard of for" in failure["detail"]["message"]
    assert [e["event"] for e in events] == ["node_joined", "fault", "node_lost", "failure", "node_joined"]


def test_without_namespaces_a_fault_of_the_network_is_refused_before_anything_starts(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drill, "why_not", lambda: "no network namespace: Operation not permitted; it takes root")
    folder = tmp_path / "drills"
    with pytest.raises(BadInput, match=r"no network between the nodes here: no network namespace.*it takes root"):
        drill.rehearse(load_recipe(recipe), [(parse_fault("partition@3:1"),)], folder, Silent(), nodes=2)
    assert not folder.exists()
