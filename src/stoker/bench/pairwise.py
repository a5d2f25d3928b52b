"""Pairwise exchange: an all-to-all in which at any time every rank changes one block with one other, in place.

Cost of p blocks of n/p bytes each: p·α + (p-1)/p·n·β. Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of
collective communication operations in MPICH", IJHPCA 19(1), section 3.5; here ranks pair up by the sum of their
numbers, so that both have sent what they receive into, for any p.
"""

from __future__ import annotations

from stoker.bench.rounds import Message, Round, pieces, round_of
from stoker.layout.shares import Bounds


def pairwise_all_to_all(rank: int, ranks: int, span: Bounds, segments: int = 1) -> list[Round]:
    """Block q of rank r and block r of rank q change places; blocks are of one length.

    Raises `ValueError` where `span` does not divide into as many blocks as ranks.
    """
    if (span[1] - span[0]) % ranks:
        raise ValueError(
            f"an all-to-all needs blocks of one length, but {span[1] - span[0]} elements are for {ranks}"
        )
    blocks = pieces(span, ranks)
    program = []
    for total in range(ranks):
        peer = (total - rank) % ranks
        block = [] if peer == rank else [Message(peer, *blocks[peer])]
        program.append(round_of(block, block))
    return program
