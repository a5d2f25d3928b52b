"""One rank that is not as the others: nothing of a source, or a NaN. The others neither wait for it nor go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.errors import NonFinite
from stoker.layout import Layout
from stoker.parallel import join_world
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.step import StepResult
from tests.distributed import run_ranks
from tests.training import test_step as steps
from tests.training.test_trainer import _recipe, corpus

__all__ = ["corpus"]
pytestmark = pytest.mark.slow

_WITHOUT = [5, 0, 3, 0, 2, 0, 4, 9]
"""Tokens of each sequence; sources take turns, so the first rank has nothing of the second source."""


def _uneven_rank(rank: int, ranks: int, store: Any) -> list[StepResult]:
    recipe = steps._recipe(layout=Layout(dp_replicate=2))
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 30) as world:
        train = steps._build(recipe, world)
        batches = [steps._global_batch(step, _WITHOUT if step < 4 else None) for step in range(1, 5)]
        return [
            train(step, steps._share(batch, world, 1), with_modules=False, stop=False)
            for step, batch in enumerate(batches, start=1)
        ]


def test_a_rank_that_has_nothing_of_a_source_takes_part_in_its_sum() -> None:
    """A rank without a figure left the reduction out: later ones were paired wrongly, or all waited."""
    train = steps._build(steps._recipe(), steps._alone())
    expected = [
        train(step, [steps._global_batch(step, _WITHOUT if step < 4 else None)], with_modules=False, stop=False)
        for step in range(1, 5)
    ]
    for results in run_ranks(_uneven_rank, 2):
        for found, wanted in zip(results, expected, strict=True):
            assert found.tokens_by_source == wanted.tokens_by_source
            assert found.loss_by_source == pytest.approx(wanted.loss_by_source, rel=1e-5)


def _poisoned_rank(rank: int, ranks: int, store: Any, recipe: Recipe, corpus: Corpus, run: Path) -> str:
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        trainer = build_trainer(Job(recipe, run, corpus.folder, 1), world, StopRequest(), lambda message: None)

        bad = Feed(corpus, recipe).micro_batches(3, 1, 2)[0].tokens

        def poison(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
            return output * float("nan") if torch.equal(inputs[0], bad) else output

        trainer.step.model.part.embedding.register_forward_hook(poison)
        try:
            trainer.fit()
        except NonFinite as error:
            return f"{error.exit_code} {error}"
        finally:
            trainer.close()
    return "went on"


def test_a_nan_on_one_rank_ends_all_at_the_same_step_with_the_same_words(corpus: Corpus, tmp_path: Path) -> None:
    """A check per rank, and only when a line was due, let the others go on and wait. The documents do it: whoever
    computes with them, as ranks do that check each other, finds it too."""
    recipe = _recipe(corpus, layout__dp_replicate=2, recovery__on_non_finite="ask", evaluation__every=0)
    first, second = run_ranks(_poisoned_rank, 2, recipe, corpus, tmp_path)
    assert first == second
    assert first.startswith("76 ")
    assert "step 3" in first
    assert "samples 8 to 11" in first
    losses = Record(tmp_path / "record").steps()["loss"]
    assert losses.is_nan().to_list() == [False, False, True]
