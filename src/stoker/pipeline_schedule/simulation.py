"""How long a schedule takes and how many activations it holds, for given seconds of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.errors import BadInput
from stoker.pipeline_schedule.checking import ScheduleError
from stoker.pipeline_schedule.dependencies import producers
from stoker.pipeline_schedule.schedule import BACKWARD, BACKWARD_WEIGHT, FORWARD, Schedule


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Seconds of one micro-batch in one stage; `backward` is the unsplit one, usually the sum of its halves."""

    forward: float
    backward: float
    backward_input: float
    backward_weight: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When everything happens. `start` and `end` stand action by action beside `Schedule.actions`; in seconds."""

    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]
    busy: tuple[float, ...]  # of each rank
    peak_activations: tuple[int, ...]  # of each rank, in stage activations of one micro-batch

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return max((ends[-1] for ends in self.end if ends), default=0.0)

    @property
    def bubble_fractions(self) -> tuple[float, ...]:
        """Share of the makespan in which each rank does nothing."""
        return tuple(1 - busy / self.makespan if self.makespan else 0.0 for busy in self.busy)

    @property
    def bubble_fraction(self) -> float:
        """Share of all ranks' time in which they do nothing."""
        return 1 - sum(self.busy) / (len(self.busy) * self.makespan) if self.makespan else 0.0

    @property
    def bubble_fraction_within_spans(self) -> float:
        """The bubble as Qi et al. 2023 count it: in the longest span from a rank's first start to its last end.

        It says what remains where ranks need not start a step together.
        """
        longest = max(
            (ends[-1] - starts[0] for starts, ends in zip(self.start, self.end, strict=True)), default=0.0
        )
        return 1 - max(self.busy) / longest if longest else 0.0


def simulate(schedule: Schedule, costs: Sequence[StageSeconds], transfer_seconds: float = 0.0) -> Timeline:
    """Play `schedule` with every rank starting each action as soon as it can.

    `costs` has one entry for each stage. A message takes `transfer_seconds` and occupies neither rank. A forward
    takes hold of one stage activation; the backward lets go of it, when split at its weight half. Raises `BadInput`
    unless there is one cost per stage, `ScheduleError` where the schedule cannot go on.
    """
    if len(costs) != schedule.stages:
        raise BadInput(f"the schedule has {schedule.stages} stages, but costs were given for {len(costs)}")
    seconds = [(cost.forward, cost.backward, cost.backward_input, cost.backward_weight) for cost in costs]
    needed = producers(schedule)
    ends: list[list[float]] = [[] for _ in range(schedule.ranks)]
    starts: list[list[float]] = [[] for _ in range(schedule.ranks)]
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(schedule.actions):
            start, end = starts[rank], ends[rank]
            now = end[-1] if end else 0.0
            for index in range(len(end), len(actions)):
                source, position = needed[rank][index]
                if position >= len(ends[source]):
                    break
                if position >= 0:
                    arrival = ends[source][position] + (transfer_seconds if source != rank else 0.0)
                    now = max(now, arrival)
                kind, stage, _ = actions[index]
                start.append(now)
                now += seconds[stage][kind]
                end.append(now)
                moved = True
    for rank, actions in enumerate(schedule.actions):
        if len(ends[rank]) < len(actions):
            raise ScheduleError(f"rank {rank} waits for ever before {actions[len(ends[rank])]}")
    busy = tuple(sum(seconds[stage][kind] for kind, stage, _ in actions) for actions in schedule.actions)
    return Timeline(tuple(map(tuple, starts)), tuple(map(tuple, ends)), busy, _peak_activations(schedule))


def _peak_activations(schedule: Schedule) -> tuple[int, ...]:
    peaks = []
    for actions in schedule.actions:
        held = peak = 0
        for kind, _, _ in actions:
            if kind is FORWARD:
                held += 1
                peak = max(peak, held)
            elif kind in (BACKWARD, BACKWARD_WEIGHT):
                held -= 1
        peaks.append(peak)
    return tuple(peaks)
