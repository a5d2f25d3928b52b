"""Which action of another stage each action waits for."""

from __future__ import annotations

from stoker.pipeline_schedule.schedule import BACKWARD_WEIGHT, FORWARD, Schedule

Place = tuple[int, int]
"""A rank, and the position of an action in its list."""


def producers(schedule: Schedule) -> list[list[Place]]:
    """For each rank and action, the place of the action that makes its input.

    A forward needs the forward of the stage before, a backward (whole, or the input half) the backward of the stage
    after. Where nothing of another stage is needed the position is -1; where nothing makes what is needed it lies
    behind the last action. What an action needs of its own stage is on the same rank and left out.
    """
    stages, micro_batches, owner = schedule.stages, schedule.micro_batches, schedule.stage_to_rank
    beyond = max(map(len, schedule.actions), default=0)
    forward, backward = ([[beyond] * micro_batches for _ in range(stages)] for _ in range(2))
    for actions in schedule.actions:
        for position, (kind, stage, micro_batch) in enumerate(actions):
            if kind is FORWARD:
                forward[stage][micro_batch] = position
            elif kind is not BACKWARD_WEIGHT:
                backward[stage][micro_batch] = position
    needed = []
    for rank, actions in enumerate(schedule.actions):
        nothing = (rank, -1)
        places: list[Place] = []
        for kind, stage, micro_batch in actions:
            if kind is FORWARD and stage > 0:
                places.append((owner[stage - 1], forward[stage - 1][micro_batch]))
            elif kind is not FORWARD and kind is not BACKWARD_WEIGHT and stage < stages - 1:
                places.append((owner[stage + 1], backward[stage + 1][micro_batch]))
            else:
                places.append(nothing)
        needed.append(places)
    return needed
