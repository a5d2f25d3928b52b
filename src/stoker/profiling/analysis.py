"""From the traces of all ranks to one picture: where the time goes, per rank and over all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.profiling.account import CATEGORIES, COMPUTE, StepAccount, account_of, work_of
from stoker.profiling.collectives import Meeting, dimension_of, entries_of, meetings, with_groups
from stoker.profiling.intervals import of_pairs
from stoker.profiling.memory import MemoryPeak, peak_of
from stoker.profiling.merging import NamedTrace
from stoker.profiling.operators import Totals
from stoker.profiling.recording import read_facts, trace_file
from stoker.profiling.trace import RankTrace, Transfer, read_trace


@dataclass(frozen=True)
class Sent:
    """Collectives of one kind along one dimension, on one rank in one step."""

    kind: str
    dimension: str
    count: float
    bytes: float
    """Given by this rank, of all of them."""
    exposed: float
    """Seconds of them that this rank did nothing else."""


@dataclass(frozen=True)
class RankTable:
    """One rank's profiled steps."""

    rank: int
    name: str
    wall_nanoseconds: int
    """Of all profiled steps."""
    nanoseconds: dict[str, int]
    """By category; together `wall_nanoseconds`."""
    steps: int
    compute: dict[str, float]
    """Seconds of a step by family, on average."""
    sent: tuple[Sent, ...]
    waiting: float
    """Exposed seconds in which nothing that the trace knows was on its way."""
    communication: float
    overlapped: float
    repeated: float
    late: float
    """Seconds of a step that this rank waited for others that had not come yet."""
    exposed: dict[str, float]
    """Seconds of a step by dimension."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of a step, by category."""
        return {name: value / self.steps / 1e9 for name, value in self.nanoseconds.items()}

    @property
    def wall(self) -> float:
        """Seconds of a step."""
        return self.wall_nanoseconds / self.steps / 1e9


@dataclass
class Picture:
    """What all ranks did in the profiled steps."""

    ranks: list[RankTable] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    peak: MemoryPeak | None = None
    """Of the rank whose memory went highest."""
    last: dict[int, float] = field(default_factory=dict)
    """How often each rank came last to a collective, as a share of all that it took part in."""
    met: list[Meeting] = field(default_factory=list)
    traces: list[NamedTrace] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    saw_device: bool = True
    """False: there is an accelerator, and the profiler saw nothing of it."""

    def mean(self) -> dict[str, float]:
        """Seconds of a step by category, the mean over ranks."""
        return {name: sum(one.seconds[name] for one in self.ranks) / len(self.ranks) for name in CATEGORIES}

    @property
    def wall(self) -> float:
        """Seconds of a step, the mean over ranks."""
        return sum(one.wall for one in self.ranks) / len(self.ranks)

    @property
    def busiest(self) -> RankTable:
        """The rank that computes longest."""
        return max(self.ranks, key=lambda one: one.nanoseconds[COMPUTE])


def name_of(layout: Layout, rank: int) -> str:
    """Such as `rank 3 · dp 1 tp 0 pp 1`."""
    at = layout.coordinate(rank)
    places = {"dp": layout.data_parallel_rank(rank), "tp": at.tp, "pp": at.pp}
    if layout.cp > 1:
        places["cp"] = at.cp
    return f"rank {rank} · " + " ".join(f"{name} {place}" for name, place in places.items())


def picture_of(folder: Path, layout: Layout, *, on_device: bool) -> Picture:
    """Read what all ranks left in `folder`. Raises `StokerError` where some rank left nothing."""
    picture, accounts, by_rank = Picture(), {}, {}
    for rank in range(layout.world_size):
        facts, trace = _read(folder, rank, on_device)
        if not trace.steps:
            raise StokerError(f"the trace of rank {rank} holds none of the steps; profile again")
        entries = entries_of(facts["collectives"], facts["groups"], facts["since"] - 10**9)
        if not on_device:
            trace.transfers = sorted(with_groups(trace.transfers, entries), key=lambda one: one.start)
        ahead = round(facts["clock"]["ahead"])
        picture.traces.append(NamedTrace(rank, name_of(layout, rank), ahead, trace))
        picture.facts.append(facts)
        accounts[rank] = account_of(trace, layout)
        picture.totals.add(trace.operators, work_of(trace), accounts[rank])
        by_rank[rank] = [_shifted(one, ahead) for one in _in_steps(trace)]
        peak = peak_of(trace, rank, facts["memory"])
        if peak is not None and (picture.peak is None or peak.above_start > picture.peak.above_start):
            picture.peak = peak
        picture.saw_device = picture.saw_device and (not on_device or bool(trace.kernels))
    picture.met = meetings(by_rank)
    for rank, own in accounts.items():
        picture.ranks.append(_table(rank, layout, picture.traces[rank], own, picture.met))
    picture.last = _shares_of_last(picture.met, layout.world_size)
    return picture


