"""Runs over several nodes: they end in the same place, whichever node is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from stoker.recovery.drill import rehearse
from stoker.recovery.faults import parse_fault
from stoker.recovery.node_link import knock
from stoker.recovery.nodes import read_notice
from tests.end_to_end.small_job import write_job
from tests.recovery.several_commands import (
    Command,
    events,
    in_a_process,
    prepared,
    resumed,
    samples_are_exact,
    weights,
    with_steps,
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


def test_a_rank_that_is_frozen_on_another_node_is_found_out(
    commands: Commands, undisturbed: dict[str, str]
) -> None:
    given = {"run": "runs/frozen", "fault": "freeze@6:1", "overrides": ["recovery.hang_seconds=1"]}
    both = [commands.start(node, **given) for node in ("a", "b")]
    assert [one.wait() for one in both] == [0, 0], both[0].said + both[1].said
    assert weights(both[0].run) == undisturbed
    (failure,) = [e for e in events(both[0].run) if e["event"] == "failure"]
    assert (failure["detail"]["kind"], failure["detail"]["ranks"]) == ("hang", [1])
    assert failure["detail"]["why"] == "its process is stopped"
    assert not [e for e in events(both[0].run) if e["event"] == "node_lost"]


SHARDED = ("layout.dp_replicate=1", "layout.dp_shard=2")
"""No rank has the whole state; with `across_layouts` the weights are those of two copies."""


@pytest.mark.parametrize("rank", [1, 0], ids=["following", "leading"])
def test_a_spare_takes_the_place_of_a_node_that_is_lost_with_its_memory(
    commands: Commands, undisturbed: dict[str, str], rank: int
) -> None:
    run, fault = f"runs/lost-{rank}", f"drop_node@6:{rank}"
    overrides = SHARDED if rank == 1 else ()
    all_three = [commands.start(node, 3, run=run, fault=fault, overrides=overrides) for node in ("a", "b", "c")]
    said = "".join
    codes = sorted(one.wait() for one in all_three)
    assert codes == [-9, 0, 0], said(one.said for one in all_three)
    directory = all_three[0].run
    assert weights(directory) == undisturbed
    assert samples_are_exact(directory)
    assert resumed(directory) == [0, 5], said(one.said for one in all_three)


@pytest.mark.parametrize("rank", [1, 0], ids=["following", "leading"])
def test_a_supervisor_that_is_killed_is_replaced_and_the_nodes_find_each_other_again(
    commands: Commands, undisturbed: dict[str, str], rank: int
) -> None:
    run, fault = f"runs/supervisor-{rank}", f"kill_supervisor@6:{rank}"
    both = [commands.start(node, run=run, fault=fault) for node in ("a", "b")]
    assert [one.wait() for one in both] == [0, 0], both[0].said + both[1].said
    directory = both[0].run
    assert weights(directory) == undisturbed
    assert samples_are_exact(directory)
    assert resumed(directory) == [0, 5], both[0].said + both[1].said


def test_without_a_spare_the_run_shrinks_and_grows_back_when_the_node_returns(tmp_path: Path, recipe: Path) -> None:
    longer = with_steps(recipe, tmp_path, 2 * STEPS)
    reference = Command(longer, None, 1, run="runs/one-node")
    assert reference.wait() == 0, reference.said
    commands = Commands(longer)
    try:
        # Slow enough that there are steps left when the node is back.
        fault = "drop_node@6:1+slow_rank@8:0:strength=9,steps=100"
        first = commands.start("a", fault=fault, overrides=SHARDED)
        first.wait_for("node a leads")
        second = commands.start("b", overrides=SHARDED)
        assert second.wait() == -9, second.said
        first.wait_for("shrunk from 2 to 1")
        again = commands.start("b", overrides=SHARDED)
        assert [first.wait(), again.wait()] == [0, 0], first.said + again.said
    finally:
        commands.end()
    assert weights(first.run) == weights(reference.run)
    assert samples_are_exact(first.run)
    kinds = [e["event"] for e in events(first.run) if e["event"] != "fault"]
    assert kinds == ["node_joined", "node_lost", "failure", "shrunk", "node_joined", "grown"], first.said
    assert resumed(first.run)[:2] == [0, 5]


def test_one_node_that_is_asked_to_stop_saves_and_ends_the_run_on_all(
    commands: Commands, undisturbed: dict[str, str]
) -> None:
    both = [commands.start(node, run="runs/stopped", fault="sigterm@6:1") for node in ("a", "b")]
    assert [one.wait() for one in both] == [143, 143], both[0].said + both[1].said
    again = [commands.start(node, run="runs/stopped", job="the next") for node in ("a", "b")]
    assert [one.wait() for one in again] == [0, 0], again[0].said + again[1].said
    assert weights(again[0].run) == undisturbed
    assert samples_are_exact(again[0].run)
    first, second = resumed(again[0].run)
    assert (first, second >= 6) == (0, True)


def test_all_nodes_ask_for_another_turn_when_one_is_asked_to_stop(commands: Commands) -> None:
    given = {"run": "runs/requeued", "fault": "sigterm@6:1", "overrides": ["recovery.on_sigterm=requeue"]}
    first = commands.start("a", **given)
    first.wait_for("node a leads")
    second = commands.start("b", **given)
    assert [first.wait(), second.wait()] == [75, 75], "a scheduler looks at the highest code"
    assert "node b was asked to stop: all save and end" in first.said
    assert all("asked to stop: saved after step" in one.said for one in (first, second)), first.said + second.said


def test_the_whole_job_runs_on_every_node_and_what_is_done_once_is_done_by_the_leader(tmp_path: Path) -> None:
    unprepared = write_job(
        tmp_path,
        training__steps=3,
        layout={"dp_replicate": 2},
        recovery={"ranks_per_node": 1},
        checkpoint__every=1000,
    )
    commands = Commands(unprepared)
    try:
        first = commands.start("a", run="runs/whole", whole_job=True)
        first.wait_for("node a leads")
        second = commands.start("b", run="runs/whole", whole_job=True)
        assert [first.wait(), second.wait()] == [0, 0], first.said + second.said
    finally:
        commands.end()
    assert first.run.report.is_file()
    assert len(list((tmp_path / "prepared").glob("*/manifest.json"))) == 1
    assert "report: written\n" in first.said
    assert "report: written by the node that led" in second.said
    assert "node a leads" not in second.said
    assert samples_are_exact(first.run)


def test_another_job_and_strangers_do_not_get_in(commands: Commands, undisturbed: dict[str, str]) -> None:
    first = commands.start("a", run="runs/strangers")
    first.wait_for("waiting for nodes")
    notice = read_notice(first.run)
    assert notice is not None
    assert notice.address is not None
    assert (first.run.path / "leader.json").stat().st_mode & 0o077 == 0
    with ExitStack() as strangers:
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n" + bytes(200), b"\x80\x04" + bytes(30)):
            stranger = strangers.enter_context(socket.create_connection(notice.address, timeout=5))
            stranger.sendall(said)
        assert knock(notice.address, "a wrong token", 5, 5) is None
        other = commands.start("c", run="runs/strangers", job="another", other_job_seconds=0.3)
        second = commands.start("b", run="runs/strangers")
        assert other.wait() == 2, other.said
        assert "is in use" in other.said
        assert [first.wait(), second.wait()] == [0, 0], first.said + second.said
    assert weights(first.run) == undisturbed
    assert [e["event"] for e in events(first.run)] == ["node_joined"]


def test_a_drill_over_nodes_brings_a_dropped_node_back_and_leaves_links_whole(recipe: Path, tmp_path: Path) -> None:
    dropped, cut_off = in_a_process(_rehearsed, recipe, tmp_path)
    for found in (dropped, cut_off):
        assert found["survived"], found
        assert (found["nodes"], found["commands"], found["came"]) == (2, 1, 1)
        assert len(found["detect_seconds"]) == len(found["recover_seconds"]) == 1
    assert dropped["blamed"] == (("drop_node@6:0:back=0.2", ()),), "that a leader is lost is all that others know"
    assert cut_off["blamed"] == (("network@6:1", (1,)),), "a rank's connections are not its node's"


def _rehearsed(recipe: Path, folder: Path) -> list[dict[str, Any]]:
    loaded = load_recipe(recipe, ["recovery.node_wait_seconds=60"])
    drills = [(parse_fault("drop_node@6:0:back=0.2"),), (parse_fault("network@6:1"),)]
    return [one.as_json() for one in rehearse(loaded, drills, folder, Silent(), nodes=2)]
