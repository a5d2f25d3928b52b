"""Where notices go: a webhook, a command, the log."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit

from stoker.errors import BadInput, StokerError
from stoker.monitoring.sending import Outbox
from stoker.recipe.monitoring import Alerts

_MOST_WAITING = 256
_TRIES = 8
Content = dict[str, Any]
Say = Callable[[str], None]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is sent elsewhere would arrive there as a GET, and with the secrets of its URL."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def shown_url(url: str) -> str:
    """The part of a URL that holds no secret."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def webhook_of(alerts: Alerts) -> str | None:
    """The URL itself. Raises `BadInput` when it is to come from an environment variable that is not set."""
    given = alerts.webhook
    if given is None or not given.startswith("$"):
        return given
    url = os.environ.get(given[1:], "")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise BadInput(
            f"alerts.webhook names the environment variable {given}, which "
            f"{'holds no http:// or https:// URL' if url else 'is not set'}; export it before the command"
        )
    return url


def post(url: str, content: Content, timeout: float) -> None:
    """POST `content` as JSON. Raises a `StokerError` that does not tell the URL's path, query or credentials."""
    body = json.dumps(finite(content), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "stoker"}
    parts = urlsplit(url)
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(who.encode()).decode()
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(place, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=timeout) as answer:
            answer.read(4096)
    except urllib.error.HTTPError as error:
        error.close()
        raise StokerError(f"{shown_url(url)} answers {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        name = type(reason).__name__ if isinstance(reason, BaseException) else str(reason)
        raise StokerError(f"{shown_url(url)} cannot be reached ({name})") from None


def hand_over(command: Sequence[str], content: Content, timeout: float) -> None:
    """Run `command` with `content` as JSON on stdin. Raises `StokerError` when it fails or takes too long."""
    text = json.dumps(finite(content), ensure_ascii=False)
    try:
        done = subprocess.run(
            list(command), input=text, text=True, timeout=timeout, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise StokerError(f"{command[0]} took longer than {timeout:g} s and was ended") from None
    except OSError as error:
        raise StokerError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        raise StokerError(f"{command[0]} ended with exit code {done.returncode}")


class Notifying:
    """Sends notices to all who are to get them; nothing here waits."""

    def __init__(self, alerts: Alerts, say: Say) -> None:
        self._say = say
        self._log = alerts.log
        self._outboxes: list[Outbox[Content]] = []
        url, timeout = webhook_of(alerts), alerts.timeout_seconds
        if url is not None:
            self._add("the webhook", lambda content: post(url, content, timeout))
        if alerts.command:
            self._add("the command for alerts", lambda content: hand_over(alerts.command, content, timeout))

    def give(self, content: Content) -> None:
        """Tell everybody."""
        if self._log:
            self._say(in_words(content))
        for outbox in self._outboxes:
            outbox.put(content)

    def close(self, until: float) -> None:
        """Wait until all is delivered, or the monotonic clock says `until`."""
        for outbox in self._outboxes:
            if not outbox.close(until) or outbox.given_up:
                self._say(f"{outbox.name} did not get every notice; they are in the record")

    def _add(self, name: str, deliver: Callable[[Content], None]) -> None:
        self._outboxes.append(Outbox(name, deliver, most=_MOST_WAITING, tries=_TRIES, say=self._say))


def in_words(content: Content) -> str:
    """A notice in one line."""
    state = "still firing" if content["again"] else content["state"]
    return f"alert {content['rule']} {state} ({content['severity']}): {content['summary']}"


def finite(value: Any) -> Any:
    """`value` with figures that are not finite spelled out, as strict JSON needs it."""
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
