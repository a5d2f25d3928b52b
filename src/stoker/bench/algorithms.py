"""The algorithms by name, and how many segments each is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from stoker.bench.halving_doubling import halving_doubling_all_reduce
from stoker.bench.hierarchical import hierarchical_all_reduce
from stoker.bench.pairwise import pairwise_all_to_all
from stoker.bench.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from stoker.bench.rounds import Cost, Program, Round, cost_of
from stoker.bench.tree import tree_all_reduce
from stoker.layout.shares import Bounds

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
LIBRARY = "library"
"""The name that torch.distributed's own collective goes by."""

_Rounds = Callable[[int, int, Bounds, int], list[Round]]
_SEGMENT_BYTES = {"ring": 512 * 1024, "tree": 512 * 1024, "hierarchical": 512 * 1024}
"""About how large the messages of algorithms are that cut what they send into segments."""
_MOST_SEGMENTS = {"ring": 4, "tree": 16, "hierarchical": 4}
_ROUNDS: dict[Operation, dict[str, _Rounds]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "tree": tree_all_reduce,
        "halving_doubling": halving_doubling_all_reduce,
    },
    "all_gather": {"ring": ring_all_gather},
    "reduce_scatter": {"ring": ring_reduce_scatter},
    "all_to_all": {"pairwise": pairwise_all_to_all},
    "p2p": {},
}


@dataclass(frozen=True)
class Topology:
    """How ranks are spread over nodes: neighbouring ranks fill one node after another."""

    ranks: int
    node_size: int
    """Ranks of a node; the last node may have fewer."""

    @property
    def node_sizes(self) -> tuple[int, ...]:
        """Of each node."""
        whole, rest = divmod(self.ranks, self.node_size)
        return (self.node_size,) * whole + ((rest,) if rest else ())

    @property
    def has_levels(self) -> bool:
        """Whether there are several nodes, and some of several ranks."""
        return 1 < self.node_size < self.ranks


def names(operation: Operation, topology: Topology) -> tuple[str, ...]:
    """This project's algorithms for an operation; the hierarchical one where nodes are of several ranks."""
    own = tuple(_ROUNDS[operation])
    return (*own, "hierarchical") if operation == "all_reduce" and topology.has_levels else own


@lru_cache(maxsize=4096)
def program(operation: Operation, name: str, rank: int, topology: Topology, length: int, segments: int) -> Program:
    """What `rank` does with a buffer of `length` elements. Raises `KeyError` for a name that there is not."""
    if topology.ranks == 1:
        return ()
    if name == "hierarchical" and operation == "all_reduce":
        return tuple(hierarchical_all_reduce(rank, topology.node_sizes, (0, length), segments))
    return tuple(_ROUNDS[operation][name](rank, topology.ranks, (0, length), segments))


def segments_for(name: str, ranks: int, size: int) -> int:
    """Into how many segments each part of a buffer of `size` bytes is cut."""
    if name not in _SEGMENT_BYTES:
        return 1
    part = size / (2 if name == "tree" else ranks)
    return max(1, min(_MOST_SEGMENTS[name], round(part / _SEGMENT_BYTES[name])))


@lru_cache(maxsize=4096)
def cost(operation: Operation, name: str, topology: Topology, size: int) -> Cost:
    """Rounds and bytes of an operation on a buffer of `size` bytes, for the α-β model.

    Of the library, which does not say what it does, it is one round of the least bytes that are possible.
    """
    if name == LIBRARY:
        return Cost(1, round(size * least_share(operation, topology.ranks)))
    segments = segments_for(name, topology.ranks, size)
    length = size // topology.ranks * topology.ranks if operation == "all_to_all" else size
    return cost_of([program(operation, name, rank, topology, length, segments) for rank in range(topology.ranks)])


def least_share(operation: Operation, ranks: int) -> float:
    """The least that each rank must send, as a share of its buffer; `size / seconds` times it is bus bandwidth."""
    if operation == "p2p":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
