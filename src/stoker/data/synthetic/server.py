"""Asks a server that speaks OpenAI's protocol (`/chat/completions` or `/completions`), which most servers do."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from stoker.data.synthetic.jobs import Answer, Job, Sampling
from stoker.data.synthetic.writing import OutOfBudget
from stoker.errors import BadInput, StokerError
from stoker.plural import counted
from stoker.wording import one_line

_RETRIED = frozenset((408, 409, 425, 429, 500, 502, 503, 504))
_LONGEST_WAIT = 60.0
_LONGEST_ASKED_FOR = 3600.0
"""Seconds that a server's `Retry-After` is heeded at most."""
_LONGEST_TOLD = 200
"""Characters of what a server says that are shown."""
_SILENT = 2.0
"""Seconds for which nothing is said about a server that does not answer."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where and how is asked."""

    url: str
    """Up to the version, such as `http://localhost:8000/v1`."""
    model: str
    key: str | None = None
    """Sent as a bearer token."""
    chat: bool = True
    """Ask `/chat/completions`; otherwise `/completions`, which continues the prompt."""
    at_once: int = 4
    """Requests under way at a time."""
    per_minute: float | None = None
    """Most requests begun in a minute."""
    token_budget: int | None = None
    """Tokens of prompts and answers, as the server counts them, after which nothing more is asked."""
    attempts: int = 6
    timeout: float = 300.0
    """Seconds to wait for one answer."""


