"""What ranks on several nodes go on from: the newest set of copies in memory, brought to where it is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from stoker.checkpoint import Place
from stoker.checkpoint.manifest import step_folders, step_of
from stoker.checkpoint.snapshots import Snapshot, complete_sets
from stoker.child_processes import die_with_parent
from stoker.recipe import Recipe
from stoker.recovery.node_copies import NodeCopies, Parcel
from stoker.recovery.processes import Address
from stoker.recovery.remote_crew import RemoteCrew
from stoker.training.rank import Copies

_INVENTORY_SECONDS = 60.0
_FETCH_SECONDS = 1800.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Holder:
    """A node that may have copies: this one (`here`) or another (`there`)."""

    node: str
    courier: Address | None
    here: NodeCopies | None
    there: RemoteCrew | None


def choose(
    checkpoints: Place,
    recipe: Recipe,
    holders: Sequence[Holder],
    ranks: Mapping[str, Sequence[int]],
    furthest: int | None,
    idle: Callable[[], None],
) -> Copies | None:
    """The newest complete set of copies, with every node having what its `ranks` need; an empty one: the disk.

    None when something could not be fetched, as when a node is lost meanwhile. A copy of a step after
    `furthest`, the last that any rank has completed, is of a past that was gone back on. `idle` is called while
    nodes are waited for.
    """
    for holder in holders:  # what is under way now is of no use
        _tell_round(holder)
    found = _ask_all(holders, "inventory", [()] * len(holders), _INVENTORY_SECONDS, idle)
    copies = [
        (holder, one)
        for holder, inventory in zip(holders, found, strict=True)
        for one in inventory or ()
        if furthest is None or one.step <= furthest
    ]
    sets = complete_sets(one for _, one in copies)
    on_disk = _newest_saved(checkpoints, idle)
    if not sets or sets[0][0].step < on_disk:
        return Copies()
    chosen = Copies(sets[0][0].step, sets[0][0].note.session)
    of_set = [
        (holder, one) for holder, one in copies if (one.step, one.note.session) == (chosen.step, chosen.session)
    ]
    parcels = [parcels_for(holder.node, ranks.get(holder.node, ()), of_set, recipe) for holder in holders]
    fetched = _ask_all(holders, "fetch", [(one,) for one in parcels], _FETCH_SECONDS, idle)
    came = [one for one, holder in zip(fetched, holders, strict=True) if ranks.get(holder.node)]
    return chosen if all(came) else None


def parcels_for(
    node: str, ranks: Sequence[int], copies: Sequence[tuple[Holder, Snapshot]], recipe: Recipe
) -> list[Parcel]:
    """What `node` has to fetch of a set of `copies` so that its `ranks` can load it.

    In the layout that the set was made in a rank reads nothing but its own copy, and of the others there need be
    an outline only. In another layout, or when a rank's own copy is lost and only others hold the same, a node
    needs enough copies to hold every element.
    """
    if not ranks:
        return []
    by_rank: dict[int, tuple[Holder, Snapshot]] = {}
    for holder, one in copies:
        if one.note.rank not in by_rank or holder.node == node:
            by_rank[one.note.rank] = (holder, one)
    layout = recipe.layout.model_dump(mode="json")
    same = all(one.note.progress.get("layout") == layout for _, one in by_rank.values())
    own_only = same and set(ranks) <= set(by_rank)
    whole = set(ranks) if own_only else covering([one for _, one in by_rank.values()])
    return [
        Parcel(rank, holder.courier, str(one.file), rank in whole)
        for rank, (holder, one) in sorted(by_rank.items())
        if (own_only or rank in whole) and holder.node != node and holder.courier is not None
    ]


def covering(copies: Sequence[Snapshot]) -> set[int]:
    """Ranks whose copies together hold all that `copies` hold."""
    seen: set[Any] = set()
    found = set()
    for one in sorted(copies, key=lambda one: one.note.rank):
        held = {(entry.name, entry.box) for entry in one.note.file.pieces}
        if held - seen:
            seen |= held
            found.add(one.note.rank)
    return found


def _newest_saved(checkpoints: Place, idle: Callable[[], None]) -> int:
    """The step of the newest checkpoint, 0 when there is none or nobody answers.

    Asked in a process of its own: what speaks to an object store has threads, and this process forks ranks.
    """
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell_newest, args=(checkpoints, theirs))
    process.start()
    theirs.close()
    until = time.monotonic() + _INVENTORY_SECONDS
    try:
        while not ours.poll(_LOOK_SECONDS):
            if time.monotonic() > until:
                return 0
            idle()
        return int(ours.recv())
    except EOFError:
        return 0
    finally:
        process.kill()
        process.join()
        ours.close()


def _tell_newest(checkpoints: Place, result: Connection) -> None:
    die_with_parent(by_thread=False)
    result.send(max((step_of(folder) or 0 for folder in step_folders(checkpoints)), default=0))


def _tell_round(holder: Holder) -> None:
    if holder.here is not None:
        holder.here.send_to(None)
    elif holder.there is not None:
        holder.there.tell("round", None)


def _ask_all(
    holders: Sequence[Holder],
    word: str,
    arguments: Sequence[tuple[Any, ...]],
    seconds: float,
    idle: Callable[[], None],
) -> list[Any]:
    """Every node's answer, None of a node that is lost or takes too long. They work at the same time."""
    numbers = [
        holder.there.order(word, *given) if holder.there is not None else None
        for holder, given in zip(holders, arguments, strict=True)
    ]
    for holder, given in zip(holders, arguments, strict=True):
        if holder.here is not None and word == "fetch":
            holder.here.fetch(*given)
    answers: list[Any] = [None] * len(holders)
    until = time.monotonic() + seconds
    waiting = set(range(len(holders)))
    while waiting and time.monotonic() < until:
        for place in sorted(waiting):
            holder, number = holders[place], numbers[place]
            if holder.here is not None:
                answers[place] = holder.here.inventory() if word == "inventory" else holder.here.fetched()
            elif holder.there is not None and number is not None:
                answers[place] = holder.there.answer(number)
                if answers[place] is None and holder.there.is_lost:
                    waiting.discard(place)
            if answers[place] is not None:
                waiting.discard(place)
        if waiting:
            idle()
            time.sleep(_LOOK_SECONDS)
    return answers
