"""How long a pipeline's ranks wait, in closed form."""

from __future__ import annotations


def bubble_passes(schedule: str, ranks: int, stages_per_rank: int) -> tuple[float, float]:
    """Forward and backward passes of all of a rank's stages that the bubble lasts."""
    hops = ranks - 1
    if schedule in ("gpipe", "1f1b", "interleaved_1f1b"):
        return hops / stages_per_rank, hops / stages_per_rank
    if schedule == "interleaved_zero_bubble":
        return hops / stages_per_rank, 0.0
    if schedule == "zb_h2":
        return 0.0, 0.0
    return hops / 2, 0.0
