"""Asking a server: what is sent, when it is asked again, when it stops, and that nothing is asked twice."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.synthetic.jobs import Author, Journal, Prompt, Sampling, held_journal, jobs_of
from stoker.data.synthetic.server import Server, ServerGenerator
from stoker.data.synthetic.writing import Written, synthesize
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from tests.data.synthetic.fake_server import FakeServer, completion, fake_server

_PROMPTS = [Prompt(str(number), f"question {number}") for number in range(6)]
_SAMPLING = Sampling(temperatures=(0.5, 1.0), tokens=20, top_p=0.9)
_AUTHOR = Author("writer", None, 2)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


def written(server: FakeServer, output: Path, waits: list[float] | None = None, **given: Any) -> Written:
    at = Server(server.url, "writer", **given)
    slept = [] if waits is None else waits
    return synthesize(_PROMPTS, _SAMPLING, _AUTHOR, ServerGenerator(at, _SAMPLING, slept.append), output, Silent())


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_says_how_it_came_to_be_and_rows_stand_in_order(server: FakeServer, tmp_path: Path) -> None:
    found = written(server, tmp_path / "out.jsonl")
    assert (found.rows, found.wanted, found.new, found.tokens, found.stopped) == (12, 12, 12, 60, None)
    everything = rows(tmp_path / "out.jsonl")
    assert [(row["prompt_id"], row["temperature"]) for row in everything] == [
        (str(number), temperature) for number in range(6) for temperature in (0.5, 1.0)
    ]
    row = everything[3]
    assert row["text"] == "question 1 at 1.0"
    assert (row["model"], row["generation"], row["top_p"], row["tokens"]) == ("writer", 2, 0.9, 5)
    assert len({one["id"] for one in everything}) == 12
    asked = {(body["messages"][0]["content"], body["temperature"]): body for _, body, _ in server.asked}
    body = asked["question 1", 1.0]
    assert (body["max_tokens"], body["top_p"], body["model"], body["seed"]) == (20, 0.9, "writer", row["seed"])


@pytest.mark.parametrize(("chat", "path"), [(True, "/v1/chat/completions"), (False, "/v1/completions")])
def test_it_asks_the_way_and_with_the_key_that_it_is_given(
    server: FakeServer, tmp_path: Path, chat: bool, path: str
) -> None:
    written(server, tmp_path / "out.jsonl", chat=chat, key="secret")
    assert {(asked, key) for asked, _, key in server.asked} == {(path, "Bearer secret")}
    assert "secret" not in (tmp_path / "out.jsonl").read_text()


def test_what_means_later_is_asked_again_after_the_time_the_server_says(server: FakeServer, tmp_path: Path) -> None:
    def reply(number: int, body: dict[str, Any]) -> Any:
        first = {0: (429, {}, {"Retry-After": "7"}), 1: (503, {}, {}), 2: (200, b"half an ans", {})}
        return first.get(number) or completion(body)

    server.reply, waits = reply, list[float]()
    assert written(server, tmp_path / "out.jsonl", waits, at_once=1).rows == 12
    assert waits == [7.0, 2.0, 4.0]
    assert len(server.asked) == 15


def test_a_refusal_ends_it_at_once_with_the_servers_words(server: FakeServer, tmp_path: Path) -> None:
    server.reply = lambda number, body: (400, {"error": "no such model"}, {})
    with pytest.raises(BadInput, match=r"400.*no such model"):
        written(server, tmp_path / "out.jsonl", at_once=1)
    assert len(server.asked) == 1


def test_a_server_that_stays_away_ends_it_after_some_attempts(tmp_path: Path) -> None:
    with fake_server() as gone:
        url = gone.url
    waits: list[float] = []
    generator = ServerGenerator(Server(url, "writer", attempts=3, at_once=1), _SAMPLING, waits.append)
    with pytest.raises(StokerError, match="did not answer in 3 attempts"):
        synthesize(_PROMPTS, _SAMPLING, _AUTHOR, generator, tmp_path / "out.jsonl", Silent())
    assert waits == [1.0, 2.0]


def test_what_was_answered_before_an_error_is_not_asked_again(server: FakeServer, tmp_path: Path) -> None:
    server.reply = lambda number, body: completion(body) if number < 5 else (401, {}, {})
    with pytest.raises(BadInput):
        written(server, tmp_path / "out.jsonl", at_once=2)
    answered = [body for _, body, _ in server.asked[:5]]
    assert not (tmp_path / "out.jsonl").exists()
    server.reply = lambda number, body: completion(body)
    before = len(server.asked)
    assert written(server, tmp_path / "out.jsonl").new == 12 - 5
    assert len(server.asked) == before + 7
    assert not [body for _, body, _ in server.asked[before:] if body in answered]
    assert written(server, tmp_path / "out.jsonl").new == 0
    assert len(server.asked) == before + 7
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_torn_line_of_a_killed_run_is_asked_again_and_breaks_nothing(server: FakeServer, tmp_path: Path) -> None:
    server.reply = lambda number, body: completion(body) if number < 4 else (401, {}, {})
    with pytest.raises(BadInput):
        written(server, tmp_path / "out.jsonl", at_once=1)
    journal = tmp_path / ".out.jsonl.journal"
    journal.write_bytes(journal.read_bytes()[:-9])
    server.reply = lambda number, body: completion(body) if number < 8 else (401, {}, {})
    with pytest.raises(BadInput):
        written(server, tmp_path / "out.jsonl", at_once=1)
    server.reply = lambda number, body: completion(body)
    assert written(server, tmp_path / "out.jsonl").rows == 12
    with fake_server() as other:
        written(other, tmp_path / "whole.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("line", [b"\xff\xfe", b"{", b"[1]", b'{"text": "no id"}', b"[" * 100_000])
@pytest.mark.parametrize("name", ["out.jsonl", ".out.jsonl.journal"])
def test_a_line_that_is_no_row_is_told_and_nothing_is_written_over(
    server: FakeServer, tmp_path: Path, name: str, line: bytes
) -> None:
    written(server, tmp_path / "out.jsonl")
    rows = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
    content = b"".join([*rows[:3], line + b"\n", *rows[3:]])
    (tmp_path / name).write_bytes(content)
    asked = len(server.asked)
    with pytest.raises(BadInput, match=f"{re.escape(name)}, line 4: no row that was written here"):
        written(server, tmp_path / "out.jsonl")
    assert (tmp_path / name).read_bytes() == content
    assert len(server.asked) == asked


@given(st.floats(0, 1))
def test_a_journal_that_a_kill_cut_anywhere_keeps_its_whole_rows(at: float) -> None:
    rows = [b'{"id": "%d", "text": "\xe6\x96\x87"}\n' % number for number in range(5)]
    content = b"".join(rows)[: int(at * sum(map(len, rows)))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".out.journal").write_bytes(content)
        journal = Journal(Path(folder) / "out")
        assert list(journal.rows) == [str(number) for number in range(content.count(b"\n"))]
        journal.add({"id": "new"})
        assert list(Journal(Path(folder) / "out").rows)[-1] == "new"


def test_a_spent_budget_ends_it_and_a_larger_one_goes_on(server: FakeServer, tmp_path: Path) -> None:
    found = written(server, tmp_path / "out.jsonl", at_once=1, token_budget=35)
    assert (found.rows, len(server.asked)) == (4, 4), "10 tokens each, and none is asked once 35 are spent"
    assert "40 tokens are spent" in str(found.stopped)
    assert written(server, tmp_path / "out.jsonl").new == 8


def test_requests_are_begun_no_faster_than_told(server: FakeServer, tmp_path: Path) -> None:
    waits: list[float] = []
    written(server, tmp_path / "out.jsonl", waits, per_minute=6, at_once=1)
    assert len(waits) == 11
    # Nobody really slept here, so each is told to wait ten seconds more than the one before.
    assert waits[-1] == pytest.approx(110, abs=5)


def test_rows_of_other_settings_are_not_written_over(server: FakeServer, tmp_path: Path) -> None:
    written(server, tmp_path / "out.jsonl")
    before = (tmp_path / "out.jsonl").read_bytes()
    generator = ServerGenerator(Server(server.url, "writer"), _SAMPLING)
    with pytest.raises(BadInput, match="12 rows that these prompts and settings do not ask for"):
        synthesize(_PROMPTS, _SAMPLING, Author("other", None), generator, tmp_path / "out.jsonl", Silent())
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert len(server.asked) == 12


def test_an_answer_of_another_kind_is_told(server: FakeServer, tmp_path: Path) -> None:
    server.reply = lambda number, body: (200, {"surprise": 1}, {})
    with pytest.raises(StokerError, match=r"something else than completions.*surprise"):
        written(server, tmp_path / "out.jsonl", at_once=1)


def test_another_seed_temperature_or_prompt_is_another_job() -> None:
    def names(prompts: list[Prompt], **given: Any) -> set[str]:
        return {job.identifier for job in jobs_of(prompts, Sampling(**given), _AUTHOR)}

    first = names(_PROMPTS)
    assert len(names(_PROMPTS, samples=3)) == 36
    assert first <= names(_PROMPTS, samples=3)
    assert not first & names(_PROMPTS, seed=1)
    assert not first & names([Prompt(one.identifier, one.text + "!") for one in _PROMPTS])
    assert not first & {job.identifier for job in jobs_of(_PROMPTS, Sampling(), Author("other", None))}


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ht!tp://", "file:///etc/passwd", "http://[::1", "http://a:99999999/", "http://a b/"],
)
def test_what_is_no_address_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(BadInput, match="is no address of a server"):
        ServerGenerator(Server(url, "writer"), _SAMPLING)


def test_two_that_write_one_file_do_not_ask_twice(server: FakeServer, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with held_journal(output):
        for _ in range(2):  # the first refusal must not make way for the second
            with pytest.raises(BadInput, match="is just being written by another process"):
                written(server, output)
    assert not server.asked
    assert not list(tmp_path.iterdir())
    assert written(server, output).rows == 12
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_where_no_file_can_be_put_nothing_is_asked(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path, Path("/dev/null"), Path("/")):
        with pytest.raises(BadInput, match="is no regular file"):
            written(server, output)
    with pytest.raises(StokerError, match="could not write"):
        written(server, tmp_path / "file" / "out.jsonl")
    assert not server.asked


@pytest.mark.parametrize(
    ("wait", "least", "most"),
    [
        ("0", 0, 0),
        ("90", 90, 90),
        ("1e9", 3600, 3600),
        ("-4", 0, 0),
        ("soon", 1, 1),
        ("nan", 1, 1),
        ("in half an hour", 1500, 1800),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
    ],
)
def test_a_server_says_how_long_to_wait_in_seconds_or_by_a_date(
    server: FakeServer, tmp_path: Path, wait: str, least: float, most: float
) -> None:
    if wait == "in half an hour":
        wait = format_datetime(datetime.now(UTC) + timedelta(minutes=30), usegmt=True)
    server.reply = lambda number, body: completion(body) if number else (429, {}, {"Retry-After": wait})
    waits: list[float] = []
    assert written(server, tmp_path / "out.jsonl", waits, at_once=1).rows == 12
    assert len(waits) == 1
    assert least <= waits[0] <= most


@pytest.mark.parametrize(
    "broken",
    [
        (200, b'{"choices": [{"mess', {"Content-Length": "4000"}),
        (200, b"", {}),
        (200, b"\xff\xfe not UTF-8", {}),
        (200, b"<html>a proxy's page</html>", {}),
        (504, b"", {}),
    ],
    ids=["cut off", "empty", "not UTF-8", "not JSON", "gateway"],
)
def test_half_an_answer_is_asked_for_again(server: FakeServer, tmp_path: Path, broken: Any) -> None:
    server.reply = lambda number, body: broken if number == 1 else completion(body)
    waits: list[float] = []
    assert written(server, tmp_path / "out.jsonl", waits, at_once=1).rows == 12
    assert (waits, len(server.asked)) == ([1.0], 13)


@pytest.mark.parametrize("answer", [[], "text", {"choices": []}, {"choices": [{}]}, {"error": "overloaded"}, None])
def test_json_of_another_shape_is_told_and_what_was_there_is_kept(
    server: FakeServer, tmp_path: Path, answer: Any
) -> None:
    server.reply = lambda number, body: completion(body) if number < 3 else (200, answer, {})
    with pytest.raises(StokerError, match="something else than completions"):
        written(server, tmp_path / "out.jsonl", at_once=1)
    assert len(rows(tmp_path / ".out.jsonl.journal")) == 3


def test_a_server_that_says_nothing_is_asked_again_when_the_time_is_over(
    server: FakeServer, tmp_path: Path
) -> None:
    over = threading.Event()

    def reply(number: int, body: dict[str, Any]) -> Any:
        if number == 0:
            over.wait(60)
        return completion(body)

    server.reply, waits = reply, list[float]()
    assert written(server, tmp_path / "out.jsonl", waits, at_once=1, timeout=0.5).rows == 12
    over.set()
    assert waits[0] == 1.0


def test_any_text_goes_and_comes_as_it_is(server: FakeServer, tmp_path: Path) -> None:
    texts = ["水と山\u3000🙂", "a\u2028b\r\n\x00c", '"quoted" \\ back', "e\u0301"]
    prompts = [Prompt(str(number), text) for number, text in enumerate(texts)]
    generator = ServerGenerator(Server(server.url, "writer"), _SAMPLING)
    synthesize(prompts, _SAMPLING, _AUTHOR, generator, tmp_path / "out.jsonl", Silent())
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [row["text"] for row in found][::2] == [f"{text} at 0.5" for text in texts]
    assert {body["messages"][0]["content"] for _, body, _ in server.asked} == set(texts)
    server.reply = lambda number, body: (200, b'{"choices": [{"message": {"content": "half \\ud83d pair"}}]}', {})
    written(server, tmp_path / "pair.jsonl")
    assert {row["text"] for row in rows(tmp_path / "pair.jsonl")} == {"half ? pair"}


def test_killed_in_the_middle_it_asks_for_no_row_twice_but_those_under_way(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "prompts.txt").write_text("".join(f"question {number}\n" for number in range(8)))
    over = threading.Event()

    def reply(number: int, body: dict[str, Any]) -> Any:
        if number >= 7 and not over.is_set():
            over.wait(60)
        return completion(body)

    server.reply = reply
    options = ["data", "synthesize", "--prompts", "prompts.txt", "--output", "out.jsonl", "--from", server.url]
    command = [sys.executable, "-m", "stoker", *options, "--model", "writer", "--at-once", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    while len(server.asked) < 8:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    over.set()
    first = [json.dumps(body) for _, body, _ in server.asked]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    again = [json.dumps(body) for _, body, _ in server.asked[len(first) :]]
    assert len(rows(tmp_path / "out.jsonl")) == 16
    assert set(first) & set(again) <= set(first[6:]), "two were under way"
    assert len(set(first) | set(again)) == 16
    assert len(again) == len(set(again))


def test_a_server_that_is_away_is_told_of_with_the_attempts_that_are_left(tmp_path: Path) -> None:
    with fake_server() as gone:
        url = gone.url
    said: list[str] = []
    generator = ServerGenerator(Server(url, "writer", attempts=5), _SAMPLING, lambda seconds: None, said.append)
    with pytest.raises(StokerError, match="did not answer in 5 attempts"):
        synthesize(_PROMPTS, _SAMPLING, _AUTHOR, generator, tmp_path / "out.jsonl", Silent())
    assert said
    assert all(line.startswith(f"waiting for {url}/chat/completions: ") and "\n" not in line for line in said)
    left = [int(re.findall(r"(\d+) attempts? left", line)[0]) for line in said]
    assert left[0] >= 3  # before the first two seconds are over
    assert left[-1] == 1


def test_a_server_that_says_nothing_is_told_of(server: FakeServer, tmp_path: Path) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as mute:
        at = Server(f"http://127.0.0.1:{mute.getsockname()[1]}/v1", "writer", attempts=1, timeout=2.5, at_once=1)
        with pytest.raises(StokerError, match="did not answer in 1 attempt"):
            list(ServerGenerator(at, _SAMPLING, say=said.append).answers(jobs_of(_PROMPTS, _SAMPLING, _AUTHOR)))
    assert said == [f"waiting for {at.url}/chat/completions, for at most 2.5 s an answer"]
    said.clear()
    list(
        ServerGenerator(Server(server.url, "writer"), _SAMPLING, say=said.append).answers(
            jobs_of(_PROMPTS, _SAMPLING, _AUTHOR)
        )
    )
    assert not said


class _Page(BaseHTTPRequestHandler):
    status = 200

    def do_POST(self) -> None:
        """Answer with a page, as a web server does that knows nothing of completions."""
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"<html>\n<body>\nNothing to see\n</body>\n</html>\n"
        self.send_response(type(self).status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "address", "told"),
    [
        (200, "http://127.0.0.1:{port}/v1", "answered no JSON, so it is no server of completions: <html> <body>"),
        (404, "http://127.0.0.1:{port}", "refused the request: 404 .*is the address right up to the version"),
        (200, "https://127.0.0.1:{port}/v1", "cannot be asked: .*SSL.*; correct --from"),
        (200, "http://nowhere.invalid/v1", "cannot be asked: .*; correct --from"),
    ],
    ids=["a page", "404", "no TLS", "no host"],
)
def test_a_wrong_address_is_told_at_once_in_one_line(status: int, address: str, told: str) -> None:
    handler = type("_Handler", (_Page,), {"status": status})
    slept: list[float] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as page:
        thread = threading.Thread(target=page.serve_forever, daemon=True)
        thread.start()
        at = Server(address.format(port=page.server_address[1]), "writer", at_once=1)
        with pytest.raises(BadInput, match=told) as caught:
            list(ServerGenerator(at, _SAMPLING, slept.append).answers(jobs_of(_PROMPTS, _SAMPLING, _AUTHOR)))
        page.shutdown()
        thread.join()
    assert "\n" not in str(caught.value)
    assert not slept
