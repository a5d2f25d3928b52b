"""Which group a collective was of, which dimension of the layout that is, and who came to it last."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stoker.layout import DIMENSIONS, Layout
from stoker.profiling.trace import Transfer

MESSAGES = ("send", "recv")
"""Kinds that are between two ranks: only a pipeline has them."""
EVERYBODY = "all ranks"
_WIDTHS = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


@dataclass(frozen=True)
class Entry:
    """A collective as torch's flight recorder noted it when this rank came to it."""

    kind: str
    group: str
    sequence: int
    ranks: tuple[int, ...]
    moment: int
    """Unix time in nanoseconds."""
    shape: tuple[int, ...]
    bytes: int


def entries_of(recorded: str, members: Mapping[str, Sequence[int]], since: int) -> list[Entry]:
    """What the flight recorder holds (its JSON) from `since` on; `members` are the ranks of each group by name."""
    found = []
    for entry in json.loads(recorded).get("entries", []):
        if entry["time_created_ns"] < since:
            continue
        sizes, types = entry.get("input_sizes", []), entry.get("input_dtypes", [])
        group, is_message = entry["process_group"][0], entry["is_p2p"]
        found.append(
            Entry(
                kind=entry["profiling_name"].partition(":")[2].partition(" ")[0],
                group=group,
                sequence=entry["p2p_seq_id" if is_message else "collective_seq_id"],
                ranks=tuple(sorted(members.get(group, ()))),
                moment=entry["time_created_ns"],
                shape=tuple(sizes[0]) if sizes else (),
                bytes=sum(
                    math.prod(size) * _WIDTHS.get(dtype, 1) for size, dtype in zip(sizes, types, strict=False)
                ),
            )
        )
    return sorted(found, key=lambda entry: entry.moment)


def members_of_groups() -> dict[str, list[int]]:
    """The ranks of each process group that this process knows, by the group's name."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as groups

    if not dist.is_initialized():
        return {}
    found: dict[str, list[int]] = {}
    for group, members in groups._world.pg_group_ranks.items():
        name = groups._world.pg_names.get(group) if isinstance(group, dist.ProcessGroup) else None
        if name is not None:
            found[str(name)] = sorted(members)
    return found


def recorded_collectives() -> str:
    """What torch's flight recorder holds of this process, as JSON."""
    from torch._C import _distributed_c10d as native

    text: str | bytes = native._dump_fr_trace_json()  # type: ignore[attr-defined]
    return text if isinstance(text, str) else text.decode()


def with_groups(transfers: Sequence[Transfer], entries: Sequence[Entry]) -> list[Transfer]:
    """`transfers` of a trace that names no groups, with group, number and bytes of the `entries` that they are.

    A background thread serves one group. So threads are given to groups first, by most of what they did, and then
    each collective of a group to its entry, in order.
    """
    votes: dict[Any, Counter[str]] = defaultdict(Counter)
    for transfer, entry in _in_order(transfers, entries):
        votes[transfer.place][entry.group] += 1
    group_of = {place: count.most_common(1)[0][0] for place, count in votes.items()}
    found = {id(transfer): transfer for transfer in transfers}
    by_group: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        # Messages are drawn in the thread that posts them, whatever their group is.
        by_group["" if transfer.kind in MESSAGES else group_of.get(transfer.place, "")].append(transfer)
    for group, own in by_group.items():
        of_group = [entry for entry in entries if (entry.kind in MESSAGES if not group else entry.group == group)]
        for transfer, entry in _in_order(own, of_group):
            found[id(transfer)] = replace(
                transfer, group=entry.group, sequence=entry.sequence, ranks=entry.ranks, bytes=entry.bytes
            )
    return list(found.values())


def _in_order(transfers: Sequence[Transfer], entries: Sequence[Entry]) -> list[tuple[Transfer, Entry]]:
    """Each transfer with the earliest entry of its kind and shape that no earlier one has."""
    waiting: dict[tuple[str, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in reversed(entries):
        waiting[entry.kind, entry.shape].append(entry)
    found = []
    for transfer in sorted(transfers, key=lambda one: one.start):
        left = waiting[transfer.kind, transfer.shape]
        # Those noted long before are of a time when nothing was traced.
        while len(left) > 1 and left[-2].moment <= transfer.start and left[-1].moment < transfer.start - 10**9:
            left.pop()
        if left:
            found.append((transfer, left.pop()))
    return found


def dimension_of(layout: Layout, transfer: Transfer) -> str:
    """Along what of the layout a transfer was: `tp`, `dp_shard`, …; several joined by `+`."""
    if transfer.kind in MESSAGES and layout.pp > 1:
        return "pp"
    if transfer.kind.startswith("all_to_all") and layout.ep > 1:
        return "ep"
    places = [layout.coordinate(rank) for rank in transfer.ranks if rank < layout.world_size]
    moving = [name for name in DIMENSIONS if len({getattr(place, name) for place in places}) > 1]
    if not moving:
        return "unknown"
    sizes = [name for name in DIMENSIONS if getattr(layout, name) > 1]
    return EVERYBODY if moving == sizes and len(moving) > 1 else "+".join(moving)


@dataclass(frozen=True)
class Meeting:
    """One collective, on all ranks of its group."""

    kind: str
    ranks: tuple[int, ...]
    transfers: Mapping[int, Transfer]
    """By rank; times by rank 0's clock."""

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.transfers, key=lambda rank: self.transfers[rank].start)

    @property
    def last_moment(self) -> int:
        """When it came."""
        return self.transfers[self.last].start


def meetings(by_rank: Mapping[int, Sequence[Transfer]]) -> list[Meeting]:
    """The collectives that all ranks of a group took part in, of the transfers of each rank, by rank 0's clock."""
    found: dict[tuple[Any, ...], dict[int, Transfer]] = defaultdict(dict)
    for rank, transfers in by_rank.items():
        numbers: Counter[tuple[Any, ...]] = Counter()
        for transfer in transfers:
            if transfer.kind in MESSAGES or not transfer.ranks:
                continue
            key = (transfer.ranks, transfer.group, transfer.kind)
            number = transfer.sequence if transfer.sequence >= 0 else numbers[key]
            numbers[key] += 1
            found[*key, number].setdefault(rank, transfer)
    return [
        Meeting(key[2], key[0], transfers)
        for key, transfers in found.items()
        if set(transfers) == set(key[0]) and len(transfers) > 1
    ]
