"""Algorithms as data, played in one process: right sums, one order of addition, the costs their pages state."""

from __future__ import annotations

import itertools

import pytest

from stoker.bench.algorithms import Operation, Topology, cost, names, program
from stoker.bench.rounds import Program, cost_of
from stoker.bench.tree import depths, two_trees
from tests.bench.symbolic import play

LENGTHS = (0, 1, 2, 3, 7, 16, 61)
TOPOLOGIES = [Topology(ranks, size) for ranks in range(1, 9) for size in range(1, ranks + 1)]


def _programs(operation: Operation, name: str, topology: Topology, length: int, segments: int = 1) -> list[Program]:
    return [program(operation, name, rank, topology, length, segments) for rank in range(topology.ranks)]


ALL_REDUCES = [
    (topology, name)
    for topology in TOPOLOGIES
    for name in names("all_reduce", topology)
    if name == "hierarchical" or topology.node_size == 1
]


@pytest.mark.parametrize(("topology", "name"), ALL_REDUCES, ids=str)
def test_every_rank_has_the_same_sum_of_all_in_the_same_order(topology: Topology, name: str) -> None:
    for length, segments in itertools.product(LENGTHS, (1, 2, 5)):
        buffers = [[f"{rank}" for _ in range(length)] for rank in range(topology.ranks)]
        programs = _programs("all_reduce", name, topology, length, segments)
        play(programs, buffers, lambda own, other: f"({own}+{other})")
        for buffer in buffers:
            assert buffer == buffers[0]
        for expression in buffers[0]:
            terms = sorted(expression.replace("(", "").replace(")", "").split("+"))
            assert terms == sorted(str(rank) for rank in range(topology.ranks))


@pytest.mark.parametrize("ranks", range(1, 9))
def test_ring_gathers_and_scatters(ranks: int) -> None:
    topology = Topology(ranks, ranks)
    for length, segments in itertools.product(LENGTHS, (1, 3)):
        size = -(-length // ranks)
        buffers = [[{rank} for _ in range(length)] for rank in range(ranks)]
        play(_programs("reduce_scatter", "ring", topology, length, segments), buffers, lambda a, b: a | b)
        for rank in range(ranks):
            assert all(buffers[rank][i] == set(range(ranks)) for i in range(length) if i // size == rank)
        buffers = [[i if i // size == rank else None for i in range(length)] for rank in range(ranks)]
        play(_programs("all_gather", "ring", topology, length, segments), buffers, lambda a, b: None)
        assert all(buffer == list(range(length)) for buffer in buffers)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_pairwise_exchange_transposes_blocks(ranks: int) -> None:
    topology, size = Topology(ranks, ranks), 3
    buffers = [[(rank, i) for i in range(ranks * size)] for rank in range(ranks)]
    play(_programs("all_to_all", "pairwise", topology, ranks * size), buffers, lambda a, b: None)
    for rank, buffer in enumerate(buffers):
        assert buffer == [(i // size, rank * size + i % size) for i in range(ranks * size)]
    if ranks > 1:
        with pytest.raises(ValueError, match="blocks of one length"):
            _programs("all_to_all", "pairwise", topology, ranks * size + 1)


@pytest.mark.parametrize("ranks", range(2, 9))
def test_costs_are_those_of_the_formulas(ranks: int) -> None:
    topology, n = Topology(ranks, ranks), 840 * 8
    for k in (1, 2, 3):
        assert cost_of(_programs("all_reduce", "ring", topology, n, k)) == (
            2 * (ranks - 1) * k,
            2 * (ranks - 1) * n // ranks,
        )
    exponent = ranks.bit_length() - 1
    q = 2**exponent
    fold = 0 if q == ranks else 1
    assert cost_of(_programs("all_reduce", "halving_doubling", topology, n)) == (
        2 * exponent + 2 * fold,
        2 * (q - 1) * n // q + 2 * n * fold,
    )
    depth = max(max(depths(tree)) for tree in two_trees(ranks))
    assert depth <= exponent + 1
    for k in (1, 4, 30):
        found = cost_of(_programs("all_reduce", "tree", topology, n, k))
        assert found.rounds == 2 * depth + k - 1
        assert found.length <= (2 * depth + k - 1) * 2 * n / k
    for size in (s for s in range(2, ranks) if ranks % s == 0):
        nodes = ranks // size
        if nodes & (nodes - 1) == 0:
            found = cost_of(_programs("all_reduce", "hierarchical", Topology(ranks, size), n, 1))
            assert found.rounds == 2 * (size - 1) + 2 * (nodes.bit_length() - 1)
            assert found.length == 2 * (size - 1) * n // size + 2 * (nodes - 1) * n // (nodes * size)


def test_long_trees_send_little_more_than_the_least_possible() -> None:
    for ranks in (4, 8, 16, 64):
        programs = _programs("all_reduce", "tree", Topology(ranks, ranks), 2**16, 256)
        for one in programs:
            assert sum(message.length for turn in one for message in turn.sends) <= 2 * 2**16


@pytest.mark.parametrize("ranks", range(1, 70))
def test_trees_are_binary_and_nobody_is_an_inner_node_twice(ranks: int) -> None:
    inner = []
    for parents in two_trees(ranks):
        children = [sum(parent == rank for parent in parents) for rank in range(ranks)]
        assert max(children) <= 2
        assert parents.count(None) == 1
        assert max(depths(parents)) <= ranks.bit_length()
        inner.append({rank for rank in range(ranks) if children[rank]})
    assert not inner[0] & inner[1]


def test_the_library_is_taken_to_send_the_least_possible() -> None:
    assert cost("all_reduce", "library", Topology(4, 4), 1000) == (1, 1500)
    assert cost("all_to_all", "library", Topology(4, 4), 1000) == (1, 750)
    assert cost("p2p", "library", Topology(2, 2), 1000) == (1, 1000)
