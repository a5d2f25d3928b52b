"""How an attempt ended short of the last step, and who is at fault."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker.errors import EXIT_BAD_INPUT, NonFinite, OutOfMemory, StokerError, Terminated
from stoker.recovery.blame import RankView, arrived, find_culprits
from stoker.recovery.crew import Sight
from stoker.recovery.processes import Message, as_error

_SAVED = "Nothing saved is lost: the same command goes on from the newest checkpoint."


@dataclass(frozen=True)
class Failure:
    """One failure of a run."""

    kind: str
    """`killed`, `error`, `hang`, `node_lost`, `out_of_memory`, `refused`, `non_finite` or `terminated`."""
    ranks: tuple[int, ...]
    """At fault; none when nobody knows."""
    message: str
    error: StokerError
    """What the run ends with when it is not tried again."""
    evidence: dict[str, Any] = field(default_factory=dict)
    said_by_rank: bool = False
    """A rank said so of itself; otherwise it was found out from outside."""
    noticed: float = field(default_factory=time.time)
    """Unix time; who is at fault may have taken a second longer to find out."""

    @property
    def is_final(self) -> bool:
        """Whether another attempt could not end otherwise: bad input, a request to stop, and what Stoker itself
        refuses to go on with, such as a disk without room for the last checkpoint."""
        final = isinstance(self.error, NonFinite | Terminated) or self.error.exit_code == EXIT_BAD_INPUT
        return final or self.kind == "refused"

    def as_detail(self) -> dict[str, Any]:
        """For the record."""
        return {"kind": self.kind, "ranks": list(self.ranks), "message": self.message, **self.evidence}


def first_failure(sights: Mapping[int, Sight]) -> Failure | None:
    """What ended the attempt; None when every rank did its last step.

    A rank that was killed says nothing and is the cause; the others only lost their peer. After that an error
    Stoker understands says more than a broken connection, and an earlier one more than a later.
    """
    if (killed := killed_rank(sights)) is not None:
        return _as_killed(killed, -(sights[killed].exit_code or 0), sights[killed].memory_ran_out)
    failures = sorted(
        (sight.failure for sight in sights.values() if sight.failure),
        key=lambda failure: (not failure["understood"], failure["time"]),
    )
    if failures:
        return _as_said(failures[0])
    for rank, sight in sights.items():
        if sight.exit_code:
            said = f"rank {rank} ended with exit code {sight.exit_code} and no message"
            return Failure("error", (rank,), said, StokerError(said), {"exit_code": sight.exit_code})
    return None


def killed_rank(sights: Mapping[int, Sight]) -> int | None:
    """The first rank that was killed and has said nothing of its own."""
    found = (rank for rank, sight in sights.items() if (sight.exit_code or 0) < 0 and sight.failure is None)
    return next(found, None)


def lost_node(node: str, ranks: tuple[int, ...], how: str, here: Sequence[str]) -> Failure:
    """A whole node cannot be reached any more; `how` says since when, and the nodes `here` can be."""
    with_ranks = f", with ranks {', '.join(map(str, ranks))}" if ranks else ""
    others = f"; {', '.join(here)} can be reached" if here else ""
    said = f"node {node} was lost{with_ranks}: {how}{others}."
    evidence = {"node": node, "how": how, "arrived": list(here), "missing": [node]}
    return Failure("node_lost", ranks, said, StokerError(f"{said} {_SAVED}"), evidence)


def hang(views: Mapping[int, RankView], silent_seconds: float, limit_seconds: float, noticed: float) -> Failure:
    """Some rank keeps the others waiting: which one, where it is, and who has arrived where it has not."""
    blame = find_culprits([views[rank] for rank in sorted(views)])
    evidence: dict[str, Any] = {
        "why": blame.reason,
        "silent_seconds": silent_seconds,
        "limit_seconds": limit_seconds,
        "stacks": {str(rank): list(view.stack) for rank, view in views.items()},
        "states": {str(rank): view.state for rank, view in views.items()},
    }
    ranks = ", ".join(map(str, blame.ranks))
    said = f"rank {ranks} hangs: {blame.reason}" if blame.ranks else f"the ranks hang: {blame.reason}"
    if blame.ranks:
        evidence["call_site"] = views[blame.ranks[0]].call_site
        said += f"; it is in {evidence['call_site']}"
        meeting = arrived([views[rank] for rank in sorted(views)], blame.ranks[0])
        if meeting is not None:
            collective, entered, missing = meeting
            evidence.update(collective=collective, arrived=entered, missing=missing)
            said += f"; in {collective} arrived {entered}, missing {missing}"
    return Failure("hang", blame.ranks, f"{said}.", StokerError(f"{said}."), evidence, noticed=noticed)


def _as_killed(rank: int, number: int, memory_ran_out: bool | None) -> Failure:
    name = signal.Signals(number).name
    evidence = {"signal": name}
    if memory_ran_out:
        said = f"rank {rank} was killed by the system, which ran out of memory."
        return Failure("out_of_memory", (rank,), said, OutOfMemory(f"{said} {_SAVED}"), evidence, said_by_rank=True)
    hint = ""
    if name == "SIGKILL":
        unknown = memory_ran_out is None
        often = "; often that is the system running out of memory"
        hint = often if unknown else " from outside (the system did not run out of memory)"
    said = f"rank {rank} was killed by {name}{hint}."
    return Failure("killed", (rank,), said, StokerError(f"{said} {_SAVED}"), evidence)


def _as_said(failure: Message) -> Failure:
    error = as_error(failure)
    kinds: dict[type[StokerError], str] = {
        OutOfMemory: "out_of_memory",
        NonFinite: "non_finite",
        Terminated: "terminated",
    }
    otherwise = "refused" if failure["understood"] else "error"
    kind = next((name for kind, name in kinds.items() if isinstance(error, kind)), otherwise)
    return Failure(kind, (failure["rank"],), failure["message"], error, said_by_rank=True)
