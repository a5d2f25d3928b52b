"""Recursive halving and doubling: few rounds and few bytes, best where ranks are a power of two.

Reduce-scatter by halves (with the neighbour half of the buffer, two places on a quarter, …), then all-gather the
same way back. Of p ranks that are not a power of two, the first p - 2^⌊log2 p⌋ at odd places hand in their buffer
to the one before and get the result from it.

Cost of an all-reduce of n bytes, q = 2^⌊log2 p⌋: 2·log2(q)·α + 2(q-1)/q·n·β, and 2α + 2n·β more where p is not q.
Source: Rabenseifner 2004, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and
Gropp 2005, "Optimization of collective communication operations in MPICH", IJHPCA 19(1).

Every rank gets the same bits: each element is added up in one order, of which at the last halving one rank is left
with the sum; after that it is only copied.
"""

from __future__ import annotations

from stoker.bench.rounds import Message, Round, round_of
from stoker.layout.shares import Bounds


def halving_doubling_all_reduce(rank: int, ranks: int, span: Bounds, segments: int = 1) -> list[Round]:
    """The sum of all ranks' `span`, on every rank. It is not cut into segments."""
    working = 1 << (ranks.bit_length() - 1)
    extra = ranks - working
    if rank < 2 * extra and rank % 2 == 1:
        idle = [Round()] * (2 * (working.bit_length() - 1))
        return [round_of([Message(rank - 1, *span)], []), *idle, round_of([], [Message(rank - 1, *span)])]

    def of_all(place: int) -> int:
        return 2 * place if place < extra else place + extra

    place = rank // 2 if rank < 2 * extra else rank - extra
    down, up, own = [], [], span
    distance = 1
    while distance < working:
        partner = of_all(place ^ distance)
        middle = (own[0] + own[1] + 1) // 2
        kept, given = ((own[0], middle), (middle, own[1]))
        if place & distance:
            kept, given = given, kept
        down.append(round_of([Message(partner, *given)], [Message(partner, *kept, adds=True)]))
        up.append(round_of([Message(partner, *kept)], [Message(partner, *given)]))
        own, distance = kept, 2 * distance
    program = [*down, *reversed(up)]
    if not extra:
        return program
    partner = rank + 1
    if rank >= 2 * extra:
        return [Round(), *program, Round()]
    return [
        round_of([], [Message(partner, *span, adds=True)]),
        *program,
        round_of([Message(partner, *span)], []),
    ]
