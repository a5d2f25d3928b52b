"""Held-out losses against a plain computation, whoever computes which batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from stoker.data.feeding import HeldOut
from stoker.layout import Layout
from stoker.parallel import World, join_world
from stoker.training.evaluation import SourceScore, evaluate, mean_loss
from tests.distributed import run_ranks
from tests.training.test_step import _alone, _build, _global_batch, _recipe


def _held_out() -> list[HeldOut]:
    """Three batches of one source, which two ranks cannot share evenly, and one of another, with few targets."""
    first, second = _global_batch(1), _global_batch(2, [0, 0, 1, 0, 0, 0, 3, 0])
    parts: list[Any] = [[first.rows(0, 3), first.rows(3, 6), first.rows(6, 8)], [second]]
    return [
        HeldOut(name, batches, sum(int((one.targets >= 0).sum()) for one in batches), size, 2)
        for name, batches, size in zip(("short", "long"), parts, (211, 13), strict=True)
    ]


def _scores(world: World) -> list[SourceScore]:
    recipe = _recipe(layout=world.layout, model={"dropout": 0.2}, document_mask=True)
    train = _build(recipe, world)
    scores = evaluate(train.model, recipe, _held_out())
    assert train.model.part.training
    return scores


def _on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> list[SourceScore]:
    torch.set_num_threads(1)
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return _scores(world)


def _plainly() -> list[tuple[float, int]]:
    """Sum of cross-entropies in nats, and how many tokens were predicted, of each source."""
    model = _build(_recipe(model={"dropout": 0.2}), _alone()).model.part.eval()
    found = []
    for source in _held_out():
        total, count = 0.0, 0
        for batch in source.batches:
            with torch.no_grad():
                logits = model(batch.tokens, positions=batch.positions, documents=batch.documents).double()
            for row, targets in zip(logits, batch.targets.tolist(), strict=True):
                for own, target in zip(row, targets, strict=True):
                    if target >= 0:
                        total += float(own.logsumexp(0) - own[target])
                        count += 1
        found.append((total, count))
    return found


@pytest.mark.parametrize("layout", [Layout(), Layout(dp_replicate=2), Layout(tp=2), Layout(pp=2)], ids=str)
def test_held_out_losses_are_those_of_a_plain_computation_in_every_layout(layout: Layout) -> None:
    every = [_scores(_alone())] if layout.world_size == 1 else run_ranks(_on_rank, 2, layout)
    for scores in every:
        assert [one.source for one in scores] == ["short", "long"]
        for score, (total, count), size in zip(scores, _plainly(), (211, 13), strict=True):
            assert score.tokens == count
            assert score.loss == pytest.approx(total / count, rel=1e-5)
            row = score.row(7)
            assert row["perplexity"] == pytest.approx(2.718281828459045 ** (total / count), rel=1e-4)
            assert row["bits_per_byte"] == pytest.approx(total / 0.6931471805599453 / size, rel=1e-5)
        counts = [count for _, count in _plainly()]
        assert mean_loss(scores) == pytest.approx(sum(total for total, _ in _plainly()) / sum(counts), rel=1e-5)


def test_what_has_no_bytes_or_no_number_has_no_bits_per_byte_and_no_perplexity() -> None:
    assert math.isnan(SourceScore("one", 2.0, 3, 0).bits_per_byte)
    assert math.isnan(SourceScore("one", math.nan, 3, 4).perplexity)
    assert SourceScore("one", 1e6, 3, 4).perplexity == pytest.approx(math.exp(700))
