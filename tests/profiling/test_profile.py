"""Two real ranks, profiled, from the command line to the merged trace."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.small_job import stoker, write_job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def output(job: Path) -> Path:
    folder = job.parent / "profile"
    result = stoker("profile", job, "layout.dp_replicate=2", "--steps", "5-6", "--output", folder, "--keep")
    assert result.returncode == 0, result.stderr
    assert "Is communication hidden behind computation?" in result.stdout
    (job.parent / "printed.txt").write_text(result.stdout)
    return folder


@pytest.fixture(scope="module")
def found(output: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((output / "profile.json").read_text())
    return answer


@pytest.fixture(scope="module")
def events(output: Path) -> list[dict[str, Any]]:
    merged = json.loads(gzip.decompress((output / "trace.json.gz").read_bytes()))
    found: list[dict[str, Any]] = merged["traceEvents"]
    return found


def test_the_recipes_own_run_is_not_touched(job: Path, output: Path) -> None:
    assert not (job.parent / "runs").exists()
    assert sorted(path.name for path in output.iterdir()) == ["profile.json", "run", "trace.json.gz"]


def test_categories_are_the_wall_time_of_each_rank_exactly(found: dict[str, Any]) -> None:
    assert found["steps"] == [5, 6]
    assert [rank["name"] for rank in found["ranks"]] == ["rank 0 · dp 0 tp 0 pp 0", "rank 1 · dp 1 tp 0 pp 0"]
    for rank in found["ranks"]:
        assert sum(rank["nanoseconds"].values()) == rank["wall_nanoseconds"] > 0
        assert rank["nanoseconds"]["compute"] > 0
        assert rank["compute"]["matrix products"] > 0
        assert rank["compute"]["attention"] > 0
        assert rank["seconds"]["exposed_communication"] > 0
        assert 0 <= rank["overlapped"] <= rank["communication"] <= rank["wall_seconds"]


def test_collectives_have_their_group(found: dict[str, Any]) -> None:
    for rank in found["ranks"]:
        reduced = [one for one in rank["sent"] if one["kind"] == "all_reduce"]
        assert [one["dimension"] for one in reduced] == ["dp_replicate"]
        assert reduced[0]["count"] >= 3
        assert reduced[0]["bytes"] > 4 * 30_000  # the gradients
    assert set(found["arrives_last"]) == {"0", "1"}


def test_every_question_has_an_answer(found: dict[str, Any]) -> None:
    assert len({one["question"] for one in found["checklist"]}) == len(found["checklist"]) == 16
    assert {one["area"] for one in found["checklist"]} == {"data", "compute", "communication", "memory"}
    assert {one["answer"] for one in found["checklist"]} <= {"yes", "no", "unknown"}
    costs = [one["seconds"] for one in found["checklist"] if one["answer"] == "no"]
    assert costs == sorted(costs, reverse=True)
    answers = {one["question"]: one["answer"] for one in found["checklist"]}
    assert answers["Is attention fused?"] == "yes"
    assert answers["Is torch.compile on?"] == "no"


def test_the_plan_stands_beside_what_was_measured(found: dict[str, Any]) -> None:
    compared = {one["what"]: one for one in found["predicted"]}
    whole = compared["a step without saving and evaluation"]
    assert whole["ratio"] == pytest.approx(whole["measured"] / whole["predicted"])
    assert compared["compute"]["predicted"] > 0
    assert compared["host"]["predicted"] is None


def test_operators_are_told_with_shapes_and_speed(found: dict[str, Any]) -> None:
    assert found["operators"]
    assert found["reachable_flops_per_second"] > 1e8
    by_time = [one["seconds"] for one in found["operators"]]
    assert by_time == sorted(by_time, reverse=True)


def test_what_profiling_costs_is_told(found: dict[str, Any]) -> None:
    assert found["profiler"]["step_seconds"] > 0
    assert found["profiler"]["steps_without"] >= 2
    assert found["memory_peak"]["above_start"] > 0


def test_the_trace_has_all_ranks_by_one_clock(events: list[dict[str, Any]]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0 · dp 0 tp 0 pp 0", "rank 1 · dp 1 tp 0 pp 0"]
    moments = [e["ts"] for e in events if e["ph"] != "M"]
    assert moments == sorted(moments)
    ranges = Counter((names[e["pid"]], e["name"]) for e in events if e["ph"] == "X")
    for name in names.values():
        assert ranges[name, "step 5"] == ranges[name, "step 6"] == 1
        assert ranges[name, "phase forward"] == ranges[name, "phase backward"] == 2 * 2
        assert ranges[name, "phase optimizer"] == 2
    steps = defaultdict(list)
    for e in events:
        if e["name"].startswith("step "):
            steps[e["name"]].append((e["ts"], e["ts"] + e["dur"]))
    for one, other in steps.values():  # the same step of both ranks, at the same time
        assert max(one[0], other[0]) < min(one[1], other[1])


def test_arrows_join_collectives_of_both_ranks(events: list[dict[str, Any]]) -> None:
    arrows = defaultdict(list)
    for e in events:
        if e.get("cat") == "collective":
            arrows[e["id"]].append(e)
    assert arrows
    for ends in arrows.values():
        start, end = sorted(ends, key=lambda e: e["ph"], reverse=True)
        assert (start["ph"], end["ph"]) == ("s", "f")
        assert start["pid"] // 100 != end["pid"] // 100
        assert start["ts"] <= end["ts"]


def test_a_profile_goes_on_from_a_checkpoint_and_leaves_it(job: Path, output: Path, tmp_path: Path) -> None:
    """From the run that was kept; its checkpoint of step 4 is the newest then."""
    kept = output / "run" / "checkpoints"
    before = sorted(path.name for path in kept.iterdir())
    assert before[-1] == "step-00000008"
    result = stoker("profile", job, "--from", output / "run", "--steps", "10", "--output", tmp_path / "p", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["steps"], found["from_step"]) == ([10], 8)
    assert sorted(path.name for path in kept.iterdir()) == before
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["profile.json", "trace.json.gz"]
