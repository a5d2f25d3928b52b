"""Faults of training dynamics do what they say, to one tiny run each, and the record tells what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.data.feeding import Feed
from stoker.model.attention import Attention
from stoker.recipe import Recipe
from stoker.record import Record, samples_seen
from stoker.recovery.dynamics.batches import DisturbedFeed, spread
from stoker.recovery.dynamics.machine import Leak
from stoker.recovery.faults import parse_fault
from tests.recovery.dynamic_runs import STEPS, recipe_for, small_corpus, trained, trainer_with

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def clean(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    return trained(recipe_for(corpus), corpus, tmp_path_factory.mktemp("clean")).steps()


def disturbed(corpus: Corpus, recipe: Recipe, *faults: str) -> Feed:
    feed = Feed(corpus, recipe)
    DisturbedFeed.disturb(feed, [parse_fault(one) for one in faults], lambda: 0.01)
    return feed


def rows_of(corpus: Corpus, run: Path, fault: str) -> pl.DataFrame:
    return trained(recipe_for(corpus), corpus, run, fault).steps()


def column(rows: pl.DataFrame, name: str) -> list[Any]:
    return rows[name].to_list()


def test_a_run_whose_fault_never_comes_is_the_clean_run_to_the_bit(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    """All that is put into a rank beforehand changes nothing before its step."""
    kinds = ("repeat_batch", "oversample", "mixture_shift", "lost_rng", "length_change", "lr_jump", "slow_rank")
    recipe = recipe_for(corpus)
    faults = [f"{kind}@{STEPS}" for kind in (*kinds, "accumulation_bug", "throttle", "loader_stall")]
    trainer, _ = trainer_with(recipe, corpus, tmp_path, *faults)
    try:
        trainer.fit()
    finally:
        trainer.close()
    found = Record(tmp_path / "record").steps()
    for name in ("loss", "gradient_norm", "batch_digest", "learning_rate"):
        assert column(found, name)[:-1] == column(clean, name)[:-1]


def test_a_repeated_batch_has_the_digest_of_the_one_before(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    found = column(rows_of(corpus, tmp_path, "repeat_batch@6:steps=3"), "batch_digest")
    assert found[4] == found[5] == found[6] == found[7]
    assert found[8:] == column(clean, "batch_digest")[8:]


def test_the_record_tells_the_samples_that_a_step_was_given(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    assert clean["given_samples"].null_count() == STEPS
    rows = rows_of(corpus, tmp_path, "repeat_batch@6:steps=2,strength=0.5")
    given = [None if text is None else json.loads(text) for text in column(rows, "given_samples")]
    feed = disturbed(corpus, recipe_for(corpus), "repeat_batch@6:steps=2,strength=0.5")
    for step in (6, 7):
        numbers = [one for first, after in given[step - 1] for one in range(first, after)]
        assert numbers == feed.samples(step).tolist()
    assert given[:5] + given[7:] == [None] * (STEPS - 2)
    seen = samples_seen(Record(tmp_path / "record"))
    assert sum(last - first + 1 for first, last in seen.lost) == 8
    assert not seen.exact
    assert {one for first, last in seen.repeated for one in range(first, last + 1)} <= set(range(32, 40))


def test_samples_begin_anew_where_the_random_state_is_lost(corpus: Corpus) -> None:
    recipe = recipe_for(corpus)
    feed, usual = disturbed(corpus, recipe, "lost_rng@7"), Feed(corpus, recipe)
    assert [feed.digest(step) for step in range(7, 13)] == [usual.digest(step) for step in range(1, 7)]
    half = disturbed(corpus, recipe, "lost_rng@7:strength=0.5")
    assert [int((half.samples(s) < usual.samples(1)[-1] + 1).sum()) for s in (7, 8)] == [4, 0]
    assert np.isin(half.samples(8), usual.samples(2)).sum() == 4


def test_a_source_takes_more_of_the_mixture_and_no_sample_comes_twice(corpus: Corpus) -> None:
    recipe = recipe_for(corpus)
    feed = disturbed(corpus, recipe, "oversample@5:source=two,steps=4")
    assert all((feed.global_batch(step).sources == 1).all() for step in range(5, 9))
    assert (feed.global_batch(9).sources == 0).sum() == 6
    every = np.concatenate([feed.samples(step) for step in range(1, STEPS + 1)])
    assert len(np.unique(every)) == len(every)
    half = disturbed(corpus, recipe, "oversample@5:source=two,steps=4,strength=0.5")
    counts = sum(int((half.global_batch(step).sources == 1).sum()) for step in range(5, 9))
    assert counts == 20  # between 8 of 32 and all


def test_a_shifted_mixture_has_its_weights_the_other_way_round(corpus: Corpus, tmp_path: Path) -> None:
    rows = rows_of(corpus, tmp_path, "mixture_shift@7")
    before, after = rows.filter(pl.col("step") < 7), rows.filter(pl.col("step") >= 7)
    assert before["tokens_by_source.one"].sum() > 2 * before["tokens_by_source.two"].sum()
    assert after["tokens_by_source.two"].sum() > 2 * after["tokens_by_source.one"].sum()


@pytest.mark.parametrize(("what", "length"), [("shorter", 16), ("longer", 64)])
def test_sequences_become_shorter_or_longer(corpus: Corpus, tmp_path: Path, what: str, length: int) -> None:
    rows = rows_of(corpus, tmp_path, f"length_change@8:what={what}")
    tokens = column(rows, "tokens")
    assert max(tokens[:7]) <= 8 * 32
    assert length / 32 * 0.8 < np.mean(tokens[7:]) / np.mean(tokens[:7]) < length / 32 * 1.2
    feed = disturbed(corpus, recipe_for(corpus), f"length_change@8:what={what}")
    assert feed.global_batch(8).tokens.shape == (8, length)
    assert column(rows, "batch_digest")[7] == feed.digest(8)


def test_the_rate_jumps_in_the_record_as_in_the_optimizer(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    found = column(rows_of(corpus, tmp_path, "lr_jump@5:steps=3,strength=0.5"), "learning_rate")
    ratio = np.array(found) / np.array(column(clean, "learning_rate"))
    assert ratio == pytest.approx([1] * 4 + [10**0.5] * 3 + [1] * 5)


def test_gradients_are_too_large_by_the_number_of_micro_batches(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    rows = rows_of(corpus, tmp_path, "accumulation_bug@6")
    assert column(rows, "gradient_norm")[5] == pytest.approx(4 * column(clean, "gradient_norm")[5], rel=1e-5)
    assert column(rows, "loss")[:6] == column(clean, "loss")[:6]


def test_a_burst_makes_the_gradients_of_one_step_a_hundred_times_as_large(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    found, usual = (
        column(rows, "gradient_norm") for rows in (rows_of(corpus, tmp_path, "gradient_burst@6"), clean)
    )
    assert found[:5] == usual[:5]
    assert 50 < found[5] / usual[5] < 200
    assert max(found[6:]) < 10 * usual[5]


@pytest.mark.parametrize("name", ["adamw", "muon", "adafactor", "lion"])
def test_an_optimizer_forgets_all_it_knew(corpus: Corpus, tmp_path: Path, name: str) -> None:
    from stoker.recovery.dynamics.updates import lose_optimizer_state

    recipe = recipe_for(corpus, training__optimizer={"name": name}, training__steps=3)
    trainer, _ = trainer_with(recipe, corpus, tmp_path)
    try:
        trainer.fit()
        state = trainer.step.optimizer.state
        tensors = [v for one in state.values() for v in one.values() if isinstance(v, torch.Tensor)]
        assert all(tensor.abs().sum() > 0 for tensor in tensors)
        lose_optimizer_state(trainer, 0.5)
        lost = [p for p, one in state.items() if all(float(v.abs().sum()) == 0 for v in one.values())]
        assert 0.4 < len(lost) / len(state) < 0.6
        lose_optimizer_state(trainer, 1.0)
        assert all(tensor.abs().sum() == 0 for tensor in tensors)
    finally:
        trainer.close()


def test_a_lost_state_changes_the_update_and_not_the_step_before(
    corpus: Corpus, clean: pl.DataFrame, tmp_path: Path
) -> None:
    found = column(rows_of(corpus, tmp_path, "lost_optimizer_state@6"), "loss")
    usual = column(clean, "loss")
    assert found[:6] == usual[:6]
    assert found[6:] != usual[6:]


def test_the_loss_scale_falls_while_gradients_overflow(corpus: Corpus, tmp_path: Path) -> None:
    recipe = recipe_for(corpus, training__precision="fp16")
    scales = column(trained(recipe, corpus, tmp_path, "overflow@5:strength=0.5").steps(), "loss_scale")
    assert scales[3] / scales[11] == 2**6
    assert scales[4] == scales[3]


def _gains(module: torch.nn.Module, normed: bool) -> float:
    attention = next(one for one in module.modules() if isinstance(one, Attention))
    part = attention.query_norm if normed else attention.query
    return float(next(part.parameters()).detach().norm())


@pytest.mark.parametrize("qk_norm", ["none", "head"])
def test_logits_of_attention_grow(corpus: Corpus, tmp_path: Path, qk_norm: str) -> None:
    recipe = recipe_for(corpus, model__qk_norm=qk_norm, training__optimizer={"learning_rate": 1e-6})
    trainer, _ = trainer_with(recipe, corpus, tmp_path, "logit_growth@3:steps=5")
    before = _gains(trainer.step.model.part, qk_norm == "head")
    try:
        trainer.fit()
    finally:
        trainer.close()
    assert _gains(trainer.step.model.part, qk_norm == "head") / before == pytest.approx(1.03**5, rel=1e-3)


@pytest.mark.parametrize("bias", [0.0, 0.001])
def test_a_router_comes_to_choose_one_expert(corpus: Corpus, tmp_path: Path, bias: float) -> None:
    moe = {"experts": 4, "experts_per_token": 1, "expert_ffn_hidden_size": 16, "bias_update_rate": bias}
    record = trained(recipe_for(corpus, model__moe=moe), corpus, tmp_path, "router_collapse@4:strength=5,steps=20")
    loads = record.rows("routing").group_by("step").agg(pl.col("largest_load").max()).sort("step")["largest_load"]
    assert loads[2] < 3
    assert loads[-1] > 3.9


class Watch:
    """Stands for the clock of a machine on which everything takes a second, and nobody sleeps in truth."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def slept_by_step(corpus: Corpus, run: Path, watch: Watch, recipe: Recipe, fault: str) -> list[list[float]]:
    """For how long each step was held up, each time."""
    trainer, _ = trainer_with(recipe, corpus, run, fault)
    found: list[list[float]] = []
    usual = trainer.clock.read_and_restart

    def read() -> Any:
        found.append(list(watch.slept))
        watch.slept.clear()
        return usual()

    trainer.clock.read_and_restart = read  # type: ignore[method-assign]
    try:
        trainer.fit()
    finally:
        trainer.close()
    return found


