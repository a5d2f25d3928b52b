"""How long a pipeline's ranks wait: in closed form where there is one, otherwise by playing the schedule once."""

from __future__ import annotations

from functools import lru_cache

from stoker.pipeline_schedule import StageSeconds, build_schedule, simulate

_ROUNDS = 2
"""From so many micro-batches for each rank on the bubble stays the same."""
_TWO_STAGES = ("interleaved_1f1b", "interleaved_zero_bubble")


def bubble_seconds(
    schedule: str, ranks: int, stages_per_rank: int, micro_batches: int, forward: float, backward: float
) -> float:
    """Seconds that the busiest rank waits in one step, for seconds of all of a rank's stages on a micro-batch.

    All ranks are taken to be alike. GPipe and 1F1B: (p-1)(F+B); interleaved 1F1B with v stages a rank and
    m ≥ p: (p-1)(F+B)/v (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). The other schedules are played
    (`stoker.pipeline_schedule`) with the backward pass in two equal halves. ZB-H2 has no bubble within a step
    (Qi et al. 2023, arXiv:2401.10241, section 2), at twice the activations; only the fill remains: (p-1)F.
    """
    if ranks == 1:
        return 0.0
    if schedule in ("gpipe", "1f1b"):
        return (ranks - 1) * (forward + backward)
    if schedule == "interleaved_1f1b" and micro_batches >= ranks:
        return (ranks - 1) * (forward + backward) / stages_per_rank
    if schedule == "interleaved_zero_bubble" and stages_per_rank == 1 and micro_batches >= ranks:
        return (ranks - 1) * backward / 2
    if schedule == "zbv" and micro_batches >= 2 * ranks:
        return (ranks - 1) * backward / 4
    if schedule == "zb_h2":
        return (ranks - 1) * forward
    # Tenths are near enough, and few enough to be remembered.
    tenths = max(1, round(10 * backward / forward)) if forward > 0 else 20
    most = _ROUNDS * ranks
    units = _played(schedule, ranks, stages_per_rank, min(micro_batches, most), tenths)
    return units * (forward + backward) / (1 + tenths / 10)


@lru_cache(maxsize=4096)
def _played(name: str, ranks: int, stages_per_rank: int, micro_batches: int, tenths: int) -> float:
    """The bubble in units of a rank's forward pass over a micro-batch."""
    plain = name in _TWO_STAGES
    schedule = build_schedule(name, ranks, micro_batches, stages_per_rank if plain else None)  # type: ignore[arg-type]
    v = schedule.stages // ranks
    cost = StageSeconds(1 / v, tenths / 10 / v, tenths / 20 / v, tenths / 20 / v)
    timeline = simulate(schedule, [cost] * schedule.stages)
    return timeline.makespan - max(timeline.busy)
