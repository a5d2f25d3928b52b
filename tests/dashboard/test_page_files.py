"""The page's own files come together and at once."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import stoker.dashboard
from stoker.dashboard.serving import bound_socket

PAGE = Path(stoker.dashboard.__file__).parent / "page"


def test_every_module_is_asked_for_with_the_page_and_not_only_when_another_names_it() -> None:
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    preloaded = re.findall(r'rel="modulepreload" href="/file/([\w.]+)"', index)
    imported = {
        name
        for path in PAGE.glob("*.js")
        for name in re.findall(r'from "\./([\w.]+)"', path.read_text(encoding="utf-8"))
    }
    assert set(preloaded) == imported
    assert len(preloaded) == len(set(preloaded))


def test_no_answer_waits_for_the_browser_to_confirm_its_beginning() -> None:
    """Nagle's algorithm holds back what follows a small packet for as long as a delayed acknowledgement takes."""

    async def option_of_a_connection() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = bound_socket("127.0.0.1", 0)
        async with await asyncio.start_server(taken, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await found

    assert asyncio.run(option_of_a_connection()) == 1