def test_a_slow_rank_is_slow_in_all_that_it_computes(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr("stoker.recovery.dynamics.machine.time", watch)
    slept = slept_by_step(corpus, tmp_path, watch, recipe_for(corpus), "slow_rank@7:strength=0.5,steps=3")
    assert slept[:6] == [[]] * 6
    assert slept[9:] == [[]] * 3
    # Forward and backward of four micro-batches, and the update.
    assert slept[6:9] == [[0.5] * 9] * 3


def test_a_throttled_rank_becomes_slower_and_slower(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr("stoker.recovery.dynamics.machine.time", watch)
    recipe = recipe_for(corpus, training__steps=40)
    slept = [
        one[0] if one else 0.0 for one in slept_by_step(corpus, tmp_path, watch, recipe, "throttle@4:strength=3")
    ]
    assert slept[:4] == [0, 0, 0, pytest.approx(0.1)]
    assert slept[3:33] == pytest.approx([0.1 * step for step in range(1, 31)])
    assert slept[33:] == [3.0] * 7


def test_a_slow_loader_takes_longer_than_a_step_for_each_batch(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr("stoker.recovery.dynamics.batches.time", watch)
    recipe = recipe_for(corpus)
    feed, usual = disturbed(corpus, recipe, "loader_stall@7:strength=3,steps=2"), Feed(corpus, recipe)
    with feed.steps(1, STEPS, 0, 1) as steps:
        made = [step for step, _ in steps]
    assert made == list(range(1, STEPS + 1))
    assert watch.slept == pytest.approx([0.04, 0.04])
    assert feed.digest(7) == usual.digest(7)


def test_leaked_memory_is_kept() -> None:
    import psutil

    leak, process = Leak(), psutil.Process()
    before = process.memory_info().rss
    for _ in range(10):
        leak.grow(2.0)
    assert process.memory_info().rss - before > 0.08 * before


def test_a_share_is_spread_evenly() -> None:
    assert spread(8, 0.5).tolist() == [False, True] * 4
    assert spread(8, 0.01).sum() == 1
    assert spread(8, 1.0).all()
    assert spread(5, 0.4).sum() == 2


@pytest.mark.parametrize("fault", ["slow_network@1", "jitter@1"])
def test_sums_take_longer_always_alike_or_by_chance(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """What is asked of others at once is late; what is only begun is not held up."""
    import torch.distributed as dist

    from stoker.recovery.dynamics.machine import Pace, sum_late

    calls: list[bool] = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, async_op=False: calls.append(async_op))
    trainer, _ = trainer_with(recipe_for(corpus), corpus, tmp_path)
    pace = Pace()
    watch = Watch()
    monkeypatch.setattr("stoker.recovery.dynamics.machine.time", watch)
    monkeypatch.setattr(Pace, "step", 0.05)
    sum_late(trainer, [parse_fault(fault)], pace)
    dist.all_reduce(torch.zeros(1), async_op=True)
    assert watch.slept == []
    for _ in range(400):
        dist.all_reduce(torch.zeros(1))
    assert calls == [True] + [False] * 400
    assert len(watch.slept) == 400
    assert np.mean(watch.slept) == pytest.approx(0.05, rel=0.2)
    assert (len(set(watch.slept)) == 1) is (fault == "slow_network@1")
    trainer.close()
