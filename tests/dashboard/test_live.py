"""What is new reaches everybody who looks, from one poller a run; and the command line serves and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stoker.dashboard import WatchedRun, doctor
from stoker.dashboard.doctor import Doctor, counts_of, with_words
from stoker.dashboard.live import Newsroom
from stoker.errors import BadInput
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import append_steps, write_run

pytestmark = pytest.mark.slow


async def until(messages: AsyncIterator[str], name: str) -> dict[str, Any]:
    async for message in messages:
        if message.startswith(f"event: {name}\n"):
            told: dict[str, Any] = json.loads(message.partition("data: ")[2])
            return told
    raise AssertionError("the messages ended")


def test_two_browsers_hear_the_same_news_of_one_poller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (writer,) = write_run(tmp_path, ranks=(0,), steps=5, close=False)
    writer.flush()
    monkeypatch.setattr("stoker.dashboard.live.POLL_SECONDS", 0.05)
    monkeypatch.setattr(Doctor, "ask", lambda self, run: None)

    async def listen() -> None:
        run, newsroom = WatchedRun(RunDirectory(tmp_path)), Newsroom()
        run.refresh()
        browsers = [newsroom.listen([run]) for _ in range(2)]
        assert [(await until(one, "run"))["step"] for one in browsers] == [5, 5]
        waiting = [asyncio.create_task(until(one, "run")) for one in browsers]
        await asyncio.sleep(0.1)
        assert newsroom.polled == 1
        append_steps(writer, 0, 6, 8)
        writer.flush()
        assert [told["step"] for told in await asyncio.gather(*waiting)] == [8, 8]
        for one in browsers:
            await one.aclose()
        assert newsroom.polled == 0
        await newsroom.close()

    asyncio.run(asyncio.wait_for(listen(), 30))
    writer.close()


def test_findings_come_from_a_diagnosis_in_another_process(tmp_path: Path) -> None:
    write_run(tmp_path, steps=100)

    async def ask() -> tuple[dict[str, Any], dict[str, Any]]:
        run, told = WatchedRun(RunDirectory(tmp_path)), asyncio.Event()
        run.refresh()
        doctor = Doctor(lambda changed: told.set())
        before = doctor.of(run)
        doctor.ask(run)
        doctor.ask(run)
        await told.wait()
        await doctor.close()
        return before, doctor.of(run)

    before, after = asyncio.run(asyncio.wait_for(ask(), 120))
    assert before["state"] == "waiting"
    assert after["state"] == "done"
    assert any(finding["kind"] == "spike" and finding["first_step"] == 70 for finding in after["findings"])
    assert all(finding["remedy_words"] for finding in after["findings"])
    assert sum(counts_of(after["findings"]).values()) == len(after["findings"])


def test_a_finding_of_a_version_that_is_not_known_is_told_without_words() -> None:
    assert with_words({"kind": "new", "remedy": {"action": "unheard of", "arguments": {}}})["remedy_words"] == ""
    assert with_words({"kind": "new"})["remedy_words"] == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"])
def test_the_command_serves_until_it_is_ended(tmp_path: Path, number: int, code: int) -> None:
    write_run(tmp_path, steps=5)
    command = [sys.executable, "-m", "stoker", "watch", str(tmp_path), "--port", "0", "--json", "--token", "t"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while True:
        text += process.stdout.readline()
        try:
            told = json.loads(text)
            break
        except ValueError:
            assert process.poll() is None, text
    assert told["token"] == "t"
    request = urllib.request.Request(
        f"http://127.0.0.1:{told['port']}/api/runs", headers={"cookie": f"stoker_watch_{told['port']}=t"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["runs"][0]["name"] == "anvil"
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert "Traceback" not in error


def test_a_token_of_blanks_and_a_folder_without_runs_are_refused(tmp_path: Path) -> None:
    from stoker.cli.watch import watch

    with pytest.raises(BadInput, match="--token"):
        watch([tmp_path], token="  ")
    with pytest.raises(BadInput, match="holds none"):
        watch([tmp_path])


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.dashboard.serving import require_packages

    with pytest.raises(BadInput, match=r"needs no_such_package_here: pip install 'stoker\[watch\]'"):
        require_packages(["no_such_package_here", "starlette"])


def test_without_a_terminal_the_essentials_are_printed_once(tmp_path: Path) -> None:
    write_run(tmp_path, steps=80)
    command = [sys.executable, "-m", "stoker", "watch", str(tmp_path), "--terminal"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    assert "step 80 of 200" in done.stdout
    assert "peak memory 1.00 GiB (rank 1, the most of 2)" in done.stdout
    assert "…" not in done.stdout.split("peak memory")[1].splitlines()[0]  # both memories fit the line
    assert "backward" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    told = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=True).stdout
    )
    assert (told["step"], told["name"]) == (80, "anvil")


def test_findings_outlast_a_diagnosis_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        {"state": "done", "findings": [{"kind": "spike", "severity": "warning"}]},
        {"state": "failed", "why": "no memory", "findings": []},
    ]

    async def diagnosed(run: WatchedRun) -> dict[str, Any]:
        return answers.pop(0)

    for name, value in (("_diagnosed", diagnosed), ("_BEGIN_AFTER_SECONDS", 0.0), ("_LEAST_PAUSE_SECONDS", 0.0)):
        monkeypatch.setattr(doctor, name, value)
    monkeypatch.setattr(doctor, "_PAUSE_FOR_EACH_SECOND", 0.0)
    (writer,) = write_run(tmp_path, ranks=(0,), close=False)

    async def asked_twice() -> dict[str, Any]:
        run, told = WatchedRun(RunDirectory(tmp_path)), asyncio.Event()
        doing = doctor.Doctor(lambda run: told.set())
        for first in (101, 111):
            append_steps(writer, 0, first, first + 9)
            writer.flush()
            run.refresh()
            told.clear()
            doing.ask(run)
            await asyncio.wait_for(told.wait(), 20)
        await doing.close()
        return doing.of(run)

    found = asyncio.run(asked_twice())
    writer.close()
    assert (found["state"], found["why"]) == ("failed", "no memory")
    assert found["findings"] == [{"kind": "spike", "severity": "warning"}]
