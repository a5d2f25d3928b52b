"""How faults are written, and which cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recipe.loading import load_recipe
from stoker.recovery.faults import KINDS, parse_fault, require_no_network, require_possible
from tests.end_to_end.small_job import write_job


@pytest.mark.parametrize(
    "text", ["kill@12", "kill@12:1", "freeze@3:0:phase=backward", "slow_rank@5:1:strength=3,steps=7", "kill@0:1"]
)
def test_a_fault_is_written_as_it_is_read(text: str) -> None:
    assert parse_fault(str(parse_fault(text))) == parse_fault(text)


def test_every_kind_can_be_written_with_all_its_options() -> None:
    for kind, described in KINDS.items():
        options = ",".join(f"{name}={value:g}" for name, value in described.options.items())
        fault = parse_fault(f"{kind}@3:1" + (f":{options}" if options else ""))
        assert (fault.kind, fault.step, fault.rank, fault.phase) == (kind, 3, 1, described.phase)
        for name, value in described.options.items():
            assert fault.option(name) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kill", "expected kind@step"),
        ("kill@x", "expected kind@step"),
        ("kill@-1", "expected kind@step"),
        ("explode@3", "there is no fault 'explode'; `stoker drill --list` says what there is"),
        ("kill@3:0:phase=lunch", "there is no phase 'lunch'; there are starting"),
        ("kill@3:0:factor=2", "kill has no option 'factor'; it takes phase"),
        ("delay@3:0:ms=two", "ms must be a number, not 'two'"),
        ("delay@3:0:ms=nan", "ms must be a number from 0 on"),
        ("delay@3:0:ms=-1", "ms must be a number from 0 on"),
        ("disk@3:0:steps=0", "steps must be a whole number from 1 on, not 0"),
        ("kill@3:0:nth=0", "nth must be a whole number from 1 on, not 0"),
        ("kill@3:0:attempt=1.5", "attempt must be a whole number from 1 on, not 1.5"),
        ("bitflip_weight@3:0:bit=99", "bit must be a whole number from 0 to 31, not 99"),
        ("kill@3:0:delay=1,delay=2", "delay is given twice"),
        ("kill@3:0:phase=nap", "there are starting, loading, between_phases, data"),
    ],
)
def test_nonsense_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(BadInput, match="--fault") as refused:
        parse_fault(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kill@13", "the run has 12 steps"),
        ("kill@3:2", "the run has 2 ranks"),
        ("kill@5:0:phase=checkpoint", "there is no checkpoint after step 5, only every 4 steps"),
        ("kill@5:0:phase=evaluation", "there is no evaluation after step 5, only every 6 steps"),
        ("delay@5:1:ms=20", "on one node there is no network between nodes; give --nodes 2"),
    ],
)
def test_a_step_or_rank_that_the_run_does_not_have_is_refused(tmp_path: Path, text: str, said: str) -> None:
    recipe = load_recipe(write_job(tmp_path, layout__dp_replicate=2)).recipe
    with pytest.raises(BadInput, match="--fault") as refused:
        require_possible(parse_fault(text), recipe, nodes=1)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["kill@12", "kill@0:1", "kill@8:1:phase=checkpoint", "kill@12:0:phase=evaluation"])
def test_the_last_step_and_the_start_can_be_met(tmp_path: Path, text: str) -> None:
    recipe = load_recipe(write_job(tmp_path, layout__dp_replicate=2)).recipe
    require_possible(parse_fault(text), recipe, nodes=1)


def test_faults_of_the_network_need_one_and_numbers_that_mean_something(tmp_path: Path) -> None:
    recipe = load_recipe(write_job(tmp_path, layout__dp_replicate=2)).recipe
    cut = parse_fault("partition@5:1:seconds=3")
    require_possible(cut, recipe, nodes=2)
    with pytest.raises(BadInput, match="mbit must be more than 0"):
        require_possible(parse_fault("bandwidth@5:1:mbit=0"), recipe, nodes=2)
    with pytest.raises(BadInput, match=r"partition@5:1:seconds=3: .*no network .*: it takes root"):
        require_no_network("it takes root", [(parse_fault("kill@3"),), (cut,)])
    require_no_network("it takes root", [(parse_fault("kill@3"),)])
