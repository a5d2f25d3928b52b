"""Being asked to stop is noted, and what was set before is set again."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from stoker.child_processes import held_back
from stoker.training.signals import let_through, listening


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_noted_and_the_former_handler_comes_back(number: signal.Signals) -> None:
    def handler(number: int, frame: object) -> None:
        pass

    before = signal.signal(number, handler)  # the tests themselves may run under nohup
    try:
        with listening() as stop:
            asked = [stop.asked]
            os.kill(os.getpid(), number)
            asked.append(stop.asked)
        assert asked == [False, True]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_a_second_ctrl_c_stops_at_once() -> None:
    with listening() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_nohup_goes_on_without_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_held_back_is_noted_once_it_is_let_through() -> None:
    with listening() as stop:
        with held_back():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # other threads hold nothing back
            assert not stop.asked
            let_through(signal.SIGTERM)
            assert stop.asked
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
