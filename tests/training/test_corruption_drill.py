"""A rank whose gradients are a little wrong before they are summed is named by the real command line's drill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.diagnosis import diagnose
from stoker.record import Record
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import stoker, write_job

pytestmark = pytest.mark.slow


def test_a_small_wrong_gradient_that_enters_the_sum_is_found_and_put_down_to_its_rank(tmp_path: Path) -> None:
    """No loss, norm or digest of replicas shows it. Step 5 is spoilt, step 6 is checked; both are done again."""
    recipe = write_job(tmp_path, recovery__spot_check_every=2, evaluation__every=0, training__steps=6)
    fault = "bitflip_local_gradient@5:2:steps=2"
    layout = ["layout.dp_replicate=2", "layout.dp_shard=2"]
    result = stoker("drill", recipe, *layout, "--fault", fault, "--json", "--folder", tmp_path / "drills")
    assert result.stdout, result.stderr
    (drill,) = json.loads(result.stdout)["drills"]
    assert drill["survived"], json.dumps(drill, indent=1)
    assert drill["blamed"] == [[fault, [2]]]
    assert drill["restarts"] == 0
    events = Record(tmp_path / "drills" / "drill-001" / "record").events()
    (found,) = [event for event in events if event["event"] == "silent_corruption"]
    assert (found["step"], found["detail"]["agreed_until"]) == (6, 4)
    assert found["detail"]["verdict"] == "persistent"
    assert not {"spike", "replayed", "replicas_differ"} & {event["event"] for event in events}


def test_experts_that_are_divided_over_replicas_are_held_against_their_own_copies_alone(tmp_path: Path) -> None:
    """With ep=2 each expert is on two of four replicas. Undisturbed nothing is found; then one bit flips."""
    experts = {"experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 32}
    recipe = write_job(tmp_path, model__moe=experts, evaluation__every=0, training__steps=8, checkpoint__every=3)
    layout = ["layout.dp_replicate=4", "layout.ep=2", "recovery.compare_every=2"]
    fault = "bitflip_weight@5:1"
    result = stoker("drill", recipe, *layout, "--fault", fault, "--json", "--folder", tmp_path / "drills")
    assert result.stdout, result.stderr
    (drill,) = json.loads(result.stdout)["drills"]
    assert drill["survived"], json.dumps(drill, indent=1)
    assert drill["blamed"] == [[fault, [1]]]
    events = Record(tmp_path / "drills" / "undisturbed" / "record").events()
    assert "replicas_differ" not in {event["event"] for event in events}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_wrong_weight_that_is_found_many_steps_later_is_named_with_its_rank_and_step(
    tmp_path: Path, rank: int
) -> None:
    """By then the sum of gradients has led all replicas astray."""
    recipe = write_job(tmp_path, evaluation__every=0, training__steps=20, checkpoint__every=9)
    layout, fault = ["layout.dp_replicate=2", "recovery.compare_every=18"], f"bitflip_weight@11:{rank}"
    result = stoker("drill", recipe, *layout, "--fault", fault, "--json", "--folder", tmp_path / "drills")
    assert result.stdout, result.stderr
    (drill,) = json.loads(result.stdout)["drills"]
    assert drill["survived"], json.dumps(drill, indent=1)
    assert drill["blamed"] == [[fault, [rank]]]
    [folder] = [one for one in (tmp_path / "drills").iterdir() if one.name != "undisturbed" and one.is_dir()]
    [told] = [one for one in Record(folder / "record").events() if one["event"] == "silent_corruption"]
    assert told["step"] == 18
    assert told["detail"]["first_step"] in (11, 12)
    [finding] = [one for one in diagnose(RunDirectory(folder)).findings if one.kind == "silent_corruption"]
    assert finding.first_step == told["detail"]["first_step"]
    assert finding.ranks == (rank,)


@pytest.mark.parametrize(
    ("fault", "step", "first"),
    [
        pytest.param("bitflip_local_gradient@6:{rank}:bit=20", 6, 6, id="in the step that is looked at"),
        pytest.param("bitflip_weight@5:{rank}:bit=22", 6, 5, id="before it"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_of_two_ranks_that_disagree_the_step_that_is_done_again_tells_who_was_wrong(
    tmp_path: Path, fault: str, step: int, first: int, rank: int
) -> None:
    one_batch = {"training__global_batch_size": 8, "training__micro_batch_size": 4}  # all is looked at
    recipe = write_job(tmp_path, recovery__spot_check_every=3, evaluation__every=0, training__steps=8, **one_batch)
    layout, fault = ["layout.dp_replicate=2", "recovery.compare_every=100"], fault.format(rank=rank)
    result = stoker("drill", recipe, *layout, "--fault", fault, "--json", "--folder", tmp_path / "drills")
    assert result.stdout, result.stderr
    (drill,) = json.loads(result.stdout)["drills"]
    assert drill["survived"], json.dumps(drill, indent=1)
    folder = tmp_path / "drills" / "drill-001"
    told = [one for one in Record(folder / "record").events() if one["event"] == "silent_corruption"]
    assert [(one["step"], one["detail"]["verdict"]) for one in told] == [(step, "undecided"), (step, "transient")]
    assert told[0]["detail"]["ranks"] == [0, 1]
    assert told[1]["detail"]["ranks"] == [rank]
    assert abs(told[1]["detail"]["first_step"] - first) <= 1
    [finding] = [one for one in diagnose(RunDirectory(folder)).findings if one.kind == "silent_corruption"]
    assert finding.ranks == (rank,)


@pytest.mark.parametrize(("rank", "steps"), [(1, 3), pytest.param(0, 2, marks=pytest.mark.thorough)])
def test_of_two_ranks_the_one_that_goes_on_computing_wrong_gradients_is_named_by_the_loss(
    tmp_path: Path, rank: int, steps: int
) -> None:
    """It is still wrong when the steps are done again: the run ends, and says whose machine to take out."""
    one_batch = {"training__global_batch_size": 8, "training__micro_batch_size": 4}
    recipe = write_job(tmp_path, recovery__spot_check_every=3, evaluation__every=0, training__steps=9, **one_batch)
    fault = f"bitflip_local_gradient@6:{rank}:bit=30,steps={steps}"
    result = stoker(
        "drill", recipe, "layout.dp_replicate=2", "--fault", fault, "--json", "--folder", tmp_path / "drills"
    )
    assert result.stdout, result.stderr
    (drill,) = json.loads(result.stdout)["drills"]
    assert f"Take the machine of rank {rank} out" in drill["said"]
    folder = tmp_path / "drills" / "drill-001"
    told = [one["detail"] for one in Record(folder / "record").events() if one["event"] == "silent_corruption"]
    assert [(one["verdict"], one["ranks"]) for one in told] == [("persistent", [rank])] * 2
    for one in told:
        asked = one["arbiter"]
        assert abs(asked["by_gradients"][1 - rank] - asked["derivative"]) < 1e-3
        assert abs(asked["by_gradients"][rank]) > 1e30
    [finding] = [one for one in diagnose(RunDirectory(folder)).findings if one.kind == "silent_corruption"]
    assert finding.ranks == (rank,)
