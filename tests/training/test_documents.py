"""Losses of documents and of stretches of the sequence, from a step that packs and accumulates."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from stoker.data.feeding import MicroBatch
from stoker.layout import Layout
from stoker.model import Decoder, initialise
from stoker.parallel import World, join_world
from stoker.training.documents import stretches
from stoker.training.step import StepResult
from tests.distributed import run_ranks
from tests.training.test_step import BATCH, LENGTH, SOURCES, VOCABULARY, _alone, _build, _recipe, _share

CUTS = [[10], [], [8], [3, 12], [5], [], [8], [1, 9]]
"""Where documents begin in each sample, besides 0."""


def _packed() -> MicroBatch:
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(5))
    documents = torch.zeros(BATCH, LENGTH + 1, dtype=torch.int32)
    for sample, cuts in enumerate(CUTS):
        for cut in cuts:
            documents[sample, cut:] += 1
    same = documents[:, 1:] == documents[:, :-1]
    positions = torch.arange(LENGTH).repeat(BATCH, 1)
    for sample, cuts in enumerate(CUTS):
        for cut in cuts:
            positions[sample, cut:] = torch.arange(LENGTH - cut)
    return MicroBatch(
        tokens=tokens[:, :-1].contiguous(),
        targets=tokens[:, 1:].where(same, -100),
        positions=positions,
        documents=documents[:, :-1].contiguous(),
        sources=torch.arange(BATCH) % 2,
        samples=torch.arange(40, 40 + BATCH),
    )


def _recipe_with(most: int, **training: Any) -> Any:
    recipe = _recipe(document_mask=True, **training)
    return recipe.model_copy(update={"telemetry": recipe.telemetry.model_copy(update={"worst_documents": most})})


def _step(world: World, accumulation: int, most: int = 100) -> StepResult:
    train = _build(_recipe_with(most, layout=world.layout), world)
    return train(1, _share(_packed(), world, accumulation), with_modules=False, stop=False)


def _alone_each() -> dict[tuple[int, int, int], float]:
    """Each document in a pass of its own: by sample, first token and number of tokens."""
    recipe = _recipe()
    model = Decoder(recipe.model, VOCABULARY, LENGTH)
    initialise(model, recipe.model, seed=recipe.seed)
    model.train(False)
    whole, found = _packed(), {}
    for sample, cuts in enumerate(CUTS):
        bounds = [0, *cuts, LENGTH]
        for first, last in pairwise(bounds):
            part = slice(first, last)
            targets = whole.targets[sample : sample + 1, part]
            if int((targets >= 0).sum()) >= 8:
                with torch.no_grad():
                    losses = model(whole.tokens[sample : sample + 1, part], targets).token_losses
                found[40 + sample, first, last - first] = float(losses.sum() / (targets >= 0).sum())
    return found


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_documents_loss_is_that_of_a_pass_over_it_alone(accumulation: int) -> None:
    expected = _alone_each()
    documents = _step(_alone(), accumulation).documents
    found = {(one.sample, one.first_token, one.tokens): one.loss for one in documents}
    assert found == pytest.approx(expected, rel=1e-5)
    assert [one.loss for one in documents] == sorted(found.values(), reverse=True)
    assert all(one.source == SOURCES[one.sample % 2] for one in documents)


def test_only_the_worst_are_kept_and_none_where_none_are_wanted() -> None:
    worst = _step(_alone(), 2, most=2).documents
    assert [one.loss for one in worst] == pytest.approx(sorted(_alone_each().values(), reverse=True)[:2], rel=1e-5)
    assert _step(_alone(), 2, most=0).documents == []


def test_positions_split_the_loss_of_the_whole_batch() -> None:
    result, whole = _step(_alone(), 2), _packed()
    counts = (whole.targets >= 0).sum(dim=0)
    bounds = [tuple(map(int, name.split("-"))) for name in result.loss_by_position]
    assert bounds == [(first, first + 1) for first in range(0, LENGTH, 2)]
    shares = [int(counts[first : last + 1].sum()) for first, last in bounds]
    assert sum(shares) == result.tokens
    total = sum(loss * count for loss, count in zip(result.loss_by_position.values(), shares, strict=True))
    assert total / result.tokens == pytest.approx(result.loss, rel=1e-6)
    model = _build(_recipe_with(0), _alone()).model.part
    with torch.no_grad():
        losses = model(
            whole.tokens, whole.targets, positions=whole.positions, documents=whole.documents
        ).token_losses.sum(dim=0)
    for (first, last), loss, count in zip(bounds, result.loss_by_position.values(), shares, strict=True):
        assert loss == pytest.approx(float(losses[first : last + 1].sum()) / count, rel=1e-5)


@pytest.mark.parametrize("length", [1, 5, 8, 13, 1024])
def test_stretches_cover_a_sequence_once(length: int) -> None:
    found = [place for first, last in stretches(length) for place in range(first, last)]
    assert found == list(range(length))
    assert len(stretches(length)) == min(length, 8)
    sizes = {last - first for first, last in stretches(length)}
    assert max(sizes) - min(sizes) <= 1


def _on_rank(rank: int, ranks: int, store: Any, layout: Layout) -> StepResult:
    torch.set_num_threads(1)
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        return _step(world, 2)


@pytest.mark.parametrize("layout", [Layout(dp_shard=2), Layout(tp=2), Layout(cp=2), Layout(pp=2)], ids=str)
def test_ranks_together_tell_what_one_process_tells(layout: Layout) -> None:
    expected = _step(_alone(), 2)
    results = run_ranks(_on_rank, 2, layout)
    documents = [one for result in results for one in result.documents]
    assert {(one.sample, one.first_token, one.tokens): one.loss for one in documents} == pytest.approx(
        {(one.sample, one.first_token, one.tokens): one.loss for one in expected.documents}, rel=1e-5
    )
    assert len(documents) == len(expected.documents)  # none is told twice
    for result in results:
        assert result.loss_by_position == pytest.approx(expected.loss_by_position, rel=1e-5)
