"""Runs that are asked to stop, and the time of day: others cut a save short, or trusted a local clock."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from stoker.checkpoint import latest, writing
from stoker.data.corpus import Corpus
from stoker.errors import Terminated
from stoker.record import Record
from stoker.training.signals import StopRequest
from tests.training.test_trainer import _fit, _recipe, _trainer, corpus

__all__ = ["corpus"]
pytestmark = pytest.mark.slow


def test_a_save_that_takes_long_is_complete_when_a_run_that_is_asked_to_stop_ends(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers gave a save thirty seconds, whatever it took, and killed it half written."""
    go_on, began = threading.Event(), threading.Event()
    plain = writing.write_file

    def slowly(*args: object) -> object:
        began.set()
        assert go_on.wait(60)
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(writing, "write_file", slowly)
    stop = StopRequest()
    trainer = _trainer(_recipe(corpus, checkpoint__every=100, evaluation__every=0), corpus, tmp_path, stop=stop)

    def ask(message: dict[str, object]) -> None:
        stop.asked = stop.asked or message["step"] == 3

    trainer.report = ask
    ended: list[BaseException] = []

    def run() -> None:
        try:
            trainer.fit()
        except BaseException as error:
            ended.append(error)

    running = threading.Thread(target=run)
    running.start()
    assert began.wait(60)
    time.sleep(0.5)
    assert running.is_alive(), "the run does not end before its state is durable"
    assert latest(tmp_path / "checkpoints") is None
    go_on.set()
    running.join(60)
    trainer.close()
    assert [type(error) for error in ended] == [Terminated]
    assert latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-00000004"


def test_times_in_the_record_are_those_of_the_epoch_wherever_the_clock_hangs(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local times of ranks in two time zones named two folders; here they only ever count seconds."""
    began = time.time()
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        _fit(_recipe(corpus, training__steps=2, evaluation__every=0), corpus, tmp_path)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    times = Record(tmp_path / "record").steps(columns=["step", "time"])["time"].to_list()
    assert len(times) == 2
    assert all(began <= moment <= time.time() for moment in times)
    named = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert named == ["step-00000002"]
