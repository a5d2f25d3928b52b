"""Schedules with several stages on each rank, placed in a loop: interleaved 1F1B and interleaved zero bubble."""

from __future__ import annotations

from stoker.pipeline_schedule.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Action


def interleaved_one_forward_one_backward(
    ranks: int, micro_batches: int, stages_per_rank: int
) -> list[list[Action]]:
    """1F1B over v stages a rank: a smaller bubble for more messages and more memory.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM" (arXiv:2104.04473), section 2.2. There m must be a multiple of p; here any m will do, because
    the micro-batches go in groups of at least p that differ by at most one (see `_group_sizes`).
    Bubble: (p-1)(F+B) with F and B of one stage, a fraction (p-1)/(v·m+p-1); for every m ≥ p.
    Memory: rank r holds at most 2(p-r-1) + (v-1)g + 1 stage activations, g the largest group (p where p divides m).
    """
    order = _Order(ranks, micro_batches, stages_per_rank)
    programs = []
    for rank in range(ranks):
        warm_up, count = order.warm_up(rank), len(order.forward)
        forward = [Action(FORWARD, chunk * ranks + rank, k) for chunk, k in order.forward]
        backward = [Action(BACKWARD, chunk * ranks + rank, k) for chunk, k in order.backward]
        program = forward[:warm_up]
        for pair in zip(forward[warm_up:], backward[: count - warm_up], strict=True):
            program += pair
        programs.append(program + backward[count - warm_up :])
    return programs


def interleaved_zero_bubble(ranks: int, micro_batches: int, stages_per_rank: int) -> list[list[Action]]:
    """Interleaved 1F1B with a split backward; rank r puts weight gradients off by r, to fill the end of the step.

    Source: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), schedule ZB-H1 for v = 1
    (section 2), laid over the interleaved order of Narayanan et al. 2021 for v ≥ 2.
    Bubble: (p-1)(F+I-W) for F = I = W and every m ≥ p, that is (p-1)/(3·v·m+p-1) of the step: no schedule in
    this placement does better, for the last rank cannot start before (p-1)F.
    Memory: 1F1B's largest for v = 1 (min(m, p) on every rank); for v ≥ 2 rank r holds at most
    2p-1-r + (v-1)g stage activations, so no rank more than rank 0 of interleaved 1F1B.
    """
    order = _Order(ranks, micro_batches, stages_per_rank)
    programs = []
    for rank in range(ranks):
        warm_up, count = order.warm_up(rank), len(order.forward)
        forward = [Action(FORWARD, chunk * ranks + rank, k) for chunk, k in order.forward]
        weight = [Action(BACKWARD_WEIGHT, chunk * ranks + rank, k) for chunk, k in order.backward]
        program = forward[:warm_up]
        for index, (chunk, k) in enumerate(order.backward):
            program += forward[warm_up + index : warm_up + index + 1]
            program.append(Action(BACKWARD_INPUT, chunk * ranks + rank, k))
            if index >= rank:
                program.append(weight[index - rank])
        programs.append(program + weight[max(0, count - rank) :])
    return programs


class _Order:
    """The order in which every rank takes (its own nth stage, micro-batch): the same on all ranks."""

    def __init__(self, ranks: int, micro_batches: int, stages_per_rank: int) -> None:
        self.ranks, self.stages_per_rank = ranks, stages_per_rank
        self.forward: list[tuple[int, int]] = []
        self.backward: list[tuple[int, int]] = []
        self.largest_group, first = 0, 0
        for size in _group_sizes(micro_batches, ranks):
            group = range(first, first + size)
            self.forward += [(chunk, k) for chunk in range(stages_per_rank) for k in group]
            self.backward += [(chunk, k) for chunk in reversed(range(stages_per_rank)) for k in group]
            self.largest_group, first = max(self.largest_group, size), first + size

    def warm_up(self, rank: int) -> int:
        """Forward passes of `rank` before its first backward pass.

        In each group the last stage's first forward comes (v-1)·group places after the first stage's, where its
        backward stands in the other list; the largest group needs the longest lead.
        """
        hops = self.ranks - rank - 1
        if self.stages_per_rank == 1:
            return min(len(self.forward), hops)
        return min(len(self.forward), 2 * hops + (self.stages_per_rank - 1) * self.largest_group)


def _group_sizes(micro_batches: int, ranks: int) -> list[int]:
    """Sizes of the groups of micro-batches that pass one stage after another.

    A group smaller than p would leave the first rank waiting for the last one; a large one costs memory. So there
    are as many groups as have p each, evenly filled; fewer micro-batches than ranks make one group.
    """
    groups = max(1, micro_batches // ranks)
    return [micro_batches // groups + (index < micro_batches % groups) for index in range(groups)]
