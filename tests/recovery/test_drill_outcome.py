"""What `stoker drill` is asked for, and what it makes of what came of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer

from stoker import cli
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.recovery import drill
from stoker.recovery.drill import Rehearsal, every_kind
from stoker.recovery.drill_doctor import Examined, Said, _about, with_own_name
from stoker.recovery.faults import KINDS, SURVIVED_BY_ITSELF, parse_fault
from stoker.recovery.supervisor import _sequences
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import recipe as small
from tests.end_to_end.small_job import write_job

SURVIVED = Rehearsal(
    faults=("drop_node@6:1",),
    nodes=2,
    came=1,
    finished=True,
    commands=1,
    seconds=1.0,
    restarts=1,
    detect_seconds=(0.1,),
    recover_seconds=(2.0,),
    steps_lost=0,
    samples_lost=0,
    samples_repeated=0,
    blamed=(),
    useful=0.9,
    weights="bit-identical",
    difference=0.0,
    other_layout=False,
    allowed_difference=0.0,
    said="",
    output="drills/drill-001/output.log",
)
ROUNDED = replace(SURVIVED, weights="differ by 1.5e-07 of the largest", difference=1.5e-7)


@pytest.mark.parametrize(
    ("changes", "survived"),
    [
        ({"allowed_difference": 1e-5, "other_layout": True}, True),
        ({"allowed_difference": 1e-5, "other_layout": True, "difference": 2e-5}, False),
        ({"allowed_difference": 1e-5, "other_layout": True, "difference": float("inf")}, False),
        ({"allowed_difference": 1e-5, "other_layout": True, "samples_repeated": 8}, False),
        ({}, False),
    ],
    ids=["rounding", "more", "no-weights", "samples-repeated", "same-layout"],
)
def test_other_bits_are_right_only_where_another_layout_rounds_otherwise(
    changes: dict[str, Any], survived: bool
) -> None:
    assert replace(ROUNDED, **changes).survived is survived


@pytest.mark.parametrize(
    ("training", "allowed"),
    [({}, 1e-5), ({"deterministic": "across_layouts", "micro_batch_size": 1}, 0.0), ({"precision": "bf16"}, 2**-8)],
    ids=["fp32", "across-layouts", "bf16"],
)
def test_what_another_layout_may_make_of_the_weights(training: dict[str, Any], allowed: float) -> None:
    recipe = Recipe.model_validate(small(**{f"training__{name}": value for name, value in training.items()}))
    assert drill._allowed_difference(recipe) == allowed


@pytest.mark.parametrize("value", [1.0 + 1e-7, float("nan")], ids=["rounded", "nan"])
def test_weights_are_compared_as_bits_and_as_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: float
) -> None:
    both = {"ours": torch.tensor([value, 2.0]), "theirs": torch.tensor([1.0, 2.0])}
    monkeypatch.setattr(drill, "latest", lambda folder: folder.parent / "step-12")
    monkeypatch.setattr(
        drill,
        "read_weights",
        lambda path: {"a": both[path.parent.name], "b": torch.tensor([1.0 + (value != value)])},
    )
    said, difference = drill._compared(
        RunDirectory(tmp_path / "ours").checkpoints, RunDirectory(tmp_path / "theirs").checkpoints
    )
    assert said.startswith("differ by")
    assert difference == (float("inf") if value != value else pytest.approx(6e-8, rel=0.1))


def _attempt(replicate: int, forwards: int, micro: int | None = None) -> Any:
    recipe = Recipe.model_validate(small(layout={"dp_replicate": replicate}, training__micro_batch_size=micro))
    job = SimpleNamespace(recipe=recipe)
    return SimpleNamespace(job=job, forwards=forwards, first_step=0, last_step=12, furthest_step=12)


def test_a_step_is_of_as_many_sequences_in_every_layout() -> None:
    """Micro-batches that are derived from the layout are larger where there are fewer ranks."""
    assert [_attempt(ranks, ranks).job.recipe.micro_batch_size_at(1) for ranks in (1, 2)] == [8, 4]
    assert _sequences(_attempt(1, 1)) == _sequences(_attempt(2, 2)) == 8


@pytest.mark.parametrize(
    ("attempts", "useful"),
    [([96], 1.0), ([40, 80], 0.8), ([40, None], None), ([40], None), ([90], None)],
    ids=["undisturbed", "some-again", "uncounted", "an-attempt-missing", "less-than-all-seen"],
)
def test_no_more_than_all_of_the_work_is_useful(attempts: list[int | None], useful: float | None) -> None:
    def record(counts: list[int | None], starts: int) -> Any:
        rows = [{"event": "ranks_ended", "detail": {"sequences": count}} for count in counts]
        return SimpleNamespace(events=lambda rank: rows, attempts=lambda: list(range(starts)))

    starts = 2 if attempts == [40] else len(attempts)
    assert drill._useful(record(attempts, starts), record([96], 1)) == useful


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fault": ["kill@3"], "kind": ["kill"]}, "--kind says nothing of a --fault"),
        ({"fault": ["kill@3"], "seed": 1}, "--seed says nothing of a --fault"),
        ({"per_run": 2}, "--per-run says how many drawn faults come in each run: give --draw N"),
        ({"kind": ["explode"]}, "--kind explode: there is no fault 'explode'; `stoker drill --list` says what"),
        (
            {"fault": ["bit_flip@3"]},
            "no fault 'bit_flip'; did you mean bitflip_gradient or bitflip_local_gradient or bitflip_weight? ",
        ),
        ({"fault": ["badata@3"]}, "there is no fault 'badata'; did you mean bad_data? "),
    ],
    ids=["kind", "seed", "per-run", "unknown", "of-several-kinds", "misspelt"],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    path = write_job(tmp_path)
    with pytest.raises(BadInput) as refused:
        cli.drill(path, **given)
    assert said in str(refused.value)


def test_kinds_pick_among_the_drills(tmp_path: Path) -> None:
    loaded = load_recipe(write_job(tmp_path))
    assert [fault.kind for (fault,) in every_kind(loaded, 0)] == [k for k in KINDS if k in SURVIVED_BY_ITSELF]
    assert [fault.kind for (fault,) in every_kind(loaded, 0, ["hang", "sigterm"])] == ["hang", "sigterm"]


@pytest.mark.parametrize(
    ("faults", "name"),
    [
        ((), "small-undisturbed"),
        (("bad_data@120:what=html,steps=2",), "small-bad_data-html-120"),
        (("kill@5:1", "hang@9:0"), "small-kill-5-rank1-hang-9"),
        (("oversample@7:source=中文 文本/a",), "small-oversample-中文_文本_a-7"),
    ],
)
def test_each_run_of_a_drill_has_the_name_of_what_is_put_in(
    tmp_path: Path, faults: tuple[str, ...], name: str
) -> None:
    loaded = load_recipe(write_job(tmp_path))
    named = with_own_name(loaded, [parse_fault(one) for one in faults])
    assert named.recipe.name == name
    assert Recipe.model_validate(named.recipe.model_dump(mode="json")) == named.recipe
    assert loaded.recipe == named.recipe.model_copy(update={"name": "small"})


def test_a_name_of_many_faults_is_one_that_a_recipe_can_have(tmp_path: Path) -> None:
    named = with_own_name(load_recipe(write_job(tmp_path)), [parse_fault("kill@5")] * 40)
    assert Recipe.model_validate(named.recipe.model_dump(mode="json")).name == named.recipe.name


def test_drills_say_how_many_runs_they_are_and_name_each_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    class Heard(Silent):
        def say(self, line: str) -> None:
            said.append(line)

    def rehearse_one(
        loaded: Any, run: RunDirectory, faults: tuple[Any, ...], *given: Any, **more: Any
    ) -> Rehearsal:
        said.append(f"begins in {run.path.name}")
        return SURVIVED

    monkeypatch.setattr(drill, "_rehearse_one", rehearse_one)
    monkeypatch.setattr(drill, "_in_a_process", lambda *given, what: None)
    drill.rehearse(load_recipe(write_job(tmp_path)), [(parse_fault("kill@3"),)], tmp_path / "drills", Heard())
    assert said[0].startswith("2 whole runs, one after another: one undisturbed, 1 with faults")
    assert said[1:] == [
        "run 1 of 2: undisturbed",
        "begins in undisturbed",
        "run 2 of 2: kill@3:0",
        "begins in drill-001",
    ]


def test_the_table_names_what_a_run_that_was_not_survived_has_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = replace(ROUNDED, other_layout=True, allowed_difference=1e-5)
    monkeypatch.setattr(drill, "rehearse", lambda *given: [other, ROUNDED])
    with pytest.raises(typer.Exit):
        cli.drill(write_job(tmp_path), fault=["kill@3:0"])
    shown = capsys.readouterr().out
    assert "survived, in another layout" in shown
    assert shown.rstrip().endswith("what drop_node@6:1 printed: drills/drill-001/output.log")


def test_the_list_of_kinds_fits_a_terminal_and_says_which_are_drilled_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.drill(list_kinds=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    drilled = {line.split()[0]: line for line in lines if line[0] != " "}
    assert " needs --nodes " in drilled["delay"]
    assert " yes " in drilled["kill"]
    assert " between_phases " in drilled["disk"]
    cli.drill(list_kinds=True, json=True)
    assert json.loads(capsys.readouterr().out)["disk"]["phase"] == "between_phases"


def _examined(cause: str, first: int, last: int | None, ranks: tuple[int, ...] = ()) -> Examined:
    """Of a rank 1 that was made slow at step 100, what the doctor said."""
    said = Said("slow_rank", cause, "warning", first, last, ranks, (), ())
    return Examined("slow_rank@100:1", "slow_compute", 100, 1, (), True, said)


@pytest.mark.parametrize(
    ("said", "named", "elsewhere"),
    [
        (_examined("slow_compute", 101, 120, (1,)), True, False),
        (_examined("slow_compute", 90, None, ()), True, False),
        (_examined("slow_compute", 101, 120, (0,)), False, True),
        (_examined("slow_compute", 15, 18, (1,)), False, True),
        (_examined("slow_compute", 31, 150, (1,)), False, True),
        (_examined("jitter", 100, 120, (1,)), False, False),
    ],
    ids=["the-rank", "no-rank", "another-rank", "over-before", "begun-long-before", "another-cause"],
)
def test_a_cause_that_is_named_of_another_rank_or_of_other_steps_is_not_that_of_the_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: Examined,
    named: bool,
    elsewhere: bool,
) -> None:
    assert (said.named, said.elsewhere) == (named, elsewhere)
    monkeypatch.setattr(drill, "rehearse", lambda *_: [replace(SURVIVED, examined=(said,))])
    cli.drill(write_job(tmp_path), fault=["kill@3"])
    row = next(line for line in capsys.readouterr().out.splitlines() if "slow_compute  " in line)
    assert row.split()[2] == ("yes" if named else "elsewhere" if elsewhere else "NO")
    assert row.endswith("drill-001")


def test_of_several_findings_with_the_cause_that_of_the_fault_is_told() -> None:
    def finding(first: int, ranks: tuple[int, ...]) -> Any:
        return _examined("slow_compute", first, first + 20, ranks).said

    said = _about(parse_fault("slow_rank@100:1"), [finding(15, (0,)), finding(101, (1,))])
    assert said is not None
    assert (said.first_step, said.ranks) == (101, (1,))


def test_runs_of_an_earlier_drill_do_not_pass_for_those_of_this_one(tmp_path: Path) -> None:
    for name in ("drill-001", "drill-002", "drill-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "output.log").touch()
    (tmp_path / "drill-003").mkdir()  # nothing of a drill's
    drill._clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drill-003", "drill-mine"]
    drill._clear(tmp_path / "none")


def test_drills_of_two_recipes_in_a_folder_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def rehearse(loaded: Any, drills: Any, folder: Path, *_: Any) -> list[Rehearsal]:
        asked.append(folder)
        return [SURVIVED]

    monkeypatch.setattr(drill, "rehearse", rehearse)
    path = write_job(tmp_path)
    for name in ("first", "second"):
        cli.drill(path, overrides=[f"name={name}"], fault=["kill@3"])
    assert [folder.relative_to(tmp_path).parts[-2:] for folder in asked] == [
        ("drills", "first"),
        ("drills", "second"),
    ]
