"""Figures of the record against computations of their own, and what ranks tell together against one process."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.layout import Layout
from stoker.parallel import join_world, single_process_world
from stoker.recipe import Recipe
from stoker.training import update_norm
from stoker.training.rows import routing_rows
from tests.data.corpora import corpus_of_lines
from tests.distributed import run_ranks
from tests.training.test_step import BATCH, LENGTH, SOURCES, _alone, _build, _global_batch
from tests.training.test_step import _recipe as _recipe_of_step
from tests.training.test_telemetry import CPU, EVERYTHING, _rows, _train
from tests.training.test_telemetry import _recipe as _recipe_of_run

EXPERTS = {"experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 8, "auxiliary_loss": 0.1, "z_loss": 0.01}
OF_ALL = (
    "loss",
    "loss_by_source",
    "loss_by_position",
    "tokens_by_source",
    "gradient_norm",
    "gradient_norm_by_module",
)
OF_ALL += ("learning_rate", "tokens", "tokens_seen", "first_sample", "last_sample", "clipped", "skipped")
OF_ALL += ("update_norm", "weight_norm")
"""Fields of a step's row that are of the whole batch, or of the whole model."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two sources."""
    texts = {name: [f"Line {i} of {name}, {'again ' * (i % 5)}end." for i in range(40)] for name in ("one", "two")}
    return corpus_of_lines(tmp_path_factory.mktemp("corpus"), texts)


def _recipe(layout: Layout) -> Recipe:
    content = _recipe_of_run(Layout(), EVERYTHING, gradient_clip=0.5).model_dump()
    content["data"]["sources"] = [{"name": name, "paths": ["x"], "weight": 1} for name in ("one", "two")]
    content["model"] |= {"layers": 4, "moe": {**EXPERTS, "first_dense_layers": 2}}
    content["training"] |= {"steps": 2, "sequence_length": 16}
    content["layout"] = layout.model_dump()
    return Recipe.model_validate(content)


def _train_rank(rank: int, ranks: int, store: Any, recipe: Recipe, corpus: Path, run: Path) -> None:
    torch.set_num_threads(1)
    with join_world(recipe.layout, rank, CPU, store, 60) as world:
        _train(world, recipe, corpus, run)


