"""Silent corruption: ranks that should hold the same bits are compared; who is wrong, doing it again shows.

Digests of weights and optimizer state are compared over `dp_replicate`, each with those of the same part: of
experts that are divided over replicas there may be one copy, or one in every second replica. Where they differ, the
run goes back to its last checkpoint, which was compared before it was saved, and does the steps again: whoever now
has another digest than the first time was wrong the first time. With three replicas or more the majority names it.

A wrong weight makes its own rank's gradients wrong, and by their sum everybody's weights a step later. So the
losses that each rank computes alone are kept until replicas are seen to agree: whose are the first to come out
otherwise when the steps are done again holds the wrong weight, and since that step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from stoker.checkpoint.digest import digest_of
from stoker.checkpoint.saving import whole_state
from stoker.checkpoint.state import Part
from stoker.durable_files import write_json
from stoker.parallel import World
from stoker.parallel.placement import Held

_STEPS_KEPT = 10_000
Digests = tuple[tuple[int, int], ...]
"""Of one rank's tensors, in order of name."""


@dataclass(frozen=True)
class Disagreement:
    """Replicas that do not hold the same bits after a step."""

    step: int
    tensors: tuple[str, ...]
    """In which they differ."""
    at_fault: tuple[int, ...]
    """Ranks in the minority of their group; none where there is no majority."""
    digests: Mapping[int, Digests] = field(repr=False)
    """Of every rank."""

    def __str__(self) -> str:
        more = f" and {len(self.tensors) - 3} more" if len(self.tensors) > 3 else ""
        ranks = ", ".join(map(str, self.at_fault)) or "none"
        shown = ", ".join(self.tensors[:3]) + more
        return f"after step {self.step} replicas hold different bits of {shown}; in the minority: {ranks}"


