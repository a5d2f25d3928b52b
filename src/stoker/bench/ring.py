"""Ring: every rank sends to the next and receives from the one before; bytes are the least possible.

Reduce-scatter, then all-gather, of p - 1 steps each. At every step one of p chunks moves on by one rank. A chunk is
cut into k segments, so that a segment is added while the next arrives.

Cost of an all-reduce of n bytes over p ranks: 2(p-1)k rounds of n/(pk) bytes, 2(p-1)k·α + 2(p-1)/p·n·β. No
algorithm sends less than 2(p-1)/p·n from each rank. Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69(2).

Every rank gets the same bits: chunk c is added up on its way from rank c + 1 round to rank c, one addition at a
rank, and then only copied.
"""

from __future__ import annotations

from stoker.bench.rounds import Message, Round, pieces, round_of
from stoker.layout.shares import Bounds


def ring_all_reduce(rank: int, ranks: int, span: Bounds, segments: int) -> list[Round]:
    """The sum of all ranks' `span`, on every rank."""
    return [
        *ring_reduce_scatter(rank, ranks, span, segments),
        *ring_all_gather(rank, ranks, span, segments),
    ]


def ring_reduce_scatter(rank: int, ranks: int, span: Bounds, segments: int) -> list[Round]:
    """Rank c ends with the sum of chunk c; the other chunks are left with parts of sums."""
    return _turns(rank, ranks, span, segments, first=rank - 1, adds=True)


def ring_all_gather(rank: int, ranks: int, span: Bounds, segments: int) -> list[Round]:
    """Rank c begins with chunk c of the whole; all end with the whole."""
    return _turns(rank, ranks, span, segments, first=rank, adds=False)


def _turns(rank: int, ranks: int, span: Bounds, segments: int, first: int, adds: bool) -> list[Round]:
    """`first` is the chunk that this rank sends first; later ones are those it has just received."""
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    chunks = [pieces(part, segments) for part in pieces(span, ranks)]
    return [
        round_of(
            [Message(after, *chunks[(first - step) % ranks][segment])],
            [Message(before, *chunks[(first - step - 1) % ranks][segment], adds)],
        )
        for step in range(ranks - 1)
        for segment in range(segments)
    ]
