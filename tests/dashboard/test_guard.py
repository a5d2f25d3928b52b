"""Who may read the dashboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.dashboard.guard import is_loopback
from stoker.dashboard.page_files import page_files
from stoker.dashboard.serving import Address, bound_socket
from tests.dashboard.watched_runs import dashboard, identifiers, write_run

MAIN = f"/file/{page_files().version}/main.js"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path, steps=3)
    return tmp_path


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1", "127.0.0.1:8420", "[::1]:8420"])
def test_its_own_names_are_answered(run: Path, host: str) -> None:
    with dashboard(run) as client:
        assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8420", "localhost.evil.example", "10.1.2.3", "", "127.0.0.1.evil.example"],
)
def test_a_name_that_was_pointed_here_gets_nothing(run: Path, host: str) -> None:
    with dashboard(run) as client:
        answer = client.get("/api/runs", headers={"host": host})
        assert answer.status_code == 403
        assert "anvil" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_possible(run: Path, method: str) -> None:
    with dashboard(run) as client:
        assert client.request(method, "/api/runs").status_code == 405


def test_without_its_token_nothing_is_shown_not_even_files(run: Path) -> None:
    with dashboard(run, token="s3cret") as client:
        for path in ("/", "/api/runs", MAIN, "/?token=wrong", "/?token=", "/api/live"):
            answer = client.get(path, follow_redirects=False)
            assert answer.status_code == 401, path
            assert "anvil" not in answer.text
        assert client.get("/api/runs", headers={"cookie": "stoker_watch=s3cre"}).status_code == 401


def test_a_token_becomes_a_cookie_and_leaves_the_address(run: Path) -> None:
    with dashboard(run, token="s3cret") as client:
        answer = client.get("/?token=s3cret&x=1", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/?x=1")
        assert {"HttpOnly", "SameSite=lax"} <= set(answer.headers["set-cookie"].split("; "))
        assert identifiers(client) == {"anvil": next(iter(identifiers(client).values()))}


def test_every_answer_binds_the_browser(run: Path) -> None:
    with dashboard(run) as client:
        for path in ("/", "/api/runs", MAIN, "/nowhere"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "name", ["..%2f..%2f__init__.py", "../application.py", "%2e%2e/serving.py", "LICENSE.txt", "nothing.js"]
)
def test_no_other_file_can_be_read(run: Path, name: str) -> None:
    with dashboard(run) as client:
        assert client.get(f"/file/{page_files().version}/{name}").status_code == 404


def test_the_page_holds_no_script_and_no_style_of_its_own(run: Path) -> None:
    with dashboard(run) as client:
        page = client.get("/").text
        assert "<style" not in page
        assert " style=" not in page
        assert page.count("<script") == page.count("<script src=") + page.count('<script type="module" src=')
        for name in (
            "main.js",
            "dom.js",
            "chart.js",
            "panel.js",
            "words.js",
            "style.css",
            "icon.svg",
            "uPlot.iife.min.js",
        ):
            assert client.get(f"/file/{page_files().version}/{name}").status_code == 200, name


def test_elements_are_never_made_from_text() -> None:
    """What a record says reaches the page as text alone."""
    import stoker.dashboard

    scripts = sorted((Path(stoker.dashboard.__file__).parent / "page").glob("*.js"))
    assert len(scripts) > 10
    for script in scripts:
        text = script.read_text(encoding="utf-8")
        for mark in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ):
            assert mark not in text, f"{script.name}: {mark}"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("node-7", False),
    ],
)
def test_loopback_is_told_from_other_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_port_that_is_taken_is_followed_by_the_next_free_one() -> None:
    first = bound_socket("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = bound_socket("127.0.0.1", port)
    try:
        assert port < second.getsockname()[1] < port + 64
    finally:
        first.close()
        second.close()


def test_an_address_is_spelled_so_that_it_can_be_opened() -> None:
    assert Address("::1", 8420, None).url == "http://[::1]:8420/"
    assert Address("127.0.0.1", 8420, "t").url == "http://127.0.0.1:8420/?token=t"
    assert "0.0.0.0" not in Address("0.0.0.0", 8420, "t").url