@pytest.fixture
def whole_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates are measured of all elements: which of them a rank draws depends on the layout."""
    monkeypatch.setattr(update_norm, "_SAMPLE", 10**6)


@pytest.mark.slow
@pytest.mark.usefixtures("whole_updates")
def test_what_ranks_record_together_is_what_one_process_records(corpus: Corpus, tmp_path: Path) -> None:
    """Sums over tensor parallel ranks, pipeline stages and shards hold every part once."""
    _train(single_process_world(CPU), _recipe(Layout()), corpus.folder, tmp_path / "alone")
    known = ("sequence", "attempt", "step", "time", "module")
    expected = {kind: _rows(tmp_path / "alone", kind) for kind in ("step", "module", "routing")}
    assert len(expected["module"]) == 2 * 15
    assert len(expected["routing"]) == 2 * 2
    for layout in (Layout(tp=2), Layout(pp=2), Layout(dp_shard=2, ep=2)):
        run = tmp_path / str(layout)
        run_ranks(_train_rank, 2, _recipe(layout), corpus.folder, run)
        for rank in range(2):
            for found, row in zip(_rows(run, "step", rank), expected["step"], strict=True):
                for field in OF_ALL:
                    assert found[field] == pytest.approx(row[field], rel=2e-4), (layout, field)
        for kind in ("module", "routing"):
            for found, row in zip(_rows(run, kind), expected[kind], strict=True):
                assert (found["step"], found["module"]) == (row["step"], row["module"])
                figures = {name: value for name, value in row.items() if name not in known}
                if layout.dp_shard > 1:  # activations are those of each rank's own first micro-batch
                    figures = {n: v for n, v in figures.items() if kind == "routing" or n in OF_PARAMETERS}
                for field, value in figures.items():
                    where = layout, row["step"], row["module"], field
                    assert found[field] == pytest.approx(value, rel=2e-4, abs=1e-7), where


OF_PARAMETERS = ("parameters", "weight_rms", "gradient_norm", "gradient_rms", "update_rms", "update_to_weight")


def test_a_batch_digest_is_that_of_the_tokens_that_the_step_was_given(corpus: Corpus, tmp_path: Path) -> None:
    recipe = _recipe(Layout())
    _train(single_process_world(CPU), recipe, corpus.folder, tmp_path)
    feed = Feed(corpus, recipe)
    seen = 0
    for row in _rows(tmp_path, "step"):
        batch = feed.global_batch(row["step"])
        tokens = batch.tokens.numpy().astype("<u4")
        assert row["batch_digest"] == hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest()
        assert (row["first_sample"], row["last_sample"]) == (8 * row["step"] - 8, 8 * row["step"])
        seen += row["tokens"]
        assert (row["tokens"], row["tokens_seen"]) == (int((batch.targets >= 0).sum()), seen)
        assert (row["accumulation"], row["ranks"], row["attempt"]) == (4, 1, 1)


@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
def test_routing_is_that_of_the_routers_logits_by_hand(gate: str) -> None:
    """Entropy, loads, dropped choices, auxiliary and z loss, from the logits, one token at a time."""
    moe = {**EXPERTS, "gate": gate, "capacity_factor": 0.75}
    train = _build(_recipe_of_step(model={"moe": moe}), _alone())
    router: Any = train.model.part.blocks["1"].get_submodule("feed_forward.router")
    with torch.no_grad():
        router.weight.mul_(30.0)  # gates that are not even
    weight, inputs = router.weight.detach().double().clone(), []
    router.register_forward_pre_hook(lambda module, given: inputs.append(given[0].detach().double()))
    batch = _global_batch(1)
    result = train(1, [batch.rows(0, 4), batch.rows(4, 8)], with_modules=False, stop=False)
    logits = torch.cat([x @ weight.T for x in inputs]).tolist()
    assert len(logits) == BATCH
    assert len(logits[0]) == LENGTH
    counts, entropy, auxiliary, z, dropped = [0] * 4, 0.0, 0.0, 0.0, 0
    for sequence in logits:
        filled, shares_of = [0] * 4, []
        for token in sequence:
            z += math.log(sum(map(math.exp, token))) ** 2
            gates = [math.exp(one) if gate == "softmax" else 1 / (1 + math.exp(-one)) for one in token]
            shares_of.append([one / sum(gates) for one in gates])
            entropy -= sum(share * math.log(share) for share in shares_of[-1])
            for expert in sorted(range(4), key=lambda one: -token[one])[:2]:
                filled[expert] += 1
                dropped += filled[expert] > math.ceil(0.75 * 2 * LENGTH / 4)
        counts = [one + other for one, other in zip(counts, filled, strict=True)]
        means = [sum(column) / LENGTH for column in zip(*shares_of, strict=True)]
        chosen = [one / LENGTH for one in filled]
        auxiliary += LENGTH * 4 / 2 * sum(f * p for f, p in zip(chosen, means, strict=True))
    tokens = BATCH * LENGTH
    [_, row] = routing_rows(3, 1, result, by_expert=True)
    assert (row["attempt"], row["step"], row["module"]) == (3, 1, "blocks.1")
    assert row["tokens_by_expert"] == {str(expert): count for expert, count in enumerate(counts)}
    assert row["largest_load"] == pytest.approx(max(counts) / (2 * tokens / 4))
    assert row["smallest_load"] == pytest.approx(min(counts) / (2 * tokens / 4))
    assert dropped > 0
    assert row["dropped"] == pytest.approx(dropped / (2 * tokens))
    assert row["entropy"] == pytest.approx(entropy / tokens, rel=1e-5)
    assert 0.05 < row["entropy"] < 0.98 * math.log(4)
    assert row["auxiliary_loss"] == pytest.approx(auxiliary / tokens, rel=1e-5)
    assert row["z_loss"] == pytest.approx(z / tokens, rel=1e-5)


def test_losses_and_tokens_by_source_are_those_of_the_sources_own_sequences() -> None:
    train, batch = _build(_recipe_of_step(), _alone()), _global_batch(1)
    result = train(1, [batch.rows(i, i + 2) for i in range(0, 8, 2)], with_modules=False, stop=False)
    fresh = _build(_recipe_of_step(), _alone()).model.part
    logits = fresh(batch.tokens, positions=batch.positions, documents=batch.documents)
    losses = torch.nn.functional.cross_entropy(
        logits.mT.detach(), batch.targets, ignore_index=-100, reduction="none"
    )
    for number, name in enumerate(SOURCES):
        own = batch.sources == number
        count = int((batch.targets[own] >= 0).sum())
        assert result.tokens_by_source[name] == count
        assert result.loss_by_source[name] == pytest.approx(float(losses[own].sum()) / count, rel=1e-5)


@pytest.mark.parametrize(("part", "clipped"), [(0.3, True), (3.0, False)])
def test_a_clipped_step_updates_by_a_gradient_of_the_norm_that_the_recipe_allows(
    part: float, clipped: bool
) -> None:
    norm = _build(_recipe_of_step(), _alone())(1, [_global_batch(1)], with_modules=False, stop=False).gradient_norm
    train, used = _build(_recipe_of_step(gradient_clip=part * norm), _alone()), []
    parameters = [one.parameter for one in train.model.held if one.is_parameter]

    def note(*_: Any) -> None:
        used.append(math.sqrt(sum(float(one.grad.double().square().sum()) for one in parameters)))

    train.optimizer.register_step_pre_hook(note)
    result = train(1, [_global_batch(1)], with_modules=False, stop=False)
    assert result.clipped is clipped
    assert result.gradient_norm == pytest.approx(norm, rel=1e-6)  # before clipping
    assert used == [pytest.approx(norm * min(part, 1.0), rel=1e-5)]
