"""What a run's folder says before the first step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.planning import make_plan
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from stoker.training import launching
from stoker.training.rank import Job
from tests.data.corpora import build_corpus, byte_document
from tests.planning.machines import machine
from tests.recipe.recipes import write


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    documents = [byte_document(f"The {i}th line of a source.") for i in range(4)]
    return build_corpus(tmp_path / "corpus", {"web": {"train": documents, "held_out": []}})


@pytest.mark.parametrize(("overrides", "threads"), [(["training.threads=3"], 3), (["layout.dp_shard=64"], 1)])
def test_the_environment_has_the_threads_that_a_rank_computes_with(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, overrides: list[str], threads: int
) -> None:
    loaded = load_recipe(
        write(tmp_path), [*overrides, "training.global_batch_size=64", "training.micro_batch_size=1"]
    )
    monkeypatch.setattr(launching, "plan_for", lambda *_: make_plan(loaded.recipe, 300, machine()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        launching.open_run(loaded, loaded.run, corpus, Silent())
        assert json.loads(loaded.run.environment.read_text())["threads"] == threads == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


class _Watched(Silent):
    """Someone who writes down what is advanced and said."""

    def __init__(self) -> None:
        self.done = 0.0
        self.words: list[str] = []

    @contextmanager
    def task(self, name: str, total: float | None, unit: str) -> Iterator[_Watched]:
        yield self

    def advance(self, amount: float = 1) -> None:
        self.done += amount

    def describe(self, text: str) -> None:
        self.words.append(text)


def test_the_bar_shows_steps_from_copies_in_memory_and_no_rate_that_counts_the_start(tmp_path: Path) -> None:
    """The newest checkpoint is of step 5, and the run goes on from step 9 in memory."""
    job = Job(load_recipe(write(tmp_path)).recipe, tmp_path, tmp_path, attempt=2)
    watched = _Watched()
    with launching.shown(watched, job, 5) as report:
        for step in (10, 11):
            row = {"kind": "step", "step": step, "loss": 1.0, "learning_rate": 0.1, "gradient_norm": 1.0}
            report({**row, "tokens": 64})
    assert watched.done == 11
    assert ["tokens/s" in words for words in watched.words] == [False, True]


def test_reports_that_come_at_once_make_no_rate_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten steps a second, reported every two seconds together, as by a process that waits for a processor."""
    clock = [0.0]
    monkeypatch.setattr(launching.time, "monotonic", lambda: clock[0])
    job = Job(load_recipe(write(tmp_path)).recipe, tmp_path, tmp_path, attempt=1)
    watched = _Watched()
    with launching.shown(watched, job, 0) as report:
        for step in range(1, 401):
            clock[0] = 2.0 * (step // 20) + 1e-5 * (step % 20)
            row = {"kind": "step", "step": step, "loss": 1.0, "learning_rate": 0.1, "gradient_norm": 1.0}
            report({**row, "tokens": 1000})
    told = [float(words.split()[-2].replace(",", "")) for words in watched.words if "tokens/s" in words]
    assert min(told[100:]) > 8_000
    assert max(told[100:]) < 13_000
