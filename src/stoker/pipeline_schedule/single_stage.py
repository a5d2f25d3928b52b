"""Schedules with one stage on each rank: GPipe and 1F1B."""

from __future__ import annotations

from stoker.pipeline_schedule.schedule import BACKWARD, FORWARD, Action


def gpipe(ranks: int, micro_batches: int) -> list[list[Action]]:
    """Every forward pass, then every backward pass.

    Source: Huang et al. 2018, "GPipe" (arXiv:1811.06965).
    Bubble: (p-1)(F+B), a fraction (p-1)/(m+p-1) of the step.
    Memory: each rank holds all m micro-batches.
    """
    return [
        [Action(kind, rank, k) for kind in (FORWARD, BACKWARD) for k in range(micro_batches)]
        for rank in range(ranks)
    ]


def one_forward_one_backward(ranks: int, micro_batches: int) -> list[list[Action]]:
    """After a short warm-up each forward pass is followed by the oldest backward pass.

    Source: Narayanan et al. 2019, "PipeDream" (1F1B), with a flush at the end of the step as in
    Narayanan et al. 2020, "Memory-Efficient Pipeline-Parallel DNN Training" (arXiv:2006.09503).
    Bubble: (p-1)(F+B), a fraction (p-1)/(m+p-1), as GPipe's.
    Memory: rank r holds min(m, p-r) micro-batches.
    """
    programs = []
    for rank in range(ranks):
        warm_up = min(micro_batches, ranks - rank - 1)
        program = [Action(FORWARD, rank, k) for k in range(warm_up)]
        for k in range(warm_up, micro_batches):
            program += Action(FORWARD, rank, k), Action(BACKWARD, rank, k - warm_up)
        program += [Action(BACKWARD, rank, k) for k in range(micro_batches - warm_up, micro_batches)]
        programs.append(program)
    return programs
