"""Tensors on their way between the ranks of one pipeline.

Messages of one lane (from one rank to another, activations or gradients) arrive in the order in which
they are sent, and lanes do not wait for one another. Over gloo a lane has a tag. Over NCCL, which knows
no tags and does one thing after another on a communicator, it has a communicator on which neither
of its two ranks does anything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from stoker.layout.ranks import along
from stoker.parallel.waiting import complete
from stoker.parallel.world import World
from stoker.pipeline_schedule import Lane, Message, Payload

_FIRST_TAG = 7100
_MOST_SENDS = 2
"""Sends of a lane that may be under way: one that arrives, and one that waits for its receive."""

Colour = tuple[Payload, bool, int]


class Lanes:
    """What this rank sends and receives. Ranks are places along `pp`, as in a schedule."""

    def __init__(self, world: World, stage_to_rank: Sequence[int]) -> None:
        """Collective over all ranks of the world."""
        self._device, self.at = world.device, world.coordinate.pp
        self._ranks = along(world.layout, world.rank, ("pp",))
        group = world.along("pp")
        assert group is not None, "a pipeline of one rank has nobody to send to"
        self._group, self._groups = group, dict[Colour, dist.ProcessGroup]()
        if world.device.type == "cuda":
            self._groups = groups_by_colour(world, stage_to_rank)
        self._sends: dict[Lane, deque[tuple[dist.Work, Tensor]]] = {}
        if self._groups:
            self.meet(stage_to_rank)

    def meet(self, stage_to_rank: Sequence[int]) -> None:
        """Use every lane once, in one order on all ranks.

        At the first use of a communicator NCCL waits for the other rank, which in a step may wait for this one.
        """
        for lane in sorted(lanes_of(stage_to_rank)):
            if lane.source == self.at:
                self.send(lane, torch.zeros(1, device=self._device))
                self.finish()
            elif lane.destination == self.at:
                self.receive(lane, (1,), torch.float32).wait()

    def send(self, lane: Lane, tensor: Tensor) -> None:
        """Send `tensor`, which must not be changed from now on."""
        sends = self._sends.setdefault(lane, deque())
        while len(sends) >= _MOST_SENDS:
            complete(sends.popleft()[0])
        tensor = tensor.contiguous()
        if tensor.numel():
            group, tag = self._way(lane)
            work = dist.isend(tensor, self._ranks[lane.destination], group=group, tag=tag)
            assert work is not None
            sends.append((work, tensor))

    def receive(self, lane: Lane, shape: tuple[int, ...], dtype: torch.dtype) -> Arrival:
        """Post a receive for the next tensor of `lane`."""
        tensor = torch.empty(shape, dtype=dtype, device=self._device)
        if not tensor.numel():
            return Arrival(tensor, None)
        group, tag = self._way(lane)
        return Arrival(tensor, dist.irecv(tensor, self._ranks[lane.source], group=group, tag=tag))

    def finish(self) -> None:
        """Wait until all that was sent has been taken."""
        for sends in self._sends.values():
            while sends:
                complete(sends.popleft()[0])

    def _way(self, lane: Lane) -> tuple[dist.ProcessGroup, int]:
        return self._groups.get(colour_of(lane), self._group), _FIRST_TAG + lane.payload


class Arrival:
    """A tensor that is, or will be, received."""

    def __init__(self, tensor: Tensor, work: dist.Work | None) -> None:
        self._tensor, self._work = tensor, work

    def wait(self) -> Tensor:
        """The tensor, once it is here. Raises when it has not come within the group's timeout."""
        if self._work is not None:
            complete(self._work)
            self._work = None
        return self._tensor


class Inbox:
    """The messages of one lane in their order, so many receives of which are posted at a time."""

    def __init__(self, messages: Iterable[Message], ahead: int, receive: Callable[[Message], Arrival]) -> None:
        self._to_post, self._receive = deque(messages), receive
        self._posted: deque[tuple[Message, Arrival]] = deque()
        for _ in range(ahead):
            self.post()

    def take(self, message: Message) -> Tensor:
        """The tensor of `message`, which is the next one."""
        expected, arrival = self._posted.popleft()
        assert expected == message, f"{message} is taken, but {expected} is the next to arrive"
        return arrival.wait()

    def post(self) -> None:
        """Post one more receive, if one is to come."""
        if self._to_post:
            message = self._to_post.popleft()
            self._posted.append((message, self._receive(message)))


def lanes_of(stage_to_rank: Sequence[int]) -> set[Lane]:
    """The lanes that stages on these ranks need."""
    found = set()
    for source, destination in pairwise(stage_to_rank):
        if source != destination:
            found.add(Lane(source, destination, Payload.ACTIVATION))
            found.add(Lane(destination, source, Payload.GRADIENT))
    return found


def groups_by_colour(world: World, stage_to_rank: Sequence[int]) -> dict[Colour, dist.ProcessGroup]:
    """A group of this rank's pipeline for each colour of its lanes.

    Every rank takes part in making all pipelines' groups: NCCL makes a communicator by splitting the world's.
    """
    found = {}
    layout = world.layout
    pipelines = sorted({along(layout, rank, ("pp",)) for rank in range(layout.world_size)})
    for colour in sorted({colour_of(lane) for lane in lanes_of(stage_to_rank)}):
        for ranks in pipelines:
            group = dist.new_group(list(ranks), timeout=world.timeout)
            if world.rank in ranks:
                found[colour] = group
    return found


def colour_of(lane: Lane) -> Colour:
    """Lanes of one colour have no rank in common, so that they can share a group.

    Stages that follow one another are on neighbouring ranks: one rank's sends and receives in one
    direction have sources of different parity. From the last rank back to the first there is one lane.
    """
    return lane.payload, lane.source < lane.destination, lane.source % 2
