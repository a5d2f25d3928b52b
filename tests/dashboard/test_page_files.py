"""The page's own files come together and at once."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import stoker.dashboard
from stoker.dashboard.page_files import page_files
from stoker.dashboard.serving import bound_socket
from tests.dashboard.watched_runs import dashboard, write_run

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


def test_the_pages_files_are_asked_for_once_and_never_mixed_with_those_of_another_version(tmp_path: Path) -> None:
    write_run(tmp_path, steps=3)
    with dashboard(tmp_path) as client:
        index = client.get("/")
        assert index.headers["cache-control"] == "no-cache"
        addresses = set(re.findall(r'(?:src|href)="(/[^"]+)"', index.text))
        assert len(addresses) > 20
        version = page_files().version
        for address in addresses:
            assert address.startswith(f"/file/{version}/")
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-encoding"] == "gzip"
            plain = client.get(address, headers={"accept-encoding": "identity"})
            assert "content-encoding" not in plain.headers
            assert plain.content == answer.content
        assert client.get("/file/000000000000/main.js").status_code == 404
        named = {name for text in PAGE.glob("*.js") for name in re.findall(r'"(/file/[^"]*)"', text.read_text())}
        assert named == set(), "a file that is named without its version would be another one after an upgrade"


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
