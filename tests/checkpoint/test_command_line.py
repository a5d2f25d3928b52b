"""What the command says of checkpoints that it cannot write or that are not the run's."""

from __future__ import annotations

import ctypes
import hashlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.checkpoint import latest
from stoker.record import Record
from tests.end_to_end.small_job import command, stoker, write_job
from tests.preloaded import environment

pytestmark = pytest.mark.slow
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def _without_privilege() -> None:
    """Permissions of folders count for this process and what it starts, though it is root's."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def _until(met: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not met():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run whose folder of checkpoints could not be written for a while; what the command said."""
    folder = tmp_path_factory.mktemp("job")
    # fmt: off
    recipe = write_job(
        folder, training__steps=200, training__sequence_length=16, training__micro_batch_size=8,
        evaluation__every=0, evaluation__sequences=1, evaluation__prompts=[],
        checkpoint__every=4, checkpoint__folder="saved here",
    )
    # fmt: on
    saved, record = folder / "saved here", folder / "runs/small/record"
    with subprocess.Popen(
        command("train", recipe),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        preexec_fn=_without_privilege,
        text=True,
    ) as process:
        try:
            _until(lambda: latest(saved), process)
            saved.chmod(0o555)
            _until(lambda: any(one["event"] == "save_failed" for one in Record(record).events()), process)
            assert latest(saved) is not None, "the last good one is gone"
            saved.chmod(0o755)
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
            saved.chmod(0o755)
    assert process.returncode == 0, said
    return recipe, said


def test_a_folder_that_cannot_be_written_for_a_while_is_told_and_stops_no_training(job: tuple[Path, str]) -> None:
    recipe, said = job
    assert "no permission to write there" in said
    events = [one for one in Record(recipe.parent / "runs/small/record").events() if "save" in one["event"]]
    failed = [one["step"] for one in events if one["event"] == "save_failed"]
    saved = [one["step"] for one in events if one["event"] == "saved"]
    assert failed
    assert saved[0] < failed[0] < saved[-1] == 200
    newest = latest(recipe.parent / "saved here")
    assert newest is not None
    assert newest.name == "step-00000200"
    assert not (recipe.parent / "runs/small/checkpoints").exists()


def test_a_report_tells_of_it_and_lists_what_is_kept_there(job: tuple[Path, str]) -> None:
    run = job[0].parent / "runs/small"
    result = stoker("report", run)
    assert result.returncode == 0, result.stderr
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "step-00000200" in page
    assert str(job[0].parent / "saved here") in page
    assert "save failed" in page


def _contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _refusal(recipe: Path, *overrides: str, steps: int = 204) -> str:
    """What a command says that goes on from checkpoints that do not fit; nothing of them has changed."""
    before = _contents(recipe.parent / "saved here")
    result = stoker("train", recipe, f"training.steps={steps}", *overrides)
    assert result.returncode == 2, result.stdout + result.stderr
    assert _contents(recipe.parent / "saved here") == before
    return result.stderr


def test_checkpoints_of_another_vocabulary_are_refused_with_what_differs(job: tuple[Path, str]) -> None:
    said = _refusal(job[0], "name=other", "tokenizer.vocabulary_size=300")
    assert "the vocabularies differ: 320 tokens there, 300 here" in " ".join(said.split()).lower()


def test_the_last_step_of_another_model_is_not_taken_for_this_one_trained(job: tuple[Path, str]) -> None:
    said = _refusal(job[0], "name=deeper", "model.layers=3", steps=200)
    assert "blocks.2" in said


def test_checkpoints_of_a_newer_format_are_refused_with_their_version(job: tuple[Path, str]) -> None:
    newest = latest(job[0].parent / "saved here")
    assert newest is not None
    kept = (newest / "manifest.json").read_bytes(), (newest / "committed").read_bytes()
    changed = json.dumps({**json.loads(kept[0]), "format": 99, "stoker_version": "9.9"}).encode()
    (newest / "manifest.json").write_bytes(changed)
    (newest / "committed").write_text(hashlib.sha256(changed).hexdigest() + "\n")
    try:
        said = " ".join(_refusal(job[0]).split())
    finally:
        (newest / "manifest.json").write_bytes(kept[0])
        (newest / "committed").write_bytes(kept[1])
    assert "format 99, written by a newer version of Stoker (9.9)" in said