def _read(folder: Path, rank: int, on_device: bool) -> tuple[dict[str, Any], RankTrace]:
    try:
        facts = read_facts(folder, rank)
    except OSError:
        raise StokerError(
            f"rank {rank} left no trace in {folder}. Ranks on several nodes need an output folder that all of them "
            "see: name one with --output"
        ) from None
    return facts, read_trace(trace_file(folder, rank), on_device=on_device)


def _in_steps(trace: RankTrace) -> list[Transfer]:
    windows = [(step.start, step.end) for step in trace.steps.values()]
    return [one for one in trace.transfers if any(start <= one.start < end for start, end in windows)]


def _shifted(transfer: Transfer, ahead: int) -> Transfer:
    return replace(transfer, start=transfer.start - ahead, end=transfer.end - ahead)


def _table(
    rank: int, layout: Layout, named: NamedTrace, accounts: Sequence[StepAccount], met: Sequence[Meeting]
) -> RankTable:
    steps, each = len(accounts), 1 / len(accounts) / 1e9
    compute: dict[str, int] = defaultdict(int)
    exposed: dict[tuple[str, str], int] = defaultdict(int)
    late = 0
    missed = of_pairs(
        (meeting.transfers[rank].start + named.ahead, meeting.last_moment + named.ahead)
        for meeting in met
        if rank in meeting.transfers
    )
    for account in accounts:
        for name, value in account.compute.items():
            compute[name] += value
        for key, value in account.exposed.items():
            exposed[key] += value
        late += (missed & account.exposed_when).total
    counted: dict[tuple[str, str], list[Transfer]] = defaultdict(list)
    for one in _in_steps(named.trace):
        counted[one.kind, dimension_of(layout, one)].append(one)
    by_dimension: dict[str, float] = defaultdict(float)
    for (_, dimension), value in exposed.items():
        by_dimension[dimension or "waiting"] += value * each
    return RankTable(
        rank=rank,
        name=named.name,
        wall_nanoseconds=sum(account.wall for account in accounts),
        nanoseconds={name: sum(account.categories[name] for account in accounts) for name in CATEGORIES},
        steps=steps,
        compute={name: value * each for name, value in sorted(compute.items(), key=lambda item: -item[1])},
        sent=tuple(
            Sent(
                kind,
                dimension,
                len(all_) / steps,
                sum(one.bytes for one in all_) / steps,
                exposed[kind, dimension] * each,
            )
            for (kind, dimension), all_ in sorted(counted.items())
        ),
        waiting=exposed.get(("waiting", ""), 0) * each,
        communication=sum(account.communication for account in accounts) * each,
        overlapped=sum(account.overlapped for account in accounts) * each,
        repeated=sum(account.repeated for account in accounts) * each,
        late=late * each,
        exposed=dict(by_dimension),
    )


def _shares_of_last(met: Sequence[Meeting], ranks: int) -> dict[int, float]:
    took_part: dict[int, int] = defaultdict(int)
    was_last: dict[int, int] = defaultdict(int)
    for meeting in met:
        was_last[meeting.last] += 1
        for rank in meeting.transfers:
            took_part[rank] += 1
    return {rank: was_last[rank] / took_part[rank] for rank in range(ranks) if took_part[rank]}


def mean_of(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over ranks of figures by name; a rank without one counts as 0."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: sum(table.get(name, 0.0) for table in tables) / len(tables) for name in names}
