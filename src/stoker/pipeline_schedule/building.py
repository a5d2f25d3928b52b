"""From a schedule's name to the schedule."""

from __future__ import annotations

from typing import Literal, get_args

from stoker.errors import BadInput
from stoker.pipeline_schedule.interleaved import interleaved_one_forward_one_backward, interleaved_zero_bubble
from stoker.pipeline_schedule.schedule import Action, Schedule, loop_placement, v_placement
from stoker.pipeline_schedule.single_stage import gpipe, one_forward_one_backward
from stoker.pipeline_schedule.v_shaped import dualpipe_v, zero_bubble_v

ScheduleName = Literal["gpipe", "1f1b", "interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipe_v"]
SCHEDULE_NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)


def build_schedule(
    name: ScheduleName, ranks: int, micro_batches: int, stages_per_rank: int | None = None
) -> Schedule:
    """The schedule `name` for any number of ranks and micro-batches, at least one of each.

    `stages_per_rank` may be left out: 1 for `gpipe` and `1f1b`, otherwise 2. Only the interleaved schedules leave a
    choice (`interleaved_1f1b` 2 or more, `interleaved_zero_bubble` 1 or more). Raises `BadInput` for anything else.
    """
    if name not in SCHEDULE_NAMES:
        raise BadInput(f"no pipeline schedule is called {name!r}; there are {', '.join(SCHEDULE_NAMES)}")
    if ranks < 1 or micro_batches < 1:
        raise BadInput(
            f"a pipeline needs at least one rank and one micro-batch, got {ranks} ranks and "
            f"{micro_batches} micro-batches"
        )
    v = _stages_per_rank(name, stages_per_rank)
    placement = v_placement(ranks) if name in ("zbv", "dualpipe_v") else loop_placement(ranks, v)
    actions = tuple(tuple(program) for program in _programs(name, ranks, micro_batches, v))
    return Schedule(name, ranks, v, micro_batches, placement, actions)


def _programs(name: ScheduleName, ranks: int, micro_batches: int, stages_per_rank: int) -> list[list[Action]]:
    match name:
        case "gpipe":
            return gpipe(ranks, micro_batches)
        case "1f1b":
            return one_forward_one_backward(ranks, micro_batches)
        case "interleaved_1f1b":
            return interleaved_one_forward_one_backward(ranks, micro_batches, stages_per_rank)
        case "interleaved_zero_bubble":
            return interleaved_zero_bubble(ranks, micro_batches, stages_per_rank)
        case "zbv":
            return zero_bubble_v(ranks, micro_batches)
        case "dualpipe_v":
            return dualpipe_v(ranks, micro_batches)


def _stages_per_rank(name: ScheduleName, wanted: int | None) -> int:
    fewest, most = {
        "gpipe": (1, 1),
        "1f1b": (1, 1),
        "interleaved_1f1b": (2, None),
        "interleaved_zero_bubble": (1, None),
        "zbv": (2, 2),
        "dualpipe_v": (2, 2),
    }[name]
    if wanted is None:
        return most or 2
    if wanted < fewest or (most is not None and wanted > most):
        allowed = f"exactly {fewest}" if most == fewest else f"{fewest} or more"
        raise BadInput(f"schedule {name} has {allowed} stages on each rank, got {wanted}")
    return wanted
