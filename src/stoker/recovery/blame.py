"""Which rank keeps the others waiting, from what each rank's collectives, stack and process show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupView:
    """How far one rank has come in one process group."""

    members: tuple[int, ...]
    entered: int
    """Number of the last collective of the group that this rank has entered."""
    left: int
    """Number of the last one that it saw complete."""
    operation: str = ""
    """Of the last one entered: `gloo:all_reduce`."""


@dataclass(frozen=True)
class RankView:
    """What is known of one rank of a run that does not move."""

    state: str
    """Of its process: `R` runs, `S` sleeps, `D` waits for a device, `T` is stopped, `Z` is dead, `?` unknown."""
    beats: int
    """How many marks it has left."""
    groups: Mapping[str, GroupView] | None = None
    """By name of the group; None when the rank did not answer."""
    stack: tuple[str, ...] = ()
    """Innermost call first: `all_reduce (distributed_c10d.py:3033)`."""

    @property
    def call_site(self) -> str:
        """The innermost call that is neither torch's nor our own for waiting."""
        files = [frame.partition("(")[2] for frame in self.stack]
        ours = [
            frame
            for frame, file in zip(self.stack, files, strict=True)
            if "torch" not in file and _OWN_WAITING not in file
        ]
        return (ours or self.stack or ("unknown",))[0]

    @property
    def waits(self) -> bool:
        """Whether its stack shows it inside a collective."""
        return bool(self.stack) and any(word in self.stack[0] for word in _WAITING)


_OWN_WAITING = "stoker/parallel/waiting.py"
_WAITING = (
    _OWN_WAITING,
    "distributed_c10d.py",
    "_functional_collectives.py",
    "c10d_logger.py",
    "_collectives.py",
    "_fsdp_param_group.py",
    "_fsdp_collectives.py",
)


@dataclass(frozen=True)
class Blame:
    """Who is at fault, and how it is known."""

    ranks: tuple[int, ...]
    reason: str


def find_culprits(views: Sequence[RankView]) -> Blame:
    """The ranks that keep the others waiting; no rank when nothing tells them apart.

    A stopped or dead process is at fault whatever else there is. Then: who waits in a collective waits for
    those of its group that have not entered it; whoever is waited for and waits for nobody is at fault, nor by its
    stack, which also shows what is counted as no collective: tensors sent from one stage to the next. Then:
    who is not inside a collective while others are; who did not answer; who has left the fewest marks.
    """
    stopped = tuple(number for number, view in enumerate(views) if view.state in "TZX")
    if stopped:
        return Blame(stopped, "its process is stopped" if views[stopped[0]].state == "T" else "its process is dead")
    waits_for = [_waits_for(number, views) for number in range(len(views))]
    awaited = set().union(*waits_for)
    if at_fault := tuple(sorted(number for number in awaited if not waits_for[number])):
        at_fault = tuple(number for number in at_fault if not views[number].waits) or at_fault
        return Blame(at_fault, "the others wait for it in a collective that it has not entered")
    outside = tuple(number for number, view in enumerate(views) if view.stack and not view.waits)
    if 0 < len(outside) < len(views):
        return Blame(outside, "it is outside of any collective while the others wait inside one")
    mute = tuple(number for number, view in enumerate(views) if view.groups is None)
    if 0 < len(mute) < len(views):
        return Blame(mute, "it does not answer, and the others do")
    fewest = min(view.beats for view in views)
    behind = tuple(number for number, view in enumerate(views) if view.beats == fewest)
    if len(behind) < len(views):
        return Blame(behind, "it has come less far in the step than the others")
    return Blame((), "nothing tells the ranks apart; the network between them may be at fault")


def wait_for_network(views: Sequence[RankView]) -> bool:
    """Whether every rank is inside a collective, and those that others wait for are inside one that all of its
    members have entered: then what is slow lies between them, and no rank is at fault."""
    inside = [
        view.state not in "TZX"
        and view.waits
        and view.groups is not None
        and any(group.entered > group.left for group in view.groups.values())
        for view in views
    ]
    return all(inside) and any(not _waits_for(number, views) for number in range(len(views)))


def arrived(views: Sequence[RankView], culprit: int) -> tuple[str, list[int], list[int]] | None:
    """The collective in which others wait for `culprit`: its name, who has entered it and who has not."""
    for view in views:
        for name, group in (view.groups or {}).items():
            if culprit not in group.members or group.entered <= group.left:
                continue
            entered = [rank for rank in group.members if _entered(views[rank], name) >= group.entered]
            if culprit not in entered:
                missing = [rank for rank in group.members if rank not in entered]
                return f"{group.operation} {group.entered} of group {name}", entered, missing
    return None


def _waits_for(number: int, views: Sequence[RankView]) -> set[int]:
    found: set[int] = set()
    for name, group in (views[number].groups or {}).items():
        if group.entered > group.left:
            found |= {rank for rank in group.members if _entered(views[rank], name) < group.entered}
    return found - {number}


def _entered(view: RankView, group: str) -> int:
    """A rank that did not answer has not been seen to enter anything."""
    if view.groups is None or group not in view.groups:
        return -1
    return view.groups[group].entered