class Replicas:
    """This rank and those that should hold the same bits. Collective: all ranks call the same at the same step."""

    def __init__(self, held: Sequence[Held], optimizer: Optimizer, world: World, suspicion: Path) -> None:
        """`suspicion` is the file that a disagreement is kept in until the steps have been done again."""
        self._held = held
        self._optimizer = optimizer
        self._world = world
        self._group = world.along("dp_replicate")
        self._suspicion = suspicion
        self._kept: dict[str, torch.Tensor] = {}
        """The differing tensors, as they were; forgotten with this process."""
        self._doing_again = False
        self._sums: dict[int, bytes] = {}
        """Of the steps since replicas last agreed, what this rank computed alone."""
        self._other_since = 0
        """The first of them for which that came out otherwise when it was done again; 0 while there is none."""

    @property
    def exist(self) -> bool:
        """Whether there is anything to compare."""
        return self._world.layout.dp_replicate > 1

    def note(self, step: int, own_sums: bytes) -> None:
        """What this rank computed alone in `step`. Not collective."""
        if not self.exist:
            return
        if not self._doing_again or step not in self._sums:
            self._sums[step] = own_sums
            if len(self._sums) > _STEPS_KEPT:  # where replicas are compared seldom, or never
                del self._sums[next(iter(self._sums))]
        elif not self._other_since and self._sums[step] != own_sums:
            self._other_since = step

    def compare(self, step: int) -> Disagreement | None:
        """Compare the state after `step`. None on every rank when all replicas agree."""
        names, own = self._own()
        group = self._group
        assert group is not None, "there is more than one replica"
        everyone = [torch.empty_like(own) for _ in range(group.size())]
        dist.all_gather(everyone, own, group=group)
        differs = torch.tensor([float(any(_differ(other, own).any() for other in everyone))])
        if not float(self._world.sum(differs.to(self._world.device))):
            if not self._doing_again:
                self.forget()
            return None
        return self._describe(step, names, own, everyone)

    def suspect(self, found: Disagreement) -> None:
        """Keep what was found, until the step has been done again."""
        state = whole_state(self._held, self._optimizer)
        own = [name for name in found.tensors if name in state and state[name].tensor.numel()]
        self._kept = {name: state[name].tensor.clone() for name in own}
        self._doing_again = True
        if self._world.is_first:
            digests = {str(rank): of_rank for rank, of_rank in found.digests.items()}
            write_json(self._suspicion, {"step": found.step, "tensors": list(found.tensors), "digests": digests})
        self._world.barrier()

    @property
    def suspected_step(self) -> int | None:
        """The step that is being done again to find out who was wrong."""
        return None if (kept := self._read()) is None else int(kept["step"])

    def who_was_wrong(self) -> dict[str, Any]:
        """For the record: `ranks` whose state after the suspected step, now done again, is another one than the
        first time, and the `first_step` in which that shows (None where unknown). Forgets the suspicion.
        """
        kept = self._read()
        assert kept is not None, "a step is suspected"
        _, own = self._own()
        before = kept["digests"].get(str(self._world.rank))
        changed = before is not None and own[:, 1:].tolist() != before
        changes = self._world.where(changed)
        suspects, since = self.first_to_differ()
        wrong = [rank for rank in changes if rank in suspects] or changes
        if len(wrong) > 1:
            wrong = self._farthest(wrong)
        if self._world.is_first:
            self._suspicion.unlink(missing_ok=True)
        self._world.barrier()
        self.forget()
        return {"ranks": wrong, "first_step": since}

    def watch(self) -> None:
        """The steps that have been noted are done again from here on."""
        self._doing_again = True

    def forget(self) -> None:
        """Replicas agree; what is noted from here on is of steps that nobody doubts."""
        self._kept.clear()
        self._sums.clear()
        self._doing_again, self._other_since = False, 0

    def first_to_differ(self) -> tuple[tuple[int, ...], int | None]:
        """Ranks of the replica whose own losses were the first to come out otherwise, and in which step.

        All of its ranks: where the parts of a model are on several, some see the losses and others hold the weight.
        None where nothing came out otherwise. Collective.
        """
        layout = self._world.layout
        since = torch.zeros(layout.world_size, dtype=torch.float64, device=self._world.device)
        since[self._world.rank] = self._other_since
        known = {rank: int(step) for rank, step in enumerate(self._world.sum(since).tolist()) if step}
        first = min(known.values(), default=None)
        replicas = {layout.coordinate(rank).dp_replicate for rank, step in known.items() if step == first}
        ranks = range(layout.world_size)
        return tuple(rank for rank in ranks if layout.coordinate(rank).dp_replicate in replicas), first

    def _farthest(self, changed: list[int]) -> list[int]:
        """A wrong weight makes everybody's gradients wrong: its own rank's state is farthest from the right one.

        All of them when nothing was kept to compare with, or none stands out.
        """
        state = whole_state(self._held, self._optimizer)
        distances = torch.zeros(self._world.layout.world_size, dtype=torch.float64, device=self._world.device)
        for name, differing in self._where_they_differed(state).items():
            before = self._kept[name].double()
            difference = (state[name].tensor.double() - before)[differing].abs().nan_to_num(torch.inf, torch.inf)
            distances[self._world.rank] = max(distances[self._world.rank], difference.max())
        found = self._world.sum(distances).tolist()
        farthest, second, *_ = sorted((found[rank] for rank in changed), reverse=True)
        return [found.index(farthest)] if farthest > 2 * second else changed

    def _where_they_differed(self, state: Mapping[str, Part]) -> dict[str, torch.Tensor]:
        """By tensor, which elements were not the same in all replicas: elsewhere all have gone astray alike, and
        over many steps that is farther than what was wrong."""
        own = {name: (hash(state[name].box), before.cpu()) for name, before in self._kept.items()}
        everyone: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(everyone, own, group=self._group)
        found = {}
        for name, (part, before) in own.items():
            others = [kept[name][1] for kept in everyone if name in kept and kept[name][0] == part]
            differing = torch.stack([_bits_differ(before, other) for other in others]).any(dim=0)
            if differing.any():
                found[name] = differing.to(self._kept[name].device)
        return found

    def _own(self) -> tuple[list[str], torch.Tensor]:
        """Names of tensors, and for each what tells its part from others, and its digest [tensors, 3]."""
        state = whole_state(self._held, self._optimizer)
        names = sorted(state)
        digests = [
            (hash(state[name].box), *digest_of(state[name].tensor, state[name].box, state[name].shape).as_signed())
            for name in names
        ]
        return names, torch.tensor(digests, dtype=torch.int64, device=self._world.device).view(-1, 3)

    def _describe(
        self, step: int, names: list[str], own: torch.Tensor, everyone: list[torch.Tensor]
    ) -> Disagreement:
        rows = [other.tolist() for other in everyone]
        differing, in_minority = [], False
        for place, (name, (part, *mine)) in enumerate(zip(names, own.tolist(), strict=True)):
            copies = Counter(
                tuple(digest) for other, *digest in (of_rank[place] for of_rank in rows) if other == part
            )
            (usual, times), *others = copies.most_common()
            if others:
                differing.append(name)
                in_minority |= times * 2 > copies.total() and tuple(mine) != usual
        found: list[Any] = [None] * self._world.layout.world_size
        dist.all_gather_object(found, (in_minority, differing, tuple(map(tuple, own[:, 1:].tolist()))))
        return Disagreement(
            step=step,
            tensors=tuple(dict.fromkeys(name for _, tensors, _ in found for name in tensors)),
            at_fault=tuple(rank for rank, (minority, _, _) in enumerate(found) if minority),
            digests={rank: digest for rank, (_, _, digest) in enumerate(found)},
        )

    def _read(self) -> dict[str, Any] | None:
        try:
            kept: dict[str, Any] = json.loads(self._suspicion.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return kept


def _bits_differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Which elements have other bits: a NaN is like itself."""
    return ~((one == other) | (one.isnan() & other.isnan()))


def _differ(other: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Which tensors of two ranks are the same part and have other bits [tensors]."""
    return (other[:, 0] == own[:, 0]) & (other[:, 1:] != own[:, 1:]).any(dim=1)
