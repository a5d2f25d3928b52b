"""Which rank keeps the others waiting."""

from __future__ import annotations

import itertools

import pytest

from stoker.recovery.blame import GroupView, RankView, arrived, find_culprits, wait_for_network

WAITING = ("all_reduce (torch/distributed/distributed_c10d.py:3033)", "World.sum (stoker/parallel/world.py:117)")
COMPUTING = ("Feed._next (stoker/data/feeding/feed.py:88)",)


def group(members: tuple[int, ...], entered: int, left: int) -> GroupView:
    return GroupView(members, entered, left, "gloo:all_reduce")


def waiting(*groups: tuple[str, GroupView], beats: int = 9) -> RankView:
    return RankView("S", beats, dict(groups), WAITING)


@pytest.mark.parametrize("culprit", range(4))
def test_a_stopped_process_is_at_fault_also_inside_a_collective(culprit: int) -> None:
    everyone = (0, 1, 2, 3)
    views = [waiting(("0", group(everyone, 7, 6))) for _ in everyone]
    views[culprit] = RankView("T", 9, None, WAITING)
    blame = find_culprits(views)
    assert blame.ranks == (culprit,)
    assert "stopped" in blame.reason


@pytest.mark.parametrize("culprit", range(4))
def test_who_has_not_entered_the_collective_of_the_others_is_at_fault(culprit: int) -> None:
    everyone = (0, 1, 2, 3)
    views = [waiting(("0", group(everyone, 7, 6))) for _ in everyone]
    views[culprit] = RankView("S", 8, {"0": group(everyone, 6, 6)}, COMPUTING)
    blame = find_culprits(views)
    assert blame.ranks == (culprit,)
    assert views[culprit].call_site == COMPUTING[0]
    meeting = arrived(views, culprit)
    assert meeting == ("gloo:all_reduce 7 of group 0", [r for r in everyone if r != culprit], [culprit])


@pytest.mark.parametrize("culprit", range(8))
def test_a_chain_of_waiting_ranks_ends_at_the_one_that_waits_for_nobody(culprit: int) -> None:
    """tp=2 within dp=4: the culprit's tensor-parallel peer waits for it, and all others wait for that peer."""
    views = []
    for rank in range(8):
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        column = tuple(range(rank % 2, 8, 2))
        pair_name, column_name = f"pair {pair[0]}", f"column {rank % 2}"
        if rank == culprit:
            views.append(
                RankView("S", 5, {pair_name: group(pair, 3, 3), column_name: group(column, 1, 1)}, COMPUTING)
            )
        elif rank // 2 == culprit // 2:
            views.append(waiting((pair_name, group(pair, 4, 3)), (column_name, group(column, 1, 1))))
        else:
            views.append(waiting((pair_name, group(pair, 5, 5)), (column_name, group(column, 2, 1))))
    assert find_culprits(views).ranks == (culprit,)


def test_a_rank_that_does_not_answer_has_entered_nothing_that_is_known() -> None:
    views = [waiting(("0", group((0, 1, 2), 7, 6))) for _ in range(3)]
    views[1] = RankView("R", 9, None, ("spin (stoker/x.py:1)",))
    assert find_culprits(views).ranks == (1,)


def test_where_messages_are_not_recorded_the_one_outside_of_any_wait_is_at_fault() -> None:
    """Point-to-point messages of a pipeline leave no trace in the flight recorder; stacks do."""
    receiving = RankView("S", 9, {}, ("recv (torch/distributed/distributed_c10d.py:2500)",))
    views = [receiving, RankView("S", 9, {}, COMPUTING), receiving]
    assert find_culprits(views).ranks == (1,)


def test_when_everyone_waits_in_the_same_collective_nobody_is_named() -> None:
    views = [waiting(("0", group((0, 1), 7, 6))) for _ in range(2)]
    blame = find_culprits(views)
    assert blame.ranks == ()
    assert "network" in blame.reason


def test_every_culprit_of_every_pair_is_named() -> None:
    everyone = tuple(range(5))
    for culprits in itertools.combinations(everyone, 2):
        views = [waiting(("0", group(everyone, 7, 6))) for _ in everyone]
        for culprit in culprits:
            views[culprit] = RankView("S", 8, {"0": group(everyone, 6, 6)}, COMPUTING)
        assert find_culprits(views).ranks == culprits


def test_ranks_that_are_all_inside_collectives_wait_for_the_network_and_for_no_rank() -> None:
    both = (0, 1)
    inside = waiting(("0", group(both, 7, 6)))
    assert wait_for_network([inside, inside])
    assert wait_for_network([inside, waiting(("0", group(both, 8, 7)))]), (
        "what the one still waits for has come here"
    )
    outside = RankView("S", 9, {"0": group(both, 6, 6)}, COMPUTING)
    assert not wait_for_network([inside, outside]), "one has not entered"
    lagging = RankView("S", 9, {"0": group(both, 7, 6)}, COMPUTING)
    assert not wait_for_network([inside, lagging]), "its stack says that it has left"
    assert not wait_for_network([inside, RankView("S", 9, None, WAITING)]), "of one nothing is known"
    assert not wait_for_network([inside, RankView("T", 9, {"0": group(both, 7, 6)}, WAITING)]), "one is stopped"
    crossed = [waiting(("0", group(both, 7, 6)), ("1", group(both, 2, 2))), waiting(("1", group(both, 3, 2)))]
    assert not wait_for_network(crossed), "each waits for the other, which no network mends"


@pytest.mark.parametrize("culprit", [0, 1])
def test_who_waits_by_its_stack_for_what_no_group_counts_is_not_at_fault(culprit: int) -> None:
    """pp=2, dp_replicate=2: one hangs in backward, its replica waits for gradients, the next stage for a tensor."""
    waits = ("complete (stoker/parallel/waiting.py:40)", "Lanes.finish (stoker/parallel/pipeline/lanes.py:82)")
    everyone = group((0, 1, 2, 3), 73, 73)
    views = [RankView("S", 9, {"0": everyone}, waits) for _ in range(4)]
    views[2] = waiting(("0", group((0, 1, 2, 3), 74, 73)))
    views[culprit] = RankView("S", 8, {"0": everyone}, ("Injection._do (stoker/recovery/injection.py:96)",))
    assert find_culprits(views).ranks == (culprit,)
    assert views[3].call_site == "Lanes.finish (stoker/parallel/pipeline/lanes.py:82)"
