"""Each detector by itself, on small arrays: what it finds, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.diagnosis.gradient_growth import find_gradient_growth
from stoker.diagnosis.loss_drop import find_loss_drops
from stoker.diagnosis.loss_scale import find_loss_scale_collapse, find_skipped_steps
from stoker.diagnosis.loss_spike import find_spikes, without_spikes
from stoker.diagnosis.memory_growth import find_memory_growth
from stoker.diagnosis.non_finite import find_non_finite
from stoker.diagnosis.overfitting import find_overfitting
from stoker.diagnosis.plateau import find_plateau
from stoker.diagnosis.recent_past import Curve
from stoker.diagnosis.router_collapse import find_router_collapse
from stoker.diagnosis.slow_rank import find_slow_ranks
from stoker.diagnosis.slow_rise import find_slow_rise
from stoker.diagnosis.source_drift import find_source_drift
from stoker.diagnosis.stall import find_stalls
from stoker.diagnosis.throughput import find_throughput_drops

ROWS = 600
NOTHING = Curve(np.zeros(0, dtype=np.int64), np.zeros(0))


def curve(values: np.ndarray, spacing: int = 1) -> Curve:
    values = np.asarray(values, dtype=float)
    return Curve(spacing * np.arange(1, values.size + 1), values)


def noise(rows: int = ROWS, deviation: float = 0.01, seed: int = 0) -> np.ndarray:
    return np.exp(deviation * np.random.default_rng(seed).standard_normal(rows))


def falling(rows: int = ROWS) -> np.ndarray:
    return 2 + 8 * np.arange(1, rows + 1) ** -0.4


def test_a_spike_is_found_at_its_step_and_its_recovery_is_told() -> None:
    values = falling() * noise()
    values[400:404] *= [1.3, 1.8, 1.6, 1.2]
    (finding,) = find_spikes(curve(values, 10))
    assert (finding.kind, finding.severity, finding.first_step, finding.last_step) == (
        "spike",
        "warning",
        4010,
        4040,
    )
    assert finding.evidence[-1].step == 4050


def test_a_small_spike_that_came_back_is_a_note() -> None:
    values = falling() * noise()
    values[400] *= 1.2
    (finding,) = find_spikes(curve(values))
    assert (finding.kind, finding.severity) == ("spike", "note")


def test_a_rise_that_does_not_come_back_is_a_divergence_and_an_alarm() -> None:
    values = falling() * noise()
    values[400:] *= 1.5
    (finding,) = find_spikes(curve(values))
    assert (finding.kind, finding.severity, finding.first_step) == ("divergence", "alarm", 401)
    assert finding.remedy.action == "roll_back"


def test_a_rise_in_the_very_last_row_is_not_yet_called_a_divergence() -> None:
    values = falling() * noise()
    values[-1] *= 2
    (finding,) = find_spikes(curve(values))
    assert (finding.kind, finding.remedy.action) == ("spike", "watch")


def test_a_small_lasting_rise_is_a_step() -> None:
    values = np.full(ROWS, 3.0) * noise(deviation=0.003)
    values[400:] *= 1.12
    (finding,) = find_spikes(curve(values))
    assert (finding.kind, finding.severity) == ("step_rise", "warning")


def test_a_loss_that_climbs_too_slowly_for_a_spike_is_a_divergence() -> None:
    values = falling() * noise() * np.exp(np.clip(np.arange(ROWS) - 300, 0, None) * 0.001)
    assert find_spikes(curve(values)) == []
    (finding,) = find_slow_rise(without_spikes(curve(values)))
    assert (finding.kind, finding.severity, finding.last_step) == ("divergence", "alarm", ROWS)
    assert 280 < (finding.first_step or 0) < 400


@pytest.mark.parametrize("deviation", [0.001, 0.01, 0.05])
def test_a_falling_noisy_loss_has_no_finding(deviation: float) -> None:
    loss = curve(falling() * noise(deviation=deviation))
    assert [*find_spikes(loss), *find_slow_rise(loss), *find_loss_drops(loss, NOTHING)] == []


def test_a_drop_at_once_is_found_at_its_row() -> None:
    values = falling() * noise()
    values[350:] *= 0.8
    (finding,) = find_loss_drops(curve(values), NOTHING)
    assert (finding.kind, finding.severity, finding.first_step) == ("step_drop", "warning", 351)


def test_the_drop_of_a_decaying_learning_rate_is_none() -> None:
    values = falling() * noise(deviation=0.002)
    values[350:] *= 0.9
    rate = np.where(np.arange(ROWS) < 350, 1.0, 0.1)
    assert find_loss_drops(curve(values), curve(rate)) == []


def test_a_curve_that_goes_flat_is_a_plateau() -> None:
    steps = np.arange(1, 2001)
    values = 8 * np.minimum(steps, 700) ** -0.15 * noise(2000)
    (finding,) = find_plateau(curve(values), curve(np.full(2000, 3e-4)))
    assert finding.severity == "warning"
    assert 500 < (finding.first_step or 0) < 900


def test_a_flat_curve_at_the_end_of_the_decay_is_no_plateau() -> None:
    steps = np.arange(1, 2001)
    values = 8 * np.minimum(steps, 1000) ** -0.15 * noise(2000)
    rate = np.where(steps < 1000, 1.0, 0.05)
    assert find_plateau(curve(values), curve(rate)) == []


def test_a_power_law_is_no_plateau() -> None:
    values = 8 * np.arange(1, 2001) ** -0.08 * noise(2000)
    assert find_plateau(curve(values), curve(np.full(2000, 3e-4))) == []


def test_non_finite_figures_are_an_alarm_only_while_they_last() -> None:
    values = np.full(50, 2.0)
    values[20:22] = [np.nan, np.inf]
    (finding,) = find_non_finite(curve(values), "loss")
    assert (finding.kind, finding.severity, finding.first_step, finding.last_step) == ("nan", "warning", 21, 22)
    assert (finding.evidence[0].expected, finding.evidence[0].observed) == (2.0, "NaN")
    values[45:] = np.nan
    assert [one.severity for one in find_non_finite(curve(values), "loss")] == ["alarm"]


def test_a_loss_scale_that_falls_away_is_found_and_one_that_halves_is_not() -> None:
    scale = np.full(200, 65536.0)
    scale[100:110] /= 2
    assert find_loss_scale_collapse(curve(scale)) == []
    scale[150:] = 1.0
    (finding,) = find_loss_scale_collapse(curve(scale))
    assert (finding.first_step, finding.severity) == (151, "alarm")


def test_a_loss_scale_that_looks_for_its_place_in_the_beginning_is_no_collapse() -> None:
    scale = np.concatenate([2.0 ** np.arange(32, 14, -1), np.full(200, 2.0**15)])
    assert find_loss_scale_collapse(curve(scale)) == []


def test_updates_left_out_in_succession_are_found() -> None:
    skipped = np.zeros(300)
    skipped[[40, 120]] = 1
    assert find_skipped_steps(curve(skipped)) == []
    skipped[200:260] = 1
    (finding,) = find_skipped_steps(curve(skipped))
    assert finding.first_step == 201
    assert 230 < (finding.last_step or 0) < 300


def test_growing_gradients_are_a_warning_and_a_single_large_one_is_none() -> None:
    norm = 0.3 * noise(deviation=0.1)
    norm[200] *= 20
    assert find_gradient_growth(curve(norm)) == []
    norm[400:406] *= [4, 8, 16, 30, 60, 100]
    (finding,) = find_gradient_growth(curve(norm))
    assert (finding.severity, finding.first_step) == ("warning", 401)


def test_gradients_that_grew_and_came_back_are_a_warning_only_where_the_loss_moved() -> None:
    norm = 0.3 * noise(deviation=0.1)
    norm[400:406] *= [4, 8, 16, 30, 60, 100]
    elsewhere, there = [(100, 105)], [(404, 412)]
    assert [one.severity for one in find_gradient_growth(curve(norm), elsewhere)] == ["note"]
    assert [one.severity for one in find_gradient_growth(curve(norm), there)] == ["warning"]
    under_way = curve(norm[:406])
    assert [one.severity for one in find_gradient_growth(under_way, elsewhere)] == ["warning"]


def test_a_slower_step_names_the_phase_that_grew() -> None:
    forward, backward = 0.3 * noise(), 0.6 * noise(seed=1)
    backward[300:] *= 1.5
    total = forward + backward
    phases = {"forward": forward, "backward": backward}
    (finding,) = find_throughput_drops(curve(total), phases, np.full(ROWS, 1000.0), np.full(ROWS, 8.0))
    assert (finding.severity, finding.first_step) == ("warning", 301)
    assert finding.remedy.arguments["phase"] == "backward"


def test_a_larger_batch_is_no_slower_step() -> None:
    seconds, tokens = noise(), np.full(ROWS, 1000.0)
    seconds[300:] *= 2
    tokens[300:] *= 2
    assert find_throughput_drops(curve(seconds), {}, tokens, np.full(ROWS, 8.0)) == []


def test_fewer_ranks_make_a_slower_step_a_note() -> None:
    seconds, ranks = noise(), np.full(ROWS, 8.0)
    seconds[300:] *= 2
    ranks[300:] = 4
    (finding,) = find_throughput_drops(curve(seconds), {}, np.full(ROWS, 1000.0), ranks)
    assert finding.severity == "note"
    assert finding.cause == "layout_changed"
    assert finding.first_step == 301
    assert finding.evidence[0].observed == "the layout changed: 8 ranks before, 4 ranks since"


def test_a_long_wait_for_the_next_row_is_a_stall_and_saving_is_none() -> None:
    times, saving = 1.7e9 + np.arange(ROWS, dtype=float), np.zeros(ROWS)
    times[300:] += 500
    saving[300] = 500
    assert find_stalls(curve(times), saving, np.ones(ROWS), None) == []
    (finding,) = find_stalls(curve(times), np.zeros(ROWS), np.ones(ROWS), None)
    assert (finding.severity, finding.first_step, finding.last_step) == ("warning", 300, 301)


def test_a_run_under_way_whose_rows_have_ceased_is_an_alarm() -> None:
    times = 1.7e9 + np.arange(ROWS, dtype=float)
    (finding,) = find_stalls(curve(times), np.zeros(ROWS), np.ones(ROWS), float(times[-1]) + 600)
    assert (finding.severity, finding.first_step) == ("alarm", ROWS)


def test_a_clock_that_was_set_back_is_no_stall() -> None:
    times = 1.7e9 + np.arange(ROWS, dtype=float)
    times[300:] -= 10_000
    assert find_stalls(curve(times), np.zeros(ROWS), np.ones(ROWS), None) == []


def test_the_rank_whose_work_takes_longer_is_named_with_its_steps() -> None:
    work = {rank: curve(0.5 * noise(160, seed=rank)) for rank in range(4)}
    work[2].values[80:] *= 1.6
    (finding,) = find_slow_ranks(work)
    assert (finding.ranks, finding.severity, finding.first_step, finding.last_step) == ((2,), "warning", 81, 160)


def test_ranks_with_other_rows_are_compared_where_they_have_the_same() -> None:
    work = {rank: curve(0.5 * noise(160, seed=rank)) for rank in range(3)}
    work[1] = Curve(work[1].steps[50:], 2 * work[1].values[50:])
    (finding,) = find_slow_ranks(work)
    assert finding.ranks == (1,)


def test_memory_that_goes_on_growing_is_told_with_its_rate() -> None:
    grown = 1e9 * (1 + 0.5 * np.arange(ROWS) / ROWS) * noise(deviation=0.001)
    (finding,) = find_memory_growth(curve(grown), 3, "peak memory in bytes")
    assert finding.ranks == (3,)
    assert finding.remedy.arguments["growth_bytes_per_1000_steps"] == pytest.approx(0.5e9 / ROWS * 1000, rel=0.1)


def test_memory_that_has_found_its_place_does_not_grow() -> None:
    settled = 1e9 * (1 + 0.5 * np.minimum(np.arange(ROWS) / 200, 1))
    assert find_memory_growth(curve(settled), 0, "peak memory in bytes") == []


def test_memory_that_grew_at_once_is_no_leak_though_it_crept_before_and_after() -> None:
    places = np.arange(ROWS)
    crept = 1e9 * (1 + 0.01 * places / ROWS + 0.06 * (places > 0.7 * ROWS))
    assert find_memory_growth(curve(crept), 0, "peak memory in bytes") == []


def test_a_router_that_sends_everything_to_one_expert_has_collapsed() -> None:
    largest, smallest = 1.3 * noise(200, 0.05), np.full(200, 0.7)
    largest[120:], smallest[120:] = 6.0, 0.01
    (finding,) = find_router_collapse(curve(largest), smallest, "blocks.1.moe")
    assert finding.severity == "alarm"
    assert 118 <= (finding.first_step or 0) <= 124


@pytest.mark.parametrize(("rows", "severity"), [(20, "note"), (60, "warning")])
def test_a_router_that_is_back_soon_is_a_note(rows: int, severity: str) -> None:
    largest, smallest = 1.3 * noise(300, 0.05), np.full(300, 0.7)
    largest[120 : 120 + rows], smallest[120 : 120 + rows] = 4.0, 0.01
    assert [one.severity for one in find_router_collapse(curve(largest), smallest, "blocks.1.moe")] == [severity]


def test_uneven_loads_before_routers_have_settled_are_no_collapse() -> None:
    largest, smallest = 1.3 * noise(200, 0.05), np.full(200, 0.7)
    largest[:8], smallest[:8] = 6.0, 0.01
    assert find_router_collapse(curve(largest), smallest, "blocks.1.moe") == []


def test_a_source_that_moves_apart_is_named() -> None:
    by_source = {name: falling() * noise(seed=seed) for seed, name in enumerate(("english", "中文", "code"))}
    by_source["中文"][300:] *= 1.3
    by_source["code"][1::3] = np.nan
    (finding,) = find_source_drift(curve(falling()), by_source)
    assert (finding.sources, finding.severity, finding.first_step) == (("中文",), "warning", 301)


def test_a_source_that_moved_hardly_farther_than_such_moves_is_a_note() -> None:
    by_source = {name: falling() * noise(seed=seed, deviation=0.03) for seed, name in enumerate("abc")}
    by_source["b"][300:] *= 1.12
    assert [one.severity for one in find_source_drift(curve(falling()), by_source)] == ["note"]


def test_held_out_loss_that_rises_while_the_training_loss_falls_is_overfitting() -> None:
    held_out = Curve(np.arange(50, 551, 50), np.array([4, 3.5, 3.2, 3.0, 2.95, 2.93, 3.0, 3.1, 3.2, 3.3, 3.4]))
    (finding,) = find_overfitting(held_out, curve(falling()), "english")
    assert (finding.sources, finding.severity, finding.first_step) == (("english",), "warning", 300)
    rising = curve(falling()[::-1])
    assert find_overfitting(held_out, rising, "english") == []