class ServerGenerator:
    """A server as a generator.

    Answers that mean "later" (429, 5xx, a lost connection) are asked again after 1, 2, 4 … seconds or what
    `Retry-After` says; `say` is told what is waited for. Raises `BadInput` where the server refuses a request as
    wrong, or where the address is none of such a server (an unknown host, a certificate that is not trusted, an
    answer that is no JSON), `StokerError` where it stays away, and `OutOfBudget`; made for what is no address of a
    server, it raises `BadInput` at once.
    """

    def __init__(
        self,
        server: Server,
        sampling: Sampling,
        sleep: Callable[[float], object] = time.sleep,
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        _require_address(server.url)
        self._server, self._sampling, self._sleep, self._say = server, sampling, sleep, say
        self._address = server.url.rstrip("/") + ("/chat/completions" if server.chat else "/completions")
        self._quiet_since, self._heard = time.monotonic(), False
        self._lock = threading.Lock()
        self._next_start = 0.0
        self.spent = 0
        """Tokens so far, as the server counts them."""

    def answers(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
        """The answers in the order of `jobs`, `at_once` asked for at a time; those under way at an error are
        kept."""
        size = self._server.at_once
        with ThreadPoolExecutor(size) as threads:
            for start in range(0, len(jobs), size):
                if self._server.token_budget is not None and self.spent >= self._server.token_budget:
                    raise OutOfBudget(
                        f"{self.spent:,} tokens are spent, and the budget is {self._server.token_budget:,}"
                    )
                asked = [(job, threads.submit(self._answer, job)) for job in jobs[start : start + size]]
                failed: Exception | None = None
                for job, future in asked:
                    try:
                        self._tell_of_silence(future)
                        yield job, future.result()
                    except StokerError as error:
                        failed = failed or error
                if failed is not None:
                    raise failed

    def _tell_of_silence(self, answer: Future[Answer]) -> None:
        """Say what is waited for where no answer at all has come so far and none comes in a moment."""
        if self._heard or wait([answer], _SILENT).done:
            return
        with self._lock:
            if time.monotonic() - self._quiet_since >= _SILENT:  # else something was just said
                self._say(f"waiting for {self._address}, for at most {self._server.timeout:g} s an answer")

    def _tell_of_retry(self, why: str, seconds: float, left: int) -> None:
        with self._lock:
            now = time.monotonic()
            if now + seconds - self._quiet_since >= _SILENT:  # requests at once fail at once: it is said once
                self._quiet_since = now
                self._say(
                    f"waiting for {self._address}: {why}; asked again in {seconds:g} s, "
                    f"{counted(left, 'attempts')} left"
                )

    def _answer(self, job: Job) -> Answer:
        reply = self._asked(self._body(job))
        try:
            choice = reply["choices"][0]
            text = choice["message"]["content"] if self._server.chat else choice["text"]
            usage = reply.get("usage") or {}
            tokens = int(usage.get("completion_tokens") or 0)
            with self._lock:
                self.spent += int(usage.get("total_tokens") or tokens)
            # Half of a pair of surrogates is no text.
            text = (text or "").encode("utf-8", "replace").decode()
            return Answer(text, tokens, str(choice.get("finish_reason") or "unknown"))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise StokerError(
                f"{self._server.url} answered something else than completions: {json.dumps(reply)[:200]}"
            ) from error

    def _body(self, job: Job) -> dict[str, Any]:
        text = job.prompt.text
        asked = {"messages": [{"role": "user", "content": text}]} if self._server.chat else {"prompt": text}
        return {
            "model": self._server.model,
            **asked,
            "temperature": job.temperature,
            "top_p": self._sampling.top_p,
            "max_tokens": self._sampling.tokens,
            "seed": job.seed,
        }

    def _asked(self, body: dict[str, Any]) -> Any:
        server = self._server
        address = self._address
        headers = {"Content-Type": "application/json"}
        if server.key is not None:
            headers["Authorization"] = f"Bearer {server.key}"
        last = ""
        for attempt in range(server.attempts):
            self._wait_for_turn()
            request = urllib.request.Request(address, json.dumps(body).encode(), headers)
            pause = min(2.0**attempt, _LONGEST_WAIT)
            try:
                with urllib.request.urlopen(request, timeout=server.timeout) as response:
                    reply = self._json_of(response.read())
                    self._quiet_since, self._heard = time.monotonic(), True
                    return reply
            except urllib.error.HTTPError as error:
                last = _told(f"{error.code} {error.reason}: {error.read(300).decode(errors='replace')}")
                if error.code not in _RETRIED:
                    hint = " (is the address right up to the version, such as /v1?)" if error.code == 404 else ""
                    raise BadInput(f"{address} refused the request: {last}{hint}") from error
                asked = _asked_to_wait(error.headers.get("Retry-After"))
                pause = pause if asked is None else asked
            except (OSError, HTTPException, ValueError) as error:  # no connection, half an answer, no JSON
                reason = getattr(error, "reason", error)
                last = _told(str(reason)) or type(error).__name__
                if _is_wrong_address(reason):
                    raise BadInput(f"{address} cannot be asked: {last}; correct --from") from error
            if (left := server.attempts - attempt - 1) > 0:
                self._tell_of_retry(last, pause, left)
                self._sleep(pause)
        raise StokerError(f"{address} did not answer in {server.attempts} attempts; the last: {last}")

    def _json_of(self, content: bytes) -> Any:
        """What the server answered. Raises `ValueError` for what is no JSON, and `BadInput` for a page where no
        JSON came before: later it is that of a proxy, behind which the server may come back."""
        try:
            return json.loads(content)
        except ValueError:
            if self._heard or content.lstrip()[:1] != b"<":
                raise
            begins = _told(content[:300].decode(errors="replace"))
            raise BadInput(
                f"{self._address} answered no JSON, so it is no server of completions: {begins}"
            ) from None

    def _wait_for_turn(self) -> None:
        if self._server.per_minute is None:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next_start)
            self._next_start = start + 60 / self._server.per_minute
        if start > now:
            self._sleep(start - now)


def _told(said: str) -> str:
    return one_line(" ".join(said.split()), _LONGEST_TOLD)


def _is_wrong_address(reason: object) -> bool:
    """Whether asking again is of no use: nobody knows the host, or it does not speak TLS that can be trusted."""
    if isinstance(reason, socket.gaierror):
        return reason.errno == socket.EAI_NONAME
    return isinstance(reason, ssl.SSLCertVerificationError) or (
        isinstance(reason, ssl.SSLError) and reason.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
    )


def _require_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, a bracket that is not closed
        right = False
    if not right or not url.isprintable() or " " in url:
        raise BadInput(f"{url!r} is no address of a server; give one such as http://localhost:8000/v1")


def _asked_to_wait(written: str | None) -> float | None:
    """Seconds that a `Retry-After` asks for: a number of them, or a date (RFC 9110, section 10.2.3)."""
    if written is None:
        return None
    try:
        seconds = float(written)
    except ValueError:
        try:
            date = parsedate_to_datetime(written)
        except ValueError:
            return None
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_ASKED_FOR) if seconds == seconds else None
