"""Times an operation on real ranks: every algorithm and the library in turns, medians over rounds."""

from __future__ import annotations

import datetime
import math
import os
import socket
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from stoker.bench.algorithms import LIBRARY, cost, least_share, names
from stoker.bench.choice import crossovers
from stoker.bench.fitting import fit, worst_error
from stoker.bench.request import DTYPES, Request
from stoker.bench.results import MeasuredAlgorithm, Measurement, Point
from stoker.bench.trials import Trial, elements, filling, trial
from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.parallel.world import World, choose_device, join_world
from stoker.record.environment import describe_environment

_WARM_UP_CALLS = 2
_SECONDS_AT_A_TIME = 0.02
"""How long calls are repeated between two looks at the clock, so that the barrier does not count."""
_MOST_CALLS = 50

Advance = Callable[[str], None]
"""Told after each round what was measured."""


def measure(
    request: Request,
    rank: int,
    local_rank: int,
    store: dist.Store | None,  # type: ignore[name-defined]
    advance: Advance,
) -> Measurement:
    """Measure as one of `request.topology.ranks` ranks; every rank gets the same. Collective.

    Raises `StokerError` where an algorithm gives a wrong result.
    """
    device = choose_device(request.device, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    layout = Layout(dp_replicate=request.topology.ranks)
    with join_world(layout, rank, device, store, request.timeout_seconds) as world, torch.no_grad():
        points: dict[str, list[Point]] = {}
        for size in request.sizes:
            for name, point in _measure_size(request, size, world, advance).items():
                points.setdefault(name, []).append(point)
        return _conclude(request, points, world)


def rounds_in_all(request: Request) -> int:
    """How often `advance` will be called."""
    return len(request.sizes) * request.rounds


def _measure_size(request: Request, size: int, world: World, advance: Advance) -> dict[str, Point]:
    topology, operation, dtype = request.topology, request.operation, DTYPES[request.dtype]
    group, like = dist.group.WORLD, torch.empty(0, dtype=dtype, device=world.device)
    assert group is not None
    length = elements(operation, size, topology.ranks, dtype)
    trials = [
        trial(operation, name, topology, length, like, group) for name in (*names(operation, topology), LIBRARY)
    ]
    for one in trials:
        _require_right(one, request, size, world)
    calls = [_calls(one, world) for one in trials]
    seconds = torch.zeros(request.rounds, len(trials), dtype=torch.float64)
    for index in range(request.rounds):
        for turn in range(len(trials)):
            at = (index + turn) % len(trials)
            seconds[index, at] = _timed(trials[at], calls[at], world)
        advance(f"{size:,} bytes")
    there_and_back = 2 if operation == "p2p" else 1
    everywhere = seconds.to(world.device)
    dist.all_reduce(everywhere, op=dist.ReduceOp.MAX)
    everywhere = everywhere.cpu() / there_and_back
    moved = length * dtype.itemsize
    return {one.name: _point(request, one.name, moved, everywhere[:, at]) for at, one in enumerate(trials)}


def _require_right(one: Trial, request: Request, size: int, world: World) -> None:
    wrong = torch.tensor(0.0 if one.is_right(filling(world.rank)) else 1.0, device=world.device)
    if world.sum(wrong) > 0:
        raise StokerError(
            f"{one.name} of {request.operation} gave a wrong result for {size:,} bytes of {request.dtype} on "
            f"{int(wrong)} of {request.topology.ranks} ranks"
        )


def _calls(one: Trial, world: World) -> int:
    """How many calls make up one time, agreed upon by all ranks."""
    _timed(one, _WARM_UP_CALLS, world)
    took = max(_timed(one, 1, world), 1e-9)
    return world.agree(min(_MOST_CALLS, math.ceil(_SECONDS_AT_A_TIME / took)))


def _timed(one: Trial, calls: int, world: World) -> float:
    """Seconds of one call on this rank."""
    _synchronise(world.device)
    world.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        one.call()
    _synchronise(world.device)
    return (time.perf_counter() - begun) / calls


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _point(request: Request, name: str, moved: int, seconds: torch.Tensor) -> Point:
    lower, median, upper = torch.quantile(seconds, torch.tensor([0.25, 0.5, 0.75], dtype=seconds.dtype)).tolist()
    rounds, length = cost(request.operation, name, request.topology, moved)
    return Point(
        bytes=moved,
        median_seconds=median,
        lower_seconds=lower,
        upper_seconds=upper,
        bus_bytes_per_second=moved * least_share(request.operation, request.topology.ranks) / median,
        rounds=rounds,
        wire_bytes=length,
    )


def _conclude(request: Request, points: dict[str, list[Point]], world: World) -> Measurement:
    environment = describe_environment(world.device)
    measured = Measurement(
        operation=request.operation,
        ranks=request.topology.ranks,
        node_size=request.topology.node_size,
        backend=dist.get_backend(),
        dtype=request.dtype,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        host=socket.gethostname(),
        machine={
            "device": environment["device"]["name"],
            "processor": environment["processor"]["name"],
            "usable_cores": environment["processor"]["usable_cores"],
            "memory_bytes": environment["memory_bytes"],
            "operating_system": environment["operating_system"],
            "processes_waiting_for_a_core": _load(),
        },
        versions={
            "stoker": environment["stoker"]["version"],
            "torch": str(torch.__version__),
            "python": environment["python"],
        },
        algorithms=tuple(_fitted(request, name, of_name) for name, of_name in points.items()),
        choices=(),
    )
    return measured.model_copy(update={"choices": crossovers(request.topology, measured)})


def _fitted(request: Request, name: str, points: Sequence[Point]) -> MeasuredAlgorithm:
    costs = [cost(request.operation, name, request.topology, point.bytes) for point in points]
    seconds = [point.median_seconds for point in points]
    found = fit(costs, seconds)
    return MeasuredAlgorithm(
        name=name,
        points=tuple(points),
        alpha_seconds=found[0],
        beta_seconds_per_byte=found[1],
        worst_fit=worst_error(costs, seconds, found),
    )


def _load() -> int | None:
    """How many processes wanted a core in the last minute: other work on the machine shows in every time."""
    return round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else None
