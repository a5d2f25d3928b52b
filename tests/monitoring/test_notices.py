from __future__ import annotations

import base64
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import BadInput, StokerError
from stoker.monitoring.notices import Notifying, hand_over, post, webhook_of
from stoker.monitoring.sending import Outbox
from stoker.recipe import Alerts
from tests.monitoring.watched_run import receiver, wait_for

NOTICE: dict[str, Any] = {
    "run": "small", "rule": "gradient_norm", "state": "firing", "severity": "critical", "again": False,
    "value": float("nan"), "limit": 1e5, "summary": "the gradient norm reached NaN", "step": 7,
}  # fmt: skip
SECRET = "T0P53CR3T"


def test_a_webhook_gets_strict_json() -> None:
    with receiver() as hook:
        post(f"http://127.0.0.1:{hook.port}/x", NOTICE, 5.0)
        assert hook.got == [{**NOTICE, "value": "NaN"}]


def test_name_and_password_of_a_url_are_sent_as_such() -> None:
    with receiver() as hook:
        post(f"http://some%40one:pass@127.0.0.1:{hook.port}/x", NOTICE, 5.0)
        assert hook.authorization == "Basic " + base64.b64encode(b"some@one:pass").decode()


@pytest.mark.parametrize("status", [500, 404, 302])
def test_an_answer_that_is_no_success_is_a_failure_and_no_redirect_is_followed(status: int) -> None:
    with receiver() as hook:
        hook.status = status
        with pytest.raises(StokerError, match=f"answers {status}"):
            post(f"http://127.0.0.1:{hook.port}/x", NOTICE, 5.0)


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@127.0.0.1:1/hook",
        f"http://127.0.0.1:1/{SECRET}?token={SECRET}",
        f"http://127.0.0.1:1/{SECRET}\x00",
    ],
)
def test_no_message_holds_a_secret_of_the_url(url: str) -> None:
    with pytest.raises(StokerError) as caught:
        post(url, NOTICE, 1.0)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "http://127.0.0.1:1 cannot be reached" in str(caught.value)


def test_a_webhook_that_hangs_holds_up_nobody_and_is_told_of_once() -> None:
    lines: list[str] = []
    with receiver() as hook:
        hook.hangs.set()
        alerts = Alerts.model_validate(
            {"webhook": f"http://127.0.0.1:{hook.port}/{SECRET}", "timeout_seconds": 0.2, "log": False}
        )
        notifying = Notifying(alerts, lines.append)
        began = time.monotonic()
        for _ in range(1000):
            notifying.give(NOTICE)
        assert time.monotonic() - began < 1.0
        wait_for(lambda: lines)
        notifying.close(time.monotonic() + 0.3)
    assert len(lines) == 2
    assert "does not keep up" in lines[0]
    assert "did not get every notice" in lines[1]
    assert SECRET not in " ".join(lines)


def test_what_fails_is_tried_again_in_order() -> None:
    tried: list[int] = []
    lines: list[str] = []

    def deliver(item: int) -> None:
        tried.append(item)
        if len(tried) < 3:
            raise OSError("not yet")

    outbox: Outbox[int] = Outbox("it", deliver, most=10, tries=5, say=lines.append, first_pause_seconds=0.01)
    outbox.put(1)
    outbox.put(2)
    assert outbox.close(time.monotonic() + 10)
    assert tried == [1, 1, 1, 2]
    assert lines == ["it fails: not yet", "it works again"]


def test_the_newest_are_kept_when_a_queue_is_full() -> None:
    got: list[int] = []
    go, began = threading.Event(), threading.Event()

    def deliver(item: int) -> None:
        began.set()
        go.wait(10)
        got.append(item)

    outbox: Outbox[int] = Outbox("it", deliver, most=3, say=lambda line: None)
    outbox.put(0)
    assert began.wait(10)
    for item in range(1, 10):
        outbox.put(item)
    go.set()
    assert outbox.close(time.monotonic() + 10)
    assert got == [0, 7, 8, 9]
    assert outbox.given_up == 6


def test_a_command_gets_json_on_stdin_and_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2] + sys.stdin.read())"
    hostile = {**NOTICE, "summary": "$(touch gone); `id`"}
    hand_over([sys.executable, "-c", program, str(tmp_path / "got"), "$HOME;"], hostile, 30.0)
    said = (tmp_path / "got").read_text()
    assert said.startswith("$HOME;")
    assert json.loads(said.removeprefix("$HOME;"))["summary"] == hostile["summary"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "cannot be started"),
        ([sys.executable, "-c", "import sys; sys.exit(3)"], "exit code 3"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "took longer than 0.5 s"),
    ],
)
def test_a_command_that_fails_says_how(command: list[str], words: str) -> None:
    with pytest.raises(StokerError, match=words):
        hand_over(command, NOTICE, 0.5)


def test_a_webhook_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = Alerts.model_validate({"webhook": "$STOKER_TEST_WEBHOOK"})
    monkeypatch.delenv("STOKER_TEST_WEBHOOK", raising=False)
    with pytest.raises(BadInput, match="is not set"):
        webhook_of(alerts)
    monkeypatch.setenv("STOKER_TEST_WEBHOOK", SECRET)
    with pytest.raises(BadInput, match="holds no http") as caught:
        webhook_of(alerts)
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("STOKER_TEST_WEBHOOK", "https://example.org/hook")
    assert webhook_of(alerts) == "https://example.org/hook"
