"""Schedules in a V: rank r holds stage r (chunk 0, going there) and stage 2p-1-r (chunk 1, coming back).

The first and the last stage share rank 0, so an output head can share the embedding's weights, and every rank's two
stages free their activations in mirrored order, which balances memory.

A rank's program is written as phases: how often, and what. `F0` is the next forward of chunk 0, `B1` the next whole
backward of chunk 1, `I1` the input half of it, and `W` the oldest weight half still owed, of either chunk.
"""

from __future__ import annotations

from collections import deque

from stoker.pipeline_schedule.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Action

_Phases = list[tuple[int, str]]


def zero_bubble_v(ranks: int, micro_batches: int) -> list[list[Action]]:
    """ZB-V: one forward, one input half and one weight half in turn, without a gap once a rank has begun.

    Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 6.
    Bubble: none between a rank's first and last action where F = I = W and m ≥ 2p-1. Over the whole step (p-1)F
    remain, in which the last rank waits for its first micro-batch, (p-1)/(6m+p-1) of the step: the least possible.
    With fewer micro-batches it is the schedule for 2p-1 with the missing ones left out.
    Memory: at most 2p stage activations, the same on every rank for m ≥ 2p; its stages are half as large as 1F1B's,
    so that is what rank 0 of 1F1B holds.
    """
    planned = max(micro_batches, 2 * ranks - 1)
    programs = []
    for rank in range(ranks):
        hops = ranks - rank - 1
        phases = [
            (2 * hops + 1, "F0"),
            (rank, "F1 F0"),
            (hops + 1, "F1 I1 W"),
            (planned - 2 * ranks + rank + 1, "F0 I0 W F1 I1 W"),
            (hops, "I0 W F1 I1 W"),
            (rank, "I0 I1"),
            (hops + 1, "I0 W"),
            (2 * rank, "W"),
        ]
        programs.append(_written_out(phases, (rank, 2 * ranks - 1 - rank), micro_batches))
    return programs


def dualpipe_v(ranks: int, micro_batches: int) -> list[list[Action]]:
    """DualPipe cut in half: the forward of one chunk runs beside the backward of the other.

    Such a pair is a FORWARD followed at once by a BACKWARD of the other chunk; neither needs the other, so their
    communication and computation may overlap.
    Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv:2412.19437), section 3.2.1, and the order
    published in github.com/deepseek-ai/DualPipe for the V variant (there called "cut in half").
    Bubble: published as (p-1)(F&B + B - 3W), where F&B is the time of an overlapped pair: 2(p-1) for F = I = W = 1
    and F&B = F+B. Where the two of a pair need not start together, it is only p-1 (m ≥ 2p).
    With fewer than 2p micro-batches it is the schedule for 2p with the missing ones left out.
    Memory: at most 2p+1 stage activations on every rank.
    """
    planned = max(micro_batches, 2 * ranks)
    programs = []
    for rank in range(ranks):
        hops = ranks - rank - 1
        phases = [
            (2 * hops, "F0"),
            (rank + 1, "F0 F1"),
            (hops, "I1 W F1"),
            (planned - 2 * ranks + rank + 1, "F0 B1 F1 B0"),
            (hops, "B1 F1 B0"),
            *((1, f"{'B' if turn <= rank else 'I'}{(turn + 1) % 2}") for turn in range(2 * rank + 2)),
            (hops, "W I0"),
            (rank + 1, "W"),
        ]
        programs.append(_written_out(phases, (rank, 2 * ranks - 1 - rank), micro_batches))
    return programs


def _written_out(phases: _Phases, stages: tuple[int, int], micro_batches: int) -> list[Action]:
    """The actions of `phases`, without those of micro-batches that do not exist.

    Leaving micro-batches out cannot make a deadlock: what is left keeps its order.
    """
    forwards, backwards = [0, 0], [0, 0]
    owed: deque[Action] = deque()
    actions = []
    for repeats, pattern in phases:
        for step in pattern.split() * repeats:
            if step == "W":
                action = owed.popleft()
            else:
                chunk = int(step[1])
                count = forwards if step[0] == "F" else backwards
                kind = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD_INPUT}[step[0]]
                action = Action(kind, stages[chunk], count[chunk])
                count[chunk] += 1
                if kind is BACKWARD_INPUT:
                    owed.append(Action(BACKWARD_WEIGHT, action.stage, action.micro_batch))
            if action.micro_batch < micro_batches:
                actions.append(action)
    return actions
