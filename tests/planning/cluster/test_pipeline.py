"""The closed forms of a pipeline's bubble against the schedules played event by event."""

from __future__ import annotations

import pytest

from stoker.pipeline_schedule import StageSeconds, build_schedule, simulate
from stoker.planning.cluster import Parallelism, predict
from stoker.planning.cluster.bubbles import bubble_seconds
from tests.planning.cluster.cases import h100, workload

SCHEDULES = [
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved_1f1b", 2),
    ("interleaved_1f1b", 3),
    ("interleaved_zero_bubble", 1),
    ("interleaved_zero_bubble", 2),
    ("zbv", 2),
    ("dualpipe_v", 2),
]


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8, 24])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(("name", "stages_per_rank"), SCHEDULES)
@pytest.mark.parametrize("backward", [2.0, 3.0])
def test_the_bubble_is_that_of_the_schedule(
    name: str, stages_per_rank: int, ranks: int, micro_batches: int, backward: float
) -> None:
    schedule = build_schedule(name, ranks, micro_batches, stages_per_rank)  # type: ignore[arg-type]
    v = stages_per_rank
    cost = StageSeconds(1 / v, backward / v, backward / 2 / v, backward / 2 / v)
    timeline = simulate(schedule, [cost] * schedule.stages)
    exact = timeline.makespan - max(timeline.busy)
    assert bubble_seconds(name, ranks, v, micro_batches, 1.0, backward) == pytest.approx(exact)


def test_a_head_at_the_end_makes_the_last_rank_the_one_to_wait_for() -> None:
    """1F1B with a longer last stage: all its passes, and the fill and drain of the others."""
    ranks, micro_batches, head = 4, 16, 0.7
    costs = [StageSeconds(1.0, 2.0, 1.0, 1.0)] * (ranks - 1) + [StageSeconds(1 + head / 3, 2 + 2 * head / 3, 1, 1)]
    timeline = simulate(build_schedule("1f1b", ranks, micro_batches), costs)
    predicted = micro_batches * (3 + head) + bubble_seconds("1f1b", ranks, 1, micro_batches, 1.0, 2.0)
    assert timeline.makespan == pytest.approx(predicted)


def test_four_micro_batches_over_two_stages_wait_a_fifth_of_the_step() -> None:
    """Llama 3 70B cut to 12 layers, pp 2, on B200 took 0.843 s with 4 micro-batches and 5.437 s with 32, so that
    22% of the shorter step were no micro-batch's own work (SimuMax B200 release v1.2). 1F1B gives 20% of it.
    """
    exact = bubble_seconds("1f1b", 2, 1, 4, 1.0, 2.0) / (4 * 3 + bubble_seconds("1f1b", 2, 1, 4, 1.0, 2.0))
    assert exact == pytest.approx(0.2)
    measured = 1 - 4 * (5.4365 - 0.843) / 28 / 0.843
    assert measured == pytest.approx(0.22, abs=0.005)
    two = workload(parallelism=Parallelism(pp=2, dp_shard=4, zero_stage=1), global_batch_size=16)
    seconds = predict(two, h100()).seconds
    assert 0.12 < seconds.pp_bubble / seconds.total < 0.22


def test_zero_bubble_schedules_wait_less() -> None:
    def of(name: str, v: int) -> float:
        return bubble_seconds(name, 8, v, 32, 1.0, 2.0)

    assert of("zb_h2", 1) == pytest.approx(of("interleaved_zero_bubble", 1))
    assert of("zbv", 2) < of("interleaved_zero_bubble", 1) < of("1f1b", 1)
    assert of("interleaved_1f1b", 4) < of("interleaved_1f1b", 2) < of("1f1b", 1)
