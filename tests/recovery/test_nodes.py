"""Runs over several nodes: they end in the same place, whichever node is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.several_commands import (
    Command,
    events,
    prepared,
    resumed,
    samples_are_exact,
    weights,
)

pytestmark = pytest.mark.slow
STEPS = 12


class Commands:
    """Commands of one test, none of which outlives it."""

    def __init__(self, recipe: Path) -> None:
        self.recipe = recipe
        self._all: list[Command] = []

    def start(self, node: str | None, nodes: int = 2, **given: Any) -> Command:
        self._all.append(Command(self.recipe, node, nodes, **given))
        return self._all[-1]

    def end(self) -> None:
        for one in self._all:
            one.end()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, one on each node; nothing but the last step is written to the disk."""
    return prepared(
        tmp_path_factory.mktemp("nodes"),
        training__steps=STEPS,
        training__deterministic="across_layouts",
        training__micro_batch_size=1,
        layout={"dp_replicate": 2},
        checkpoint={"every": 1000},
        recovery={"ranks_per_node": 1, "copy_every": 1, "node_wait_seconds": 0.5},
    )


@pytest.fixture(scope="module")
def undisturbed(recipe: Path) -> dict[str, str]:
    """The weights of a run on one node."""
    command = Command(recipe, None, 1, run="runs/one-node")
    assert command.wait() == 0, command.said
    return weights(command.run)


@pytest.fixture
def commands(recipe: Path) -> Iterator[Commands]:
    found = Commands(recipe)
    yield found
    found.end()


def test_two_nodes_train_what_one_node_trains(commands: Commands, undisturbed: dict[str, str]) -> None:
    both = [commands.start(node, run="runs/two-nodes") for node in ("a", "b")]
    assert [one.wait() for one in both] == [0, 0], both[0].said + both[1].said
    run = both[0].run
    assert weights(run) == undisturbed
    assert samples_are_exact(run)
    assert [e["event"] for e in events(run)] == ["node_joined"]
    assert resumed(run) == [0]


def test_a_worker_that_is_killed_on_another_node_costs_no_step(
    commands: Commands, undisturbed: dict[str, str]
) -> None:
    both = [commands.start(node, run="runs/killed-worker", fault="kill@6:1") for node in ("a", "b")]
    assert [one.wait() for one in both] == [0, 0], both[0].said + both[1].said
    run = both[0].run
    assert weights(run) == undisturbed
    assert samples_are_exact(run)
    assert resumed(run) in ([0, 4], [0, 5])  # the copy of step 5 is made beside step 6
    (failure,) = [e for e in events(run) if e["event"] == "failure"]
    assert (failure["detail"]["kind"], failure["detail"]["ranks"]) == ("killed", [1])


@pytest.mark.parametrize("rank", [1, 0], ids=["following", "leading"])
def test_a_spare_takes_the_place_of_a_node_that_is_lost_with_its_memory(
    commands: Commands, undisturbed: dict[str, str], rank: int
) -> None:
    run, fault = f"runs/lost-{rank}", f"drop_node@6:{rank}"
    all_three = [commands.start(node, 3, run=run, fault=fault) for node in ("a", "b", "c")]
    said = "".join
    codes = sorted(one.wait() for one in all_three)
    assert codes == [-9, 0, 0], said(one.said for one in all_three)
    directory = all_three[0].run
    assert weights(directory) == undisturbed
    assert samples_are_exact(directory)
    assert resumed(directory) == [0, 5], said(one.said for one in all_three)
