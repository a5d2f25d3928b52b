"""`checkpoint.folder`: what it may say, what it is relative to, and that a report looks there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.checkpoint import checkpoints_of, place, save
from stoker.errors import BadInput
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.report.run_facts import RunFacts
from stoker.run_directory import RunDirectory
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining
from tests.end_to_end.small_job import write_job
from tests.report.synthetic_run import SyntheticRun


def _folder(recipe: Path, *overrides: str) -> str | None:
    return load_recipe(recipe, overrides).recipe.checkpoint.folder


def test_a_path_is_relative_to_the_recipe_wherever_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_job(tmp_path / "job 中", checkpoint__folder="saved/here")
    monkeypatch.chdir(tmp_path)
    for given in (recipe, Path(os.path.relpath(recipe))):
        assert _folder(given) == str(tmp_path / "job 中/saved/here")
    assert _folder(recipe, "checkpoint.folder=../beside") == str(tmp_path / "job 中/../beside")


def test_the_runs_own_recipe_names_the_same_folder(tmp_path: Path) -> None:
    loaded = load_recipe(write_job(tmp_path, checkpoint__folder="saved"))
    copy = loaded.run.recipe
    copy.parent.mkdir(parents=True)
    copy.write_text(dump_recipe(loaded.recipe))
    again = load_recipe(copy)
    assert again.recipe == loaded.recipe
    assert checkpoints_of(again.run, again.recipe.checkpoint) == tmp_path / "saved"


@pytest.mark.parametrize("whole", ["/somewhere/else", "s3://bucket/run", "file:///somewhere", "memory://run"])
def test_whole_paths_and_urls_stay_as_they_are(whole: str, tmp_path: Path) -> None:
    assert _folder(write_job(tmp_path, checkpoint__folder=whole)) == whole


def test_the_home_folder_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _folder(write_job(tmp_path, checkpoint__folder="~/saved")) == str(tmp_path / "home/saved")


@pytest.mark.parametrize("odd", ["", "  ", "s3:/bucket/run", "gs:bucket"])
def test_what_is_likely_a_mistaken_url_is_refused(odd: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"recipe\.yaml:\d+:\d+: checkpoint\.folder: expected a path or a URL"):
        _folder(write_job(tmp_path, checkpoint__folder=odd))


def _facts(run: RunDirectory, folder: str) -> RunFacts:
    run.recipe.write_text(run.recipe.read_text() + f"\ncheckpoint:\n  folder: {folder}\n")
    return RunFacts.load(run)


@pytest.mark.parametrize("kind", ["path", "file", "store"])
def test_a_report_lists_the_checkpoints_of_that_folder(kind: str, tmp_path: Path) -> None:
    where = {"path": str(tmp_path / "there"), "file": f"file://{tmp_path}/there"}.get(kind, f"memory://{tmp_path}")
    training = TinyTraining.alone("lion", layers=1)
    for step in (3, 5):
        save(place(where), step, training.model.held, training.optimizer, {}, KEEP_ALL)
    run = SyntheticRun(steps=9, resume_from=None).write(tmp_path / "run")
    facts = _facts(run, where)
    assert facts.checkpoint_folder == where
    assert [one.step for one in facts.checkpoints] == [3, 5]
    assert all(one.bytes > 1000 and one.saved for one in facts.checkpoints)
    assert not facts.notes


def test_a_folder_that_cannot_be_listed_does_not_end_the_report(tmp_path: Path) -> None:
    facts = _facts(SyntheticRun(steps=9, resume_from=None).write(tmp_path), "nowhere://bucket/run")
    assert facts.checkpoints == []
    assert any("nowhere://bucket/run" in note for note in facts.notes)
