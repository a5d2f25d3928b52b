"""The words of a pipeline schedule: an action, and the actions of every rank in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What is done with one micro-batch in one stage."""

    FORWARD = 0
    BACKWARD = 1  # both halves at once
    BACKWARD_INPUT = 2  # the gradient that the stage before waits for
    BACKWARD_WEIGHT = 3  # the gradient of the stage's own weights, which nobody waits for


FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = Kind


class Action(NamedTuple):
    """One kind of work for one micro-batch in one stage; stages count from the embedding on."""

    kind: Kind
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind.name} of stage {self.stage}, micro-batch {self.micro_batch}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What every rank does, in order."""

    name: str
    ranks: int
    stages_per_rank: int
    micro_batches: int
    stage_to_rank: tuple[int, ...]
    actions: tuple[tuple[Action, ...], ...]  # of each rank

    @property
    def stages(self) -> int:
        """Number of stages of the whole pipeline."""
        return len(self.stage_to_rank)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that `rank` holds, in execution order."""
        return tuple(stage for stage, owner in enumerate(self.stage_to_rank) if owner == rank)


def loop_placement(ranks: int, stages_per_rank: int) -> tuple[int, ...]:
    """The rank of each stage when stages go round: stage s on rank s mod p."""
    return tuple(range(ranks)) * stages_per_rank


def v_placement(ranks: int) -> tuple[int, ...]:
    """The rank of each stage when stages go there and back: rank r holds stages r and 2p-1-r."""
    return (*range(ranks), *reversed(range(ranks)))
