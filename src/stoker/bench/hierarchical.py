"""Hierarchical: within a node reduce-scatter, between nodes all-reduce of each part, within a node all-gather.

What goes between nodes is the least possible, and every rank of a node carries its share of it.

Cost of an all-reduce of n bytes over g nodes of s ranks (α, β within a node, α', β' between nodes; between nodes by
halving and doubling, g a power of two): 2(s-1)·α + 2(s-1)/s·n·β + 2·log2(g)·α' + 2(g-1)/g·n/s·β'.
Source: Jia et al. 2018, "Highly scalable deep learning training system with mixed-precision", arXiv:1807.11205,
section 3.3 (hierarchical all-reduce); Cho et al. 2019, "BlueConnect", MLSys 2019.

Every rank gets the same bits: each element is added up once in each node, at one rank, then between the nodes in an
order that gives all the same bits, and then only copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from stoker.bench.halving_doubling import halving_doubling_all_reduce
from stoker.bench.ring import ring_all_gather, ring_reduce_scatter
from stoker.bench.rounds import Round, pieces, renamed, side_by_side
from stoker.layout.shares import Bounds


def hierarchical_all_reduce(rank: int, node_sizes: Sequence[int], span: Bounds, segments: int) -> list[Round]:
    """The sum of all ranks' `span`, on every rank; neighbouring ranks are on one node, nodes may differ in size."""
    starts = [0, *accumulate(node_sizes)]
    nodes = [range(first, last) for first, last in pairwise(starts)]
    node = next(members for members in nodes if rank in members)
    longest = (max(node_sizes) - 1) * segments
    within = rank - node[0], len(node), span, segments
    return [
        *_filled(renamed(ring_reduce_scatter(*within), node), longest),
        *_between(rank, nodes, span),
        *_filled(renamed(ring_all_gather(*within), node), longest),
    ]


def _between(rank: int, nodes: Sequence[range], span: Bounds) -> list[Round]:
    """All-reduce of each stretch that one rank of each node has the node's sum of, all at once."""
    held = [pieces(span, len(node)) for node in nodes]
    ends = sorted({end for of_node in held for bounds in of_node for end in bounds})
    programs = []
    for stretch in pairwise(ends):
        owners = [
            next(node[i] for i, (first, last) in enumerate(of_node) if first <= stretch[0] and stretch[1] <= last)
            for node, of_node in zip(nodes, held, strict=True)
        ]
        if rank in owners:
            place = owners.index(rank)
            programs.append(renamed(halving_doubling_all_reduce(place, len(owners), stretch), owners))
    # A rank that has nothing goes through as many rounds.
    length = len(halving_doubling_all_reduce(0, len(nodes), span))
    return _filled(side_by_side(programs), length)


def _filled(program: list[Round], length: int) -> list[Round]:
    return program + [Round()] * (length - len(program))
