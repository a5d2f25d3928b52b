"""Simulated bubbles and peaks are the published ones."""

from __future__ import annotations

import pytest

from stoker.errors import BadInput
from stoker.pipeline_schedule import SCHEDULE_NAMES, ScheduleName, StageSeconds, build_schedule, simulate
from tests.pipeline_schedule.cases import CASES, simulated

SIZES = [(p, m) for p in (1, 2, 3, 4, 6, 8) for m in (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24)]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_gpipe_and_1f1b_bubble(name: ScheduleName) -> None:
    for p, m in SIZES:
        timeline = simulated(name, p, m)
        assert timeline.makespan == 3 * (m + p - 1)
        assert timeline.bubble_fraction == pytest.approx((p - 1) / (m + p - 1), abs=1e-15)
        assert timeline.bubble_fractions == pytest.approx([(p - 1) / (m + p - 1)] * p, abs=1e-15)


@pytest.mark.parametrize("v", [2, 3, 4])
def test_interleaved_1f1b_bubble_even_where_ranks_do_not_divide_the_micro_batches(v: int) -> None:
    for p, m in SIZES:
        if m >= p:
            timeline = simulated("interleaved_1f1b", p, m, v)
            assert timeline.makespan == 3 * (v * m + p - 1)
            assert timeline.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1), abs=1e-15)


@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_interleaved_zero_bubble_reaches_the_least_possible_time(v: int) -> None:
    """The last rank cannot start before p-1, and has 3·v·m to do."""
    for p, m in SIZES:
        if m >= p:
            assert simulated("interleaved_zero_bubble", p, m, v).makespan == 3 * v * m + p - 1


def test_zbv_has_no_bubble_once_ranks_have_begun() -> None:
    for p, m in SIZES:
        if m >= 2 * p - 1:
            timeline = simulated("zbv", p, m)
            assert timeline.makespan == 6 * m + p - 1
            assert timeline.bubble_fraction_within_spans == 0


def test_dualpipe_v_is_within_its_published_bubble() -> None:
    for forward, input_half, weight_half in [(1, 1, 1), (2, 3, 1), (3, 3, 2), (2, 2, 3), (1, 2, 1), (5, 6, 4)]:
        cost = StageSeconds(forward, input_half + weight_half, input_half, weight_half)
        for p, m in SIZES:
            if m >= 2 * p:
                timeline = simulate(build_schedule("dualpipe_v", p, m), [cost] * (2 * p))
                bubble = timeline.makespan - 2 * m * (forward + cost.backward)
                pair = forward + cost.backward
                assert bubble <= (p - 1) * (pair + cost.backward - 3 * weight_half)
                if forward == input_half == weight_half:
                    assert bubble == p - 1


@pytest.mark.parametrize("name", ["interleaved_zero_bubble", "zbv", "dualpipe_v"])
def test_split_backwards_beat_1f1b(name: ScheduleName) -> None:
    """For the same model: 1F1B's stages are twice as large. With few micro-batches they are at least no slower."""
    for p, m in SIZES:
        ours, theirs = simulated(name, p, m), simulated("1f1b", p, m, unit=2.0)
        assert sum(ours.busy) == sum(theirs.busy)
        assert ours.makespan <= theirs.makespan
        if p >= 2 and m >= 2 * p:
            assert ours.bubble_fraction < theirs.bubble_fraction


def test_peak_activations_are_the_published_ones() -> None:
    for p, m in SIZES:
        group = -(-m // max(1, m // p))
        assert simulated("gpipe", p, m).peak_activations == (m,) * p
        assert simulated("1f1b", p, m).peak_activations == tuple(min(m, p - r) for r in range(p))
        assert simulated("interleaved_zero_bubble", p, m, 1).peak_activations == (min(m, p),) * p
        for v in (2, 3):
            one = simulated("interleaved_1f1b", p, m, v).peak_activations
            zero = simulated("interleaved_zero_bubble", p, m, v).peak_activations
            assert one == tuple(min(v * m, 2 * (p - r - 1) + (v - 1) * group + 1) for r in range(p))
            assert zero == tuple(min(v * m, 2 * p - 1 - r + (v - 1) * group) for r in range(p))
        zbv, dualpipe = simulated("zbv", p, m).peak_activations, simulated("dualpipe_v", p, m).peak_activations
        assert max(zbv) <= 2 * p
        assert max(dualpipe) <= 2 * p + 1
        if m > 2 * p:
            assert zbv == (2 * p,) * p
            assert dualpipe == (2 * p + 1,) * p


@pytest.mark.parametrize(("name", "v"), CASES)
def test_timeline_respects_costs_and_transfers(name: ScheduleName, v: int) -> None:
    schedule = build_schedule(name, 3, 5, v)
    costs = [StageSeconds(1 + s, 3 + s, 2, 1 + s) for s in range(schedule.stages)]
    timeline = simulate(schedule, costs, transfer_seconds=0.5)
    ends = {
        action: timeline.end[rank][position]
        for rank, actions in enumerate(schedule.actions)
        for position, action in enumerate(actions)
    }
    seconds = [(c.forward, c.backward, c.backward_input, c.backward_weight) for c in costs]
    for rank, actions in enumerate(schedule.actions):
        assert all(a <= b for a, b in zip(timeline.end[rank], timeline.start[rank][1:], strict=False))
        for position, action in enumerate(actions):
            start = timeline.start[rank][position]
            assert timeline.end[rank][position] == start + seconds[action.stage][action.kind]
            for other, end in ends.items():
                step = {0: other.stage == action.stage - 1, 1: other.stage == action.stage + 1}
                step[2] = step[1]
                fed = other.micro_batch == action.micro_batch and step.get(action.kind, False)
                if fed and (action.kind == 0) == (other.kind == 0) and other.kind != 3:
                    far = schedule.stage_to_rank[other.stage] != rank
                    assert start >= end + (0.5 if far else 0.0)
    assert timeline.busy == tuple(sum(seconds[a.stage][a.kind] for a in actions) for actions in schedule.actions)
    assert timeline.makespan >= simulate(schedule, costs).makespan


def test_one_rank_never_waits() -> None:
    for name in SCHEDULE_NAMES:
        for m in (1, 2, 7):
            assert simulated(name, 1, m).bubble_fraction == 0


def test_simulation_wants_one_cost_a_stage() -> None:
    with pytest.raises(BadInput, match="4 stages, but costs were given for 2"):
        simulate(build_schedule("zbv", 2, 4), [StageSeconds(1, 2, 1, 1)] * 2)


def test_costs_of_nothing_make_no_bubble() -> None:
    timeline = simulate(build_schedule("1f1b", 2, 2), [StageSeconds(0, 0, 0, 0)] * 2)
    assert (timeline.makespan, timeline.bubble_fraction, timeline.bubble_fraction_within_spans) == (0, 0, 0)
