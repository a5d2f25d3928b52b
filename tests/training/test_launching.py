"""What a run's folder says before the first step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.planning import make_plan
from stoker.progress import Silent
from stoker.recipe.loading import load_recipe
from stoker.training import launching
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
