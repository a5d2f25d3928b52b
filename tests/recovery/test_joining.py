"""Who is in a run over several nodes, what it says of itself, and what each node has to fetch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recovery.courier import newest_of_all
from stoker.recovery.nodes import Notice, Place, placed, ranks_on, read_notice, write_notice
from stoker.recovery.restoring import Holder, covering, parcels_for
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import recipe as small

SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_JOB_ID": "77",
    "SLURMD_NODENAME": "n012",
    "STOKER_ADDRESS": "10.0.0.1",
}


def test_a_command_that_nobody_places_runs_on_one_node() -> None:
    assert placed({}) is None
    assert placed({"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "4"}) is None, "a shell of an allocation, no srun"
    assert placed({**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}) is None


def test_srun_says_which_node_this_is() -> None:
    assert placed(SLURM) == Place("n012", 3, "77.0.0", "10.0.0.1")
    unnamed = {name: value for name, value in SLURM.items() if name != "SLURMD_NODENAME"}
    assert placed({**unnamed, "SLURM_NODEID": "2"}) == Place("node-2", 3, "77.0.0", "10.0.0.1")


def test_one_says_it_by_hand() -> None:
    given = {"STOKER_NODES": "2", "STOKER_NODE": "left", "STOKER_JOB": "monday", "STOKER_ADDRESS": "10.0.0.1"}
    assert placed({**SLURM, **given}) == Place("left", 2, "monday", "10.0.0.1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"STOKER_NODES": "2"}, "STOKER_NODE and STOKER_JOB must be too"),
        ({"STOKER_NODES": "two", "STOKER_NODE": "a", "STOKER_JOB": "j"}, "whole number from 1 on, but it is 'two'"),
        ({"STOKER_NODES": "2", "STOKER_NODE": "../a", "STOKER_JOB": "j"}, "cannot name a node"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "24"}, "--ntasks-per-node=1"),
    ],
    ids=["half", "words", "path", "tasks"],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        placed(given)


def test_a_node_holds_as_many_ranks_as_the_recipe_says_or_its_share() -> None:
    place = Place("a", 3, "j", "10.0.0.1")
    by_share = Recipe.model_validate(small(layout={"dp_replicate": 4}))
    assert ranks_on(place, by_share) == 2
    said = Recipe.model_validate(small(layout={"dp_replicate": 4}, recovery={"ranks_per_node": 4}))
    assert ranks_on(place, said) == 4


def test_a_notice_is_read_as_it_was_written_by_its_owner_alone(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_notice(run) is None
    notice = Notice("job", "a", "f" * 32, "10.0.0.1", 4711, "secret", begun=True)
    write_notice(run, notice)
    assert read_notice(run) == notice
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text('{"job": "of another version"}')
    assert read_notice(run) is None


@dataclass(frozen=True)
class _Entry:
    name: str
    box: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _File:
    pieces: tuple[_Entry, ...]


@dataclass(frozen=True)
class _Note:
    rank: int
    file: _File
    session: str = "s"
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Copy:
    """As much of a snapshot as choosing among them looks at."""

    note: _Note
    step: int = 5

    @property
    def file(self) -> Path:
        return Path(f"rank-{self.note.rank}")


def _copy(rank: int, *rows: tuple[int, int], step: int = 5, layout: Any = None) -> Any:
    pieces = tuple(_Entry("weight", (one,)) for one in rows)
    return _Copy(_Note(rank, _File(pieces), progress={"layout": layout}), step)


def _holder(node: str) -> Holder:
    return Holder(node, (node, 1), None, None)


def test_in_the_same_layout_a_node_fetches_its_own_ranks_whole_and_of_others_the_outlines() -> None:
    recipe = Recipe.model_validate(small(layout={"dp_shard": 4}))
    same = recipe.layout.model_dump(mode="json")
    copies = [_copy(rank, (rank, rank + 1), layout=same) for rank in range(4)]
    at = [
        (_holder("a"), copies[0]),
        (_holder("a"), copies[1]),
        (_holder("b"), copies[2]),
        (_holder("b"), copies[3]),
    ]
    found = parcels_for("spare", (2, 3), at, recipe)
    assert [(one.rank, one.whole, one.address[0]) for one in found] == [
        (0, False, "a"),
        (1, False, "a"),
        (2, True, "b"),
        (3, True, "b"),
    ]
    assert [(one.rank, one.whole) for one in parcels_for("a", (0, 1), at, recipe)] == [(2, False), (3, False)]
    assert parcels_for("idle", (), at, recipe) == []


def test_in_another_layout_a_node_fetches_what_holds_everything_once() -> None:
    recipe = Recipe.model_validate(small(layout={"dp_shard": 2}))
    copies = [_copy(0, (0, 2)), _copy(1, (2, 4)), _copy(2, (0, 2)), _copy(3, (2, 4))]
    at = [
        (_holder("a"), copies[0]),
        (_holder("a"), copies[1]),
        (_holder("b"), copies[2]),
        (_holder("b"), copies[3]),
    ]
    assert covering(copies) == {0, 1}
    assert [(one.rank, one.whole) for one in parcels_for("b", (0, 1), at, recipe)] == [(0, True), (1, True)]


def test_what_is_sent_is_of_the_newest_step_that_all_ranks_have() -> None:
    first, second = [_copy(0, step=5), _copy(0, step=4)], [_copy(1, step=4), _copy(1, step=3)]
    assert [(one.note.rank, one.step) for one in newest_of_all([first, second])] == [(0, 4), (1, 4)]
    assert newest_of_all([first, [_copy(1, step=3)]]) == []
    assert newest_of_all([]) == []
