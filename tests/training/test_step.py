"""One step: the loss has one denominator, every split of a batch trains the same model, and nothing
that is not finite reaches the weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from stoker.data.feeding import MicroBatch
from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import Settings, World, apply, join_world, single_process_world
from stoker.recipe import Recipe
from stoker.training.clock import PhaseClock
from stoker.training.optimizer import build_optimizer
from stoker.training.precision import DynamicLossScale
from stoker.training.step import StepResult, TrainingStep
from tests.distributed import run_ranks

VOCABULARY = 37
LENGTH = 16
BATCH = 8
STEPS = 20
SOURCES = ("short", "long")


def _recipe(**training: Any) -> Recipe:
    layout = training.pop("layout", Layout())
    model = training.pop("model", {})
    return Recipe.model_validate(
        {
            "name": "step",
            "seed": 3,
            "data": {"sources": [{"name": name, "paths": ["x"]} for name in SOURCES]},
            "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 24, **model},
            "training": {
                "steps": STEPS,
                "sequence_length": LENGTH,
                "global_batch_size": BATCH,
                "optimizer": {"name": "adamw", "learning_rate": 1e-2},
                "schedule": {"name": "cosine", "warmup_steps": 3},
                "gradient_clip": 0.5,
                "device": "cpu",
                **training,
            },
            "layout": layout.model_dump(),
        }
    )


def _global_batch(step: int, counts: list[int] | None = None) -> MicroBatch:
    """Eight sequences; sequence i holds a document of an uneven length, and padding behind it."""
    generator = torch.Generator().manual_seed(step)
    counts = counts or [1, 16, 2, 3, 13, 5, 1, 9]
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    targets = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    places = torch.arange(LENGTH).expand(BATCH, LENGTH)
    valid = places < torch.tensor(counts)[:, None]
    return MicroBatch(
        tokens=tokens,
        targets=torch.where(valid, targets, -100),
        positions=places.contiguous(),
        documents=(~valid).to(torch.int32),
        sources=torch.arange(BATCH) % 2,
        samples=(step - 1) * BATCH + torch.arange(BATCH),
    )


def _share(batch: MicroBatch, world: World, accumulation: int) -> list[MicroBatch]:
    ranks = world.layout.data_parallel_size
    size = BATCH // ranks // accumulation
    first = world.data_parallel_rank * BATCH // ranks
    return [batch.rows(first + i * size, first + (i + 1) * size) for i in range(accumulation)]


def _build(recipe: Recipe, world: World, dtype: torch.dtype = torch.float32) -> TrainingStep:
    with torch.device("meta"):
        plain = Decoder(recipe.model, VOCABULARY, LENGTH).to(dtype)
    model = apply(plain, world, Settings(seed=recipe.seed))
    loss_scale = DynamicLossScale(recipe.training.loss_scale) if recipe.training.precision == "fp16" else None
    optimizer = build_optimizer(model.held, recipe.training)
    return TrainingStep(recipe, SOURCES, model, optimizer, loss_scale, PhaseClock(world.device))


def _train(recipe: Recipe, world: World, accumulation: int) -> list[StepResult]:
    train = _build(recipe, world)
    return [
        train(step, _share(_global_batch(step), world, accumulation), with_modules=False, stop=False)
        for step in range(1, STEPS + 1)
    ]


def _alone() -> World:
    return single_process_world(torch.device("cpu"))


def _train_rank(rank: int, ranks: int, store: Any, recipe: Recipe, accumulation: int) -> list[StepResult]:
    torch.set_num_threads(1)
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        return _train(recipe, world, accumulation)


@pytest.mark.parametrize(
    ("layout", "accumulation"),
    [
        (Layout(), 2),
        (Layout(), 4),
        (Layout(dp_replicate=2), 1),
        (Layout(dp_replicate=2), 4),
        (Layout(dp_shard=2), 2),
        (Layout(dp_shard=4), 1),
        (Layout(dp_replicate=2, dp_shard=2), 2),
    ],
    ids=str,
)
def test_loss_over_20_steps_agrees_for_every_accumulation_and_world_size(layout: Layout, accumulation: int) -> None:
    expected = _train(_recipe(), _alone(), 1)
    if layout.world_size == 1:
        results = [_train(_recipe(), _alone(), accumulation)]
    else:
        results = run_ranks(_train_rank, layout.world_size, _recipe(layout=layout), accumulation)
    for result in results:
        for step, (mine, reference) in enumerate(zip(result, expected, strict=True), start=1):
            assert mine.loss == pytest.approx(reference.loss, rel=1e-5), step
            assert mine.gradient_norm == pytest.approx(reference.gradient_norm, rel=1e-4), step
            assert mine.tokens == reference.tokens
            assert mine.tokens_by_source == reference.tokens_by_source
            assert mine.loss_by_source == pytest.approx(reference.loss_by_source, rel=1e-5)


def _tied_rank(rank: int, ranks: int, store: Any, recipe: Recipe) -> tuple[list[StepResult], Any]:
    torch.set_num_threads(1)
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        train = _build(recipe, world)
        results = [
            train(step, _share(_global_batch(step), world, 2), with_modules=False, stop=False)
            for step in range(1, STEPS + 1)
        ]
        embedding = train.model.part.embedding.weight
        return results, embedding.full_tensor() if hasattr(embedding, "full_tensor") else embedding.detach()


@pytest.mark.parametrize("layout", [Layout(dp_replicate=2), Layout(dp_shard=2)], ids=str)
def test_tied_embeddings_add_up_both_of_their_gradients_in_every_layout(layout: Layout) -> None:
    model = {"tie_embeddings": True, "qk_norm": "head"}
    alone = _build(_recipe(model=model), _alone())
    expected = [alone(step, [_global_batch(step)], with_modules=False, stop=False) for step in range(1, STEPS + 1)]
    for results, embedding in run_ranks(_tied_rank, 2, _recipe(model=model, layout=layout)):
        assert [r.loss for r in results] == pytest.approx([r.loss for r in expected], rel=1e-5)
        assert [r.gradient_norm for r in results] == pytest.approx([r.gradient_norm for r in expected], rel=1e-4)
        torch.testing.assert_close(embedding, alone.model.part.embedding.weight.detach(), rtol=1e-3, atol=1e-5)


def test_gradient_is_that_of_the_global_token_mean_for_every_split_and_order() -> None:
    """1 to 16 supervised tokens a sequence; in fp64 against one forward pass over the whole batch."""

    def gradients(parts: list[MicroBatch]) -> tuple[dict[str, torch.Tensor], float]:
        train = _build(_recipe(), _alone(), torch.float64)
        tokens = sum(int((part.targets >= 0).sum()) for part in parts)
        sums = train._accumulate_gradients(1, parts, tokens)
        found = {name: p.grad.clone() for name, p in train.model.part.named_parameters()}
        return found, float(sums[:2].sum() / sums[2:4].sum())

    whole = _global_batch(1)
    model = _build(_recipe(), _alone(), torch.float64).model.part
    logits = model(whole.tokens, positions=whole.positions, documents=whole.documents)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), whole.targets.flatten(), ignore_index=-100)
    loss.backward()
    expected = float(loss.detach())
    oracle = {name: p.grad for name, p in model.named_parameters()}
    for parts in (
        [whole],
        [whole.rows(0, 4), whole.rows(4, 8)],
        [whole.rows(4, 8), whole.rows(0, 4)],
        [whole.rows(i, i + 1) for i in range(8)],
    ):
        found, mean = gradients(parts)
        assert mean == pytest.approx(expected, rel=1e-6)
        for name, gradient in oracle.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)


def _uneven_rank(rank: int, ranks: int, store: Any, counts: list[int]) -> StepResult:
    recipe = _recipe(layout=Layout(dp_replicate=2))
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        train = _build(recipe, world)
        return train(1, _share(_global_batch(1, counts), world, 1), with_modules=False, stop=False)


@pytest.mark.parametrize("counts", [[1, 1, 1, 0, 5, 3, 4, 1], [0, 0, 0, 0, 5, 3, 4, 1]], ids=["sparse", "none"])
def test_a_rank_with_few_or_no_tokens_weighs_what_it_holds(counts: list[int]) -> None:
    expected = _build(_recipe(), _alone())(1, [_global_batch(1, counts)], with_modules=False, stop=False)
    for result in run_ranks(_uneven_rank, 2, counts):
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
        assert result.tokens == sum(counts)


def test_a_batch_without_any_target_moves_nothing_by_gradient_and_is_finite() -> None:
    train = _build(_recipe(), _alone())
    result = train(1, [_global_batch(1, [0] * 8)], with_modules=False, stop=False)
    assert result.finite
    assert result.tokens == 0
    assert result.gradient_norm == 0.0


def test_reported_loss_is_the_token_weighted_mean_over_all_micro_batches() -> None:
    train = _build(_recipe(), _alone())
    batch = _global_batch(1)
    result = train(1, [batch.rows(i, i + 2) for i in range(0, 8, 2)], with_modules=True, stop=False)
    fresh = _build(_recipe(), _alone()).model.part
    losses = fresh(batch.tokens, batch.targets, positions=batch.positions, documents=batch.documents)
    counted = batch.targets >= 0
    assert result.loss == pytest.approx(float(losses.token_losses.sum() / counted.sum()), rel=1e-6)
    assert result.gradient_norm_by_module is not None
    assert set(result.gradient_norm_by_module) == {"embedding", "blocks.0", "blocks.1", "norm", "head"}
    squares = sum(norm**2 for norm in result.gradient_norm_by_module.values())
    assert math.sqrt(squares) == pytest.approx(result.gradient_norm, rel=1e-6)


def _poisoned_rank(rank: int, ranks: int, store: Any, layout: Layout) -> tuple[StepResult, bool]:
    recipe = _recipe(layout=layout)
    with join_world(layout, rank, torch.device("cpu"), store, 60) as world:
        train = _build(recipe, world)
        before = {name: p.detach().clone() for name, p in train.model.part.named_parameters()}
        if rank == 1:
            train.model.part.embedding.register_forward_hook(lambda module, inputs, output: output * float("nan"))
        result = train(1, _share(_global_batch(1), world, 1), with_modules=False, stop=False)
        same = all(torch.equal(_local(p), _local(before[n])) for n, p in train.model.part.named_parameters())
        return result, same and not train.optimizer.state


def _local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@pytest.mark.parametrize("layout", [Layout(dp_replicate=2), Layout(dp_shard=2)], ids=str)
def test_a_nan_on_one_rank_stops_all_ranks_before_the_update(layout: Layout) -> None:
    for result, untouched in run_ranks(_poisoned_rank, 2, layout):
        assert not result.finite
        assert math.isnan(result.loss), "the raw value is reported, not a substitute"
        assert untouched


def test_a_request_to_stop_on_one_rank_reaches_all() -> None:
    assert all(result.stop_requested for result in run_ranks(_stopping_rank, 2))


def _stopping_rank(rank: int, ranks: int, store: Any) -> StepResult:
    recipe = _recipe(layout=Layout(dp_replicate=2))
    with join_world(recipe.layout, rank, torch.device("cpu"), store, 60) as world:
        train = _build(recipe, world)
        return train(1, _share(_global_batch(1), world, 1), with_modules=False, stop=rank == 1)


def test_an_fp16_overflow_skips_the_update_and_lowers_the_scale() -> None:
    train = _build(_recipe(precision="fp16", loss_scale={"initial": 2.0**40}), _alone())
    before = [p.detach().clone() for p in train.model.part.parameters()]
    result = train(1, [_global_batch(1)], with_modules=False, stop=False)
    assert result.skipped
    assert result.finite
    assert all(torch.equal(p, b) for p, b in zip(train.model.part.parameters(), before, strict=True))
    assert train.loss_scale is not None
    assert train.loss_scale.scale == 2.0**39


def test_learning_rate_of_the_optimizer_in_use_follows_the_schedule() -> None:
    train = _build(_recipe(), _alone())
    for step in range(1, 6):
        result = train(step, [_global_batch(step)], with_modules=False, stop=False)
        assert {group["lr"] for group in train.optimizer.param_groups} == {result.learning_rate}
    assert result.learning_rate == pytest.approx(1e-2 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 2 / 17))))


def test_dropout_draws_follow_from_seed_and_step_not_from_history() -> None:
    recipe = _recipe(model={"dropout": 0.3, "layer_drop": 0.2})
    straight = [r.loss for r in _train(recipe, _alone(), 2)]
    torch.manual_seed(12345)
    torch.rand(1000)
    assert [r.loss for r in _train(recipe, _alone(), 2)] == straight
