"""Every pipeline schedule computes the losses and gradients of one process."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.parallel import World, join_world
from stoker.pipeline_schedule import SCHEDULE_NAMES, Kind, StageSeconds, build_schedule, simulate
from tests.distributed import run_ranks
from tests.parallel.pipeline.pipelines import (
    Batch,
    Result,
    Runner,
    assert_equal,
    batches_of,
    bf16_autocast,
    config_of,
    gradients_of,
    model_of,
    one_process,
    pipeline_of,
)

pytestmark = pytest.mark.slow

MICRO_BATCHES = (1, 2, 3, 5, 8)
CPU = torch.device("cpu")


def layouts(pp: int, **more: Any) -> list[Layout]:
    """One layout for each schedule, and several stages on a rank."""
    found = [Layout(pp=pp, pipeline_schedule=name, **more) for name in SCHEDULE_NAMES]
    if pp == 2:
        found.append(Layout(pp=pp, pipeline_schedule="interleaved_1f1b", stages_per_rank=3, **more))
    return found


def _check_steps(
    model: Decoder,
    layout: Layout,
    world: World,
    expected: dict[tuple[int, int], Result],
    *,
    packed: bool = False,
    tolerance: float = 1e-12,
    dtype: torch.dtype = torch.float64,
    autocast: Any = None,
    **options: Any,
) -> None:
    """One step for each (micro-batches, step), all with the same pipeline, against `expected`."""
    pipeline, stages = pipeline_of(model, layout, world, dtype, **options)
    last = layout.stages - 1 in stages
    for micro_batches, step in expected:
        run = Runner(step) if autocast is None else Runner(step, autocast)
        losses = pipeline.forward_backward(batches_of(micro_batches, step, packed), run)
        result = Result([loss and loss.token_losses for loss in losses], gradients_of(list(stages.values())))
        if model.config.tie_embeddings or model.config.mtp_depth:  # held by the first and the last stage
            wanted = expected[micro_batches, step].gradients["embedding.weight"]
            total = world.sum(result.gradients.get("embedding.weight", torch.zeros_like(wanted)))
            result.gradients["embedding.weight"] = total
        try:
            assert_equal(result, expected[micro_batches, step], tolerance, last)
        except AssertionError as error:
            error.add_note(f"{layout}, {micro_batches} micro-batches, step {step}")
            raise


def _expected(
    model: Decoder, cases: list[tuple[int, int]], packed: bool = False, autocast: Any = None
) -> dict[tuple[int, int], Result]:
    found = {}
    for micro_batches, step in cases:
        run = Runner(step) if autocast is None else Runner(step, autocast)
        found[micro_batches, step] = one_process(model, batches_of(micro_batches, step, packed), run)
    return found


def _every_schedule(rank: int, ranks: int, store: Any) -> None:
    model = model_of(config_of())
    expected = _expected(model, [(m, step) for m in MICRO_BATCHES for step in (0, 1)])
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layout in layouts(ranks):
            _check_steps(model, layout, world, expected)


@pytest.mark.parametrize("pp", [pytest.param(2, marks=pytest.mark.thorough), 4])
def test_losses_and_gradients_of_every_schedule_equal_one_process(pp: int) -> None:
    run_ranks(_every_schedule, pp, timeout=150)


def _many_layer_counts(rank: int, ranks: int, store: Any) -> None:
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layers in range(3, 10):
            model = model_of(config_of(layers=layers))
            expected = _expected(model, [(3, 0)])
            for layout in layouts(ranks):
                if layout.stages <= layers:
                    _check_steps(model, layout, world, expected)


@pytest.mark.parametrize("pp", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_any_number_of_layers_is_divided(pp: int) -> None:
    run_ranks(_many_layer_counts, pp, timeout=150)


SHAPES: dict[str, dict[str, Any]] = {
    "packed, gpt": {"norm": "layer", "activation": "gelu", "position": "learned", "attention_bias": True,
                    "attention_output_bias": True, "ffn_bias": True, "qk_norm": "none"},
    "packed, dropout, layer_drop": {"dropout": 0.3, "layer_drop": 0.5},
    "experts": {"moe": {"experts": 4, "experts_per_token": 2, "auxiliary_loss": 0.01}},
    "packed, two tokens ahead": {"mtp_depth": 1, "tie_embeddings": True},
}  # fmt: skip


def _many_shapes(rank: int, ranks: int, store: Any) -> None:
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for name, shape in SHAPES.items():
            model, packed = model_of(config_of(layers=5, **shape)), "packed" in name
            expected = _expected(model, [(3, 0), (2, 1)], packed)
            for layout in layouts(ranks):
                if layout.stages <= 5:
                    _check_steps(model, layout, world, expected, packed=packed)
                    _check_steps(model, layout, world, expected, packed=packed, offload=True)


def test_every_feature_of_the_model_and_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.parallel.offload.SMALLEST_BYTES", 0)
    run_ranks(_many_shapes, 2, timeout=150)


def _sharded(rank: int, ranks: int, store: Any) -> None:
    from stoker.parallel.shard import shard

    model = model_of(config_of(layers=5))
    cases = [(1, 0), (3, 1)]
    expected = {(m, step): one_process(model, batches_of(2 * m, step), Runner(step)) for m, step in cases}
    with join_world(Layout(pp=2, dp_shard=2), rank, CPU, store, 60) as world:
        for zero_stage in (1, 2, 3):
            for layout in layouts(2, dp_shard=2, zero_stage=zero_stage):
                if layout.stages <= 5:
                    _check_sharded(model, layout, world, expected, shard)
                if layout.stages == 4:
                    _check_sharded(model, layout, world, expected, shard, reduce=torch.float32, offload=True)


def _check_sharded(
    model: Decoder,
    layout: Layout,
    world: World,
    expected: dict[Any, Result],
    shard: Any,
    reduce: torch.dtype | None = None,
    **options: Any,
) -> None:
    world = replace(world, layout=layout)
    pipeline, stages = pipeline_of(model, layout, world, **options)
    shardings = {stage: shard(part, list(part.blocks.values()), world, reduce) for stage, part in stages.items()}

    @contextmanager
    def before_backward(stage: int, last: bool, later: bool) -> Iterator[None]:
        shardings[stage].begin_pass(last, later)
        yield

    for micro_batches, step in expected:
        own = slice(world.data_parallel_rank, None, 2)
        batches = batches_of(2 * micro_batches, step)
        pipeline.forward_backward(
            batches[own], Runner(step), before_backward, lambda stage: shardings[stage].reduce()
        )
        result = Result([], gradients_of(list(stages.values())))
        tolerance = 1e-12 if reduce is None else 1e-5
        assert_equal(result, expected[micro_batches, step]._replace(losses=[]), tolerance, False)


def test_stages_that_are_sharded_sum_after_their_last_weight_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.parallel.offload.SMALLEST_BYTES", 0)
    run_ranks(_sharded, 4, timeout=150)


def _autocast(rank: int, ranks: int, store: Any) -> None:
    model = model_of(config_of(layers=4), torch.float32)
    cases = [(3, 0), (1, 1)]
    expected = _expected(model, cases, autocast=bf16_autocast)
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layout in layouts(ranks):
            if layout.stages <= 4:
                _check_steps(
                    model, layout, world, expected, tolerance=1e-6, dtype=torch.float32, autocast=bf16_autocast
                )


def test_autocast_casts_as_on_one_process() -> None:
    run_ranks(_autocast, 2, timeout=150)


class _Token:
    """Is alive for as long as the graph that holds it."""

    alive = 0

    def __init__(self) -> None:
        _Token.alive += 1

    def __del__(self) -> None:
        _Token.alive -= 1


class _HoldToken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.token = _Token()
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _held(rank: int, ranks: int, store: Any) -> None:
    model = model_of(config_of(layers=8))
    seconds = StageSeconds(1, 2, 1, 1)
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layout in layouts(ranks):
            pipeline, _ = pipeline_of(model, layout, world)
            peaks: list[int] = []

            def run(part: Decoder, batch: Batch, hidden: Any, peaks: list[int] = peaks) -> Any:
                result = Runner()(part, batch, hidden)
                loss = result if hidden is None or isinstance(result, torch.Tensor) else result.loss_sum
                held = _HoldToken.apply(loss)
                peaks.append(_Token.alive)
                return held if loss is result else result._replace(loss_sum=held)

            for micro_batches in (1, 4, 8):
                schedule = build_schedule(layout.pipeline_schedule, ranks, micro_batches, layout.stages // ranks)
                most = simulate(schedule, [seconds] * layout.stages).peak_activations[rank]
                pipeline.forward_backward(batches_of(micro_batches), run)
                assert max(peaks) <= most == pipeline.most_held, (layout, micro_batches, max(peaks), most)
                assert _Token.alive == 0
                assert [one[:3] for one in pipeline.trace] == list(schedule.actions[rank])
                times = [moment for one in pipeline.trace for moment in one[3:]]
                assert times == sorted(times)
                peaks.clear()


@pytest.mark.parametrize("pp", [2, 4])
def test_activations_are_dropped_after_backward_and_actions_are_traced(pp: int) -> None:
    run_ranks(_held, pp, timeout=150)


def _evaluation(rank: int, ranks: int, store: Any) -> None:
    model = model_of(config_of(layers=8))
    expected = [Runner()(model, batch, None) for batch in batches_of(4)]
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layout in layouts(ranks):
            pipeline, stages = pipeline_of(model, layout, world)
            for batch, wanted in zip(batches_of(4), expected, strict=True):
                losses = pipeline.forward(batch, Runner())
                if layout.stages - 1 in stages:
                    assert not losses.loss_sum.requires_grad
                    torch.testing.assert_close(losses.token_losses, wanted.token_losses, rtol=1e-12, atol=1e-12)
                else:
                    assert losses is None
            assert all(p.grad is None for part in stages.values() for p in part.parameters())


def test_a_forward_pass_alone_gives_the_losses_where_the_last_stage_is() -> None:
    run_ranks(_evaluation, 3, timeout=150)


def _frozen(rank: int, ranks: int, store: Any) -> None:
    model = model_of(config_of(layers=8))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(("embedding", "blocks.0", "blocks.1", "blocks.2", "blocks.3")))
    losses = [Runner()(model, batch, None) for batch in batches_of(3)]
    for loss in losses:
        loss.loss_sum.backward()
    with join_world(Layout(pp=ranks), rank, CPU, store, 60) as world:
        for layout in layouts(ranks):
            pipeline, stages = pipeline_of(model, layout, world)
            pipeline.forward_backward(batches_of(3), Runner())
            for part in stages.values():
                for name, parameter in part.named_parameters():
                    if parameter.requires_grad:
                        torch.testing.assert_close(parameter.grad, model.get_parameter(name).grad)
                    else:
                        assert parameter.grad is None


def test_a_stage_without_anything_to_train_passes_gradients_by() -> None:
    run_ranks(_frozen, 2, timeout=150)


def _failing(rank: int, ranks: int, store: Any) -> tuple[str, float]:
    model = model_of(config_of(layers=4))
    failed = ""
    began = time.monotonic()
    with join_world(Layout(pp=ranks), rank, CPU, store, 2) as world:
        pipeline, _ = pipeline_of(model, Layout(pp=ranks), world)

        def run(part: Decoder, batch: Batch, hidden: Any) -> Any:
            if rank == 1:
                raise ValueError("no such thing")
            return Runner()(part, batch, hidden)

        assert world.timeout == datetime.timedelta(seconds=2)
        try:
            pipeline.forward_backward(batches_of(4), run)
        except (ValueError, RuntimeError) as error:
            failed = type(error).__name__
        if rank == 1:
            time.sleep(4)  # a rank that is busy writing its last words
    return failed, time.monotonic() - began


def test_an_error_on_one_rank_does_not_hang_the_others() -> None:
    results = run_ranks(_failing, 3, timeout=30)
    assert [name for name, _ in results] == ["RuntimeError", "ValueError", "RuntimeError"]
    assert all(seconds < 12 for _, seconds in results)


def test_the_program_knows_what_is_needed_when() -> None:
    from stoker.parallel.pipeline.program import program

    for layout in [*layouts(2), *layouts(4)]:
        for at in range(layout.pp):
            found = program(layout, at, 8)
            actions = found.actions
            assert len(found.completes) == layout.stages // layout.pp
            for place in found.completes:
                assert all(other.stage != actions[place].stage for other in actions[place + 1 :])
            for place, (stage, micro_batch) in found.fetches.items():
                forward = actions.index((Kind.FORWARD, stage, micro_batch))
                assert actions[place + 1][1:] == (stage, micro_batch)
                assert place - forward >= 2
