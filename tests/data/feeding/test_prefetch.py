from __future__ import annotations

import gc
import threading

import pytest

from stoker.data.feeding.prefetch import Prefetch

SOON = 30.0


def test_items_come_in_order_and_then_it_ends() -> None:
    items = Prefetch(lambda key: key * key, range(50))
    assert list(items) == [key * key for key in range(50)]
    assert next(items, None) is None


def test_an_error_surfaces_where_its_item_is_asked_for() -> None:
    def make(key: int) -> int:
        if key == 2:
            raise ValueError("the third")
        return key

    items = Prefetch(make, range(5))
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(items)
    assert next(items, None) is None


def test_how_many_lie_ready_is_told_before_one_is_taken() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def make(key: int) -> int:
        if key == 2:
            reached.set()
            assert go_on.wait(SOON)
        return key

    with Prefetch(make, range(3), depth=2) as items:
        assert next(items) == 0
        assert reached.wait(SOON)
        assert items.waiting == 1
        assert next(items) == 1
        assert items.waiting == 0
        go_on.set()
        assert next(items) == 2


def test_no_more_items_are_made_ahead_than_fit() -> None:
    made: list[int] = []
    third = threading.Event()

    def make(key: int) -> int:
        made.append(key)
        if key == 3:
            third.set()
        return key

    with Prefetch(make, range(100), depth=3) as items:
        assert next(items) == 0
        assert third.wait(SOON)
    assert made == [0, 1, 2, 3]


def test_closing_ends_a_thread_that_waits_for_room() -> None:
    items = Prefetch(lambda key: key, range(10**9), depth=1)
    next(items)
    thread = items._thread
    items.close()
    assert not thread.is_alive()
    assert next(items, None) is None
    items.close()


def test_dropping_the_iterator_ends_its_thread() -> None:
    items = Prefetch(lambda key: key, range(10**9), depth=1)
    next(items)
    thread = items._thread
    del items
    gc.collect()
    thread.join(SOON)
    assert not thread.is_alive()


def test_the_thread_never_keeps_a_process_alive() -> None:
    with Prefetch(lambda key: key, range(10)) as items:
        assert items._thread.daemon
