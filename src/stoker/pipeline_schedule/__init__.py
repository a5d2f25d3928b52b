"""Pipeline schedules as data: what each rank of a pipeline does, in which order.

A schedule knows no tensors, no processes and no clock. The planner simulates it, the
executor follows it. Read `schedule.py` first, then the schedules themselves
(`single_stage.py`, `interleaved.py`, `v_shaped.py`).

The symbols: p ranks, v stages on each rank, S = p·v stages, m micro-batches, r a rank;
F, B, I, W the seconds that one stage needs for a forward pass, a whole backward pass, and
its two halves (gradient of the input, gradient of the weights), with B = I + W.
"""

from stoker.pipeline_schedule.balancing import balance
from stoker.pipeline_schedule.building import SCHEDULE_NAMES, ScheduleName, build_schedule
from stoker.pipeline_schedule.checking import ScheduleError, check, receives_to_post
from stoker.pipeline_schedule.schedule import Action, Kind, Schedule, loop_placement, v_placement
from stoker.pipeline_schedule.simulation import StageSeconds, Timeline, simulate
from stoker.pipeline_schedule.transfers import Lane, Message, Payload, transfers

__all__ = [
    "SCHEDULE_NAMES",
    "Action",
    "Kind",
    "Lane",
    "Message",
    "Payload",
    "Schedule",
    "ScheduleError",
    "ScheduleName",
    "StageSeconds",
    "Timeline",
    "balance",
    "build_schedule",
    "check",
    "loop_placement",
    "receives_to_post",
    "simulate",
    "transfers",
    "v_placement",
]
