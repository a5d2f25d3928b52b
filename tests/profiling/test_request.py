"""What cannot be profiled is refused before anything is started or written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.profiling.recording import Steps
from stoker.profiling.request import begin_from, make_room, output_of, require_ranks, steps_of
from stoker.recipe.loading import LoadedRecipe, load_recipe
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import stoker
from tests.preloaded import server
from tests.recipe.recipes import write


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedRecipe:
    return load_recipe(write(tmp_path), ["training.steps=20"])


@pytest.mark.parametrize(
    ("wanted", "done", "steps"),
    [
        ("12-14", 0, Steps(12, 14, 17)),
        (" 12 ", 0, Steps(12, 12, 15)),
        ("19-20", 0, Steps(19, 20, 20)),
        (None, 0, Steps(5, 7, 10)),
        (None, 10, Steps(15, 17, 20)),
        (None, 18, Steps(19, 20, 20)),
    ],
)
def test_steps_are_profiled_after_warm_up(
    loaded: LoadedRecipe, wanted: str | None, done: int, steps: Steps
) -> None:
    assert steps_of(wanted, loaded.recipe, done) == steps


@pytest.mark.parametrize(
    ("wanted", "done", "told"),
    [
        ("20-21", 0, "beyond the recipe's 20"),
        ("25", 0, "beyond the recipe's 20"),
        ("7-3", 0, "not before it"),
        ("0-3", 0, "1 or more"),
        ("a-b", 0, "expected steps such as 12-14"),
        ("", 0, "expected steps such as 12-14"),
        ("5-6", 5, "done already"),
        (None, 20, "all 20 steps are done"),
    ],
)
def test_steps_that_cannot_be_are_refused(loaded: LoadedRecipe, wanted: str | None, done: int, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        steps_of(wanted, loaded.recipe, done)


def test_an_earlier_profile_is_replaced_and_nothing_else(loaded: LoadedRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    assert output_of(folder, loaded) == folder
    make_room(folder)
    (folder / "profile.json").write_text("{}")
    (folder / "trace.json.gz").write_bytes(b"")
    assert output_of(folder, loaded) == folder
    make_room(folder)
    assert [path.name for path in folder.iterdir()] == [".ranks"]
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match=r"holds what is no profile's \(thesis.tex\)"):
        output_of(folder, loaded)


def test_a_folder_of_another_kind_is_refused(loaded: LoadedRecipe, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(BadInput, match="no profile's"):
        output_of(tmp_path, loaded)
    with pytest.raises(BadInput, match="is a file"):
        output_of(tmp_path / "recipe.yaml", loaded)


def test_by_default_profiles_are_beside_the_runs(loaded: LoadedRecipe, tmp_path: Path) -> None:
    assert output_of(None, loaded) == tmp_path / "profiles" / "small"


def test_a_launcher_must_have_started_as_many_ranks(loaded: LoadedRecipe) -> None:
    require_ranks(loaded.recipe, 1)
    with pytest.raises(BadInput, match="started 3 ranks"):
        require_ranks(loaded.recipe, 3)


def test_only_a_run_with_a_checkpoint_can_be_gone_on_from(loaded: LoadedRecipe, tmp_path: Path) -> None:
    assert begin_from(None, loaded.recipe) == (0, None)
    with pytest.raises(BadInput, match="is not a run"):
        begin_from(RunDirectory(tmp_path / "nothing"), loaded.recipe)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--steps", "11-12"), "beyond the recipe's 10"),
        (("--steps", "12-"), "expected steps such as 12-14"),
        (("--output", "."), "no profile's"),
        (("--from", "text"), "is not a run"),
        (("training.device=cuda",), "cuda"),
    ],
)
def test_the_verb_refuses_what_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    server()  # which is started from here
    monkeypatch.chdir(tmp_path)
    result = stoker("profile", write(tmp_path), *arguments)
    assert result.returncode == 2, result.stderr
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["recipe.yaml"]
