"""A leader that was stopped or cut off is replaced, and follows when it is there again: nothing runs twice."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recovery import lease as leases
from stoker.recovery.lease import Lease
from stoker.recovery.nodes import Notice, write_notice
from stoker.recovery.tenure import Replaced, Tenure, is_in_place, require_in_place, sign_of, taken_over
from stoker.run_directory import RunDirectory


def notice(node: str, token: str) -> Notice:
    return Notice("job", node, "f" * 32, "127.0.0.1", 4711, token, begun=True)


def test_a_leader_shows_that_it_is_there_and_is_not_taken_over_then(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.held("train") as lock:
        write_notice(run, notice("a", "first"))
        before = sign_of(run)
        os.utime(lock, (1, 1))  # long ago
        seen = sign_of(run)
        assert seen != before
        Tenure(run, "first", lock).confirm()
        assert sign_of(run) != seen
        with pytest.raises(BadInput, match="in use after all"), taken_over(run, seen):
            pass
        assert is_in_place(run, lock)


def test_a_leader_that_was_replaced_finds_out_and_its_lock_holds_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.held("train") as old:
        write_notice(run, notice("a", "first"))
        tenure = Tenure(run, "first", old)
        tenure.confirm()
        with taken_over(run, sign_of(run)) as new:
            assert is_in_place(run, new)
            assert not is_in_place(run, old)
            write_notice(run, notice("b", "second"))
            with pytest.raises(Replaced, match="node b leads"):
                require_in_place(run, old)
            with pytest.raises(Replaced, match="node b leads"):
                Tenure(run, "first", old).confirm()
            Tenure(run, "second", new).confirm()
            shown = sign_of(run)
            os.utime(old)
            assert sign_of(run) == shown, "what the old leader shows nobody sees"
            with pytest.raises(BadInput, match="is in use: process"), run.held("train"):
                pass
        with run.held("train") as free:
            assert is_in_place(run, free)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leader.json", "lock", "lock.taking-over"]


def test_of_two_that_take_over_one_does(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.held("train"):
        seen = sign_of(run)
        with taken_over(run, seen), pytest.raises(BadInput, match="in use after all"), taken_over(run, seen):
            pass


def test_ranks_wait_while_nobody_renews_their_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.05)
    lease = Lease()
    lease.wait()
    time.sleep(0.1)
    waiting = threading.Thread(target=lease.wait)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60)
    lease.renew()
    waiting.join(10)
    assert not waiting.is_alive()
