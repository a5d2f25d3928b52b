"""`stoker run` from a folder of raw text to a report, through the real command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from stoker.progress import Silent
from stoker.record import Record, samples_seen
from stoker.run_directory import RunDirectory
from stoker.training import run_evaluation
from tests.end_to_end.small_job import stoker, write_job

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose recipe has been run once; tests read it and change nothing."""
    folder = tmp_path_factory.mktemp("a job with spaces 和汉字")
    recipe = write_job(folder)
    result = stoker("run", recipe)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "report.html" in result.stdout
    assert "step-00000012" in result.stdout
    return folder


def _run(folder: Path) -> RunDirectory:
    return RunDirectory(folder / "runs" / "small")


def test_a_run_leaves_everything_its_directory_promises(finished: Path) -> None:
    run = _run(finished)
    for path in (run.recipe, run.environment, run.plan, run.corpus, run.record, run.report):
        assert path.exists(), path
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-00000008", "step-00000012"]


def test_the_record_holds_every_step_and_every_sample_once(finished: Path) -> None:
    record = Record(_run(finished).record)
    steps = record.steps()
    assert steps["step"].to_list() == list(range(1, 13))
    assert steps["last_sample"].to_list()[-1] == 12 * 8
    report = samples_seen(record)
    assert report.exact, report


def test_loss_by_source_adds_up_to_the_loss(finished: Path) -> None:
    from stoker.record import rows_of

    for row in rows_of("step", Record(_run(finished).record).steps()):
        total = sum(loss * row["tokens_by_source"][name] for name, loss in row["loss_by_source"].items())
        assert total / row["tokens"] == pytest.approx(row["loss"], rel=1e-6)
        assert sum(row["tokens_by_source"].values()) == row["tokens"]


def test_held_out_text_of_every_source_is_scored_and_prompts_are_continued(finished: Path) -> None:
    record = Record(_run(finished).record)
    evaluations = record.evaluations()
    assert set(evaluations["source"].unique()) == {"english", "chinese", "code", "mathematics"}
    assert set(evaluations["step"].unique()) == {6, 12}
    assert (evaluations["bits_per_byte"] > 0).all()
    assert record.samples().height == 4


def test_running_again_does_nothing_and_says_so(finished: Path) -> None:
    run = _run(finished)
    before = {path: path.stat().st_mtime_ns for path in run.checkpoints.rglob("*") if path.is_file()}
    result = stoker("run", finished / "recipe.yaml")
    assert result.returncode == 0, result.stderr
    assert {path: path.stat().st_mtime_ns for path in run.checkpoints.rglob("*") if path.is_file()} == before
    assert Record(run.record).steps().height == 12


def test_eval_scores_the_checkpoint_as_training_did(finished: Path) -> None:
    result = stoker("eval", _run(finished).path, "--json")
    assert result.returncode == 0, result.stderr
    scores = {score["source"]: score for score in json.loads(result.stdout)["scores"]}
    assert set(scores) == {"english", "chinese", "code", "mathematics"}
    assert all(0 < score["loss"] < 7 for score in scores.values())


def test_eval_computes_with_the_threads_of_the_recipe(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(_run(finished).path, folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("threads: 1", "threads: 3"))
    seen: list[int] = []

    def evaluate(*_: object) -> list[object]:
        seen.append(torch.get_num_threads())
        return []

    monkeypatch.setattr(run_evaluation, "evaluate", evaluate)
    before = torch.get_num_threads()
    try:
        run_evaluation.evaluate_run(RunDirectory(folder), Silent())
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 3, 3, 3]


def test_data_show_prints_the_documents_of_a_step(finished: Path) -> None:
    result = stoker("data", "show", _run(finished).path, "--step", "7", "--json")
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    assert {document["source"] for document in shown["documents"]} <= {"english", "chinese", "code", "mathematics"}
    assert len({document["sample"] for document in shown["documents"]}) == 8


def test_export_loads_in_transformers(finished: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    result = stoker("export", _run(finished).path, tmp_path / "exported")
    assert result.returncode == 0, result.stdout + result.stderr
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert model.config.vocab_size >= len(tokenizer)
    assert tokenizer.decode(tokenizer("The river 山水")["input_ids"], skip_special_tokens=True) == "The river 山水"


def test_a_step_more_continues_the_finished_run(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    result = stoker("train", folder / "recipe.yaml", "training.steps=14")
    assert result.returncode == 0, result.stdout + result.stderr
    assert Record(_run(folder).record).steps()["step"].to_list() == list(range(1, 15))


def test_a_changed_recipe_is_refused_with_what_differs(finished: Path) -> None:
    result = stoker("train", finished / "recipe.yaml", "model.layers=3", "training.optimizer.learning_rate=0.5")
    assert result.returncode == 2
    assert "model.layers" in result.stderr
    assert "learning_rate" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_run_folder_in_use_is_refused(finished: Path) -> None:
    run = _run(finished)
    with run.held("a test"):
        result = stoker("train", finished / "recipe.yaml", "training.steps=20")
    assert result.returncode == 2
    assert "in use" in result.stderr
    assert "a test" in result.stderr


def test_sources_with_nothing_held_out_are_named(tmp_path: Path) -> None:
    recipe = write_job(tmp_path, training__steps=3)
    result = stoker("run", recipe, "data.held_out=0")
    assert result.returncode == 0, result.stderr
    assert "evaluate: nothing held out of english, chinese, code, mathematics" in result.stderr
    assert "steps done" not in result.stderr
    page = (tmp_path / "runs" / "small" / "report.html").read_text()
    assert "Nothing was held out of english, chinese, code, mathematics" in page


def test_a_run_writes_text_that_says_where_it_is_from(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("The river\n山水\n", encoding="utf-8")
    output = tmp_path / "written.jsonl"
    asked = (finished / "runs" / "small", "--prompts", tmp_path / "prompts.txt", "--tokens", 6, "--json")
    asked = ("data", "synthesize", *asked, "--temperatures", "0,1", "--output")
    result = stoker(*asked, output)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)["rows"] == 4
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [row["prompt"] for row in rows] == ["The river", "The river", "山水", "山水"]
    assert {row["model"] for row in rows} == {"small step 12"}
    assert len({row["model_digest"] for row in rows}) == 1
    assert all(0 < row["tokens"] <= 6 or row["finish"] == "stop" for row in rows)
    assert stoker(*asked, tmp_path / "again.jsonl").returncode == 0
    assert (tmp_path / "again.jsonl").read_bytes() == output.read_bytes()
    result = stoker(*asked, output, "--step", 8)
    assert result.returncode == 2, "rows of another state of the weights are other rows"
