"""Pipeline bubbles of the executor's own actions, against those of schedules whose actions take the same time."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.distributed import run_ranks

from stoker.layout import Layout
from stoker.model import Decoder, initialise
from stoker.parallel import Inputs, apply, join_world
from stoker.parallel.pipeline import Executed, executor
from stoker.pipeline_schedule import SCHEDULE_NAMES, Kind, ScheduleName, StageSeconds, build_schedule, simulate
from stoker.recipe import Model

_CONFIG = Model(layers=8, hidden_size=256, heads=4, kv_heads=4, ffn_hidden_size=768)
_VOCABULARY, _LENGTH, _BATCH = 256, 128, 2
_EQUAL = StageSeconds(1.0, 2.0, 1.0, 1.0)
SIZES = [(2, 4), (2, 8), (4, 4), (4, 8)]


class Measured(NamedTuple):
    """One schedule at one size. Bubbles are shares of all ranks' time."""

    schedule: ScheduleName
    ranks: int
    micro_batches: int
    equal: float
    """Where forward, gradient of input and gradient of weights take the same time in all stages: the formula's."""
    alike: float
    """Where all stages take the measured stages' mean time for each action."""
    replayed: float
    """With the measured time of each stage's actions, played by the schedule."""
    wall: float | None
    """As it went, where every rank had a core; the best of the steps."""
    stretch: float | None
    """The makespan as it went over the replayed one."""


class Instant(float):
    """A time of the machine's clock, and with it the processor time of this thread."""

    worked: float

    def __new__(cls, seconds: float, worked: float) -> Instant:
        one = super().__new__(cls, seconds)
        one.worked = worked
        return one

    def __reduce__(self) -> tuple[Any, ...]:
        return Instant, (float(self), self.worked)

    @staticmethod
    def now() -> Instant:
        """The time."""
        return Instant(time.perf_counter(), time.thread_time())


def _step(
    rank: int, ranks: int, store: Any, layout: Layout, micro_batches: int, steps: int
) -> list[list[Executed]]:
    # What other processes take from a core is not the pipeline's: actions are timed by their own work as well.
    executor.time = SimpleNamespace(perf_counter=Instant.now)
    with join_world(layout, rank, torch.device("cpu"), store, 200) as world:
        model = Decoder(_CONFIG, _VOCABULARY, _LENGTH)
        initialise(model, _CONFIG, 0)
        parallel = apply(model, world)
        parallel.train()
        tokens = torch.zeros(_BATCH, _LENGTH, dtype=torch.int64)
        places = torch.arange(_LENGTH).expand(_BATCH, _LENGTH).contiguous()
        batch = Inputs(tokens, tokens, places, None, torch.arange(_BATCH))
        traces = []
        for step in range(steps + 1):
            world.barrier()
            parallel.forward_backward([batch] * micro_batches, step=step, seed=0, loss_scale=1e-3)
            parallel.gradients.clear()
            assert parallel.pipeline is not None
            traces.append(parallel.pipeline.trace)
        return traces[1:]


def measure(name: ScheduleName, ranks: int, micro_batches: int, steps: int = 2) -> Measured:
    """Run some steps on real ranks, and replay."""
    layout = Layout(pp=ranks, pipeline_schedule=name)
    traces = run_ranks(_step, ranks, layout, micro_batches, steps, timeout=280)
    schedule = build_schedule(name, ranks, micro_batches)
    costs = _costs(schedule.stages, traces)
    replayed, alike = (simulate(schedule, each).bubble_fraction for each in (costs, [_mean(costs)] * len(costs)))
    makespan = simulate(schedule, costs).makespan
    equal = simulate(schedule, [_EQUAL] * schedule.stages).bubble_fraction
    wall = stretch = None
    if ranks == 2:
        wall = min(_wall(traces, step)[1] for step in range(steps))
        stretch = min(_wall(traces, step)[0] for step in range(steps)) / makespan
    return Measured(name, ranks, micro_batches, equal, alike, replayed, wall, stretch)


def _costs(stages: int, traces: list[list[list[Executed]]]) -> list[StageSeconds]:
    """The median processor time of each stage's actions; none for those that the schedule does not have."""
    seconds: dict[tuple[int, Kind], list[float]] = defaultdict(list)
    for of_rank in traces:
        for trace in of_rank:
            for one in trace:
                seconds[one.stage, one.kind].append(one.end.worked - one.start.worked)
    return [
        StageSeconds(*(statistics.median(seconds[stage, kind] or [0.0]) for kind in Kind))
        for stage in range(stages)
    ]


def _mean(costs: list[StageSeconds]) -> StageSeconds:
    names = ("forward", "backward", "backward_input", "backward_weight")
    return StageSeconds(*(statistics.fmean(getattr(cost, name) for cost in costs) for name in names))


def _wall(traces: list[list[list[Executed]]], step: int) -> tuple[float, float]:
    """Makespan and bubble of a step. The clock is one for all processes of the machine."""
    of_ranks = [of_rank[step] for of_rank in traces]
    makespan = max(one.end for trace in of_ranks for one in trace) - min(
        one.start for trace in of_ranks for one in trace
    )
    busy = sum(one.end - one.start for trace in of_ranks for one in trace)
    return makespan, 1 - busy / (len(of_ranks) * makespan)


def rows() -> list[list[str]]:
    """A line for each schedule and size."""
    table = []
    for ranks, micro_batches in SIZES:
        for name in SCHEDULE_NAMES:
            one = measure(name, ranks, micro_batches)
            line = [
                name,
                str(ranks),
                str(micro_batches),
                f"{one.equal:.3f}",
                f"{one.alike:.3f}",
                f"{one.replayed:.3f}",
            ]
            line += [
                "" if one.wall is None else f"{one.wall:.3f}",
                "" if one.stretch is None else f"{one.stretch:.2f}",
            ]
            table.append(line)
            print(" ".join(line), file=sys.stderr, flush=True)
    return table
