"""A server that answers as OpenAI's protocol says, on a port of its own, and does as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Any, dict[str, str]]
"""Status, body (JSON, or bytes as they are), headers."""


@dataclass
class FakeServer:
    """What it was asked, and what it answers."""

    url: str = ""
    asked: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    """(path, body, authorization)"""
    reply: Callable[[int, dict[str, Any]], Reply] = lambda number, body: completion(body)


def completion(body: dict[str, Any], tokens: int = 5) -> Reply:
    """What a model would answer: its prompt again, with the temperature."""
    chat = "messages" in body
    prompt = body["messages"][0]["content"] if chat else body["prompt"]
    text = f"{prompt} at {body['temperature']}"
    choice = {"message": {"content": text}} if chat else {"text": text}
    usage = {"completion_tokens": tokens, "total_tokens": 2 * tokens}
    return 200, {"choices": [choice | {"finish_reason": "stop"}], "usage": usage}, {}


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """A server that runs until the block ends."""
    state, lock = FakeServer(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(state.asked)
                state.asked.append((self.path, body, self.headers.get("Authorization")))
            status, answer, headers = state.reply(number, body)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield state
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
