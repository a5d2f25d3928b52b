"""Who may read the page, under which host name and with which token; and what the page itself may do."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def names_of_host(host: str) -> frozenset[str]:
    """Names under which a browser may ask for the page that is served at `host`."""
    names = {"localhost", "127.0.0.1", "::1", host.strip("[]").lower()}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


class Guard:
    """Wraps the application: checks Host, method and token, and adds the headers that bind the browser."""

    def __init__(self, application: ASGIApp, names: Iterable[str], token: str | None, cookie: str) -> None:
        """`names` may stand in the Host header. Where `token` is None none is required; `cookie` is the name that
        it is kept under in the browser."""
        self._application = application
        self._names = frozenset(names)
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in given]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._application)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that is not let through; None lets it through."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_meant(headers.get("host", "")):
            return PlainTextResponse("this server is not meant for that host name\n", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the dashboard only reads\n", 405, {"allow": "GET, HEAD"})
        return None if self._token is None else self._without_token(scope, headers, self._token)

    def _is_meant(self, host: str) -> bool:
        """A page elsewhere whose name was pointed at this machine asks under that name, and gets nothing."""
        if host.startswith("["):
            name = host[1:].partition("]")[0]
        else:
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and ":" in host else host
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address is no name that could be pointed elsewhere; without a token only loopback is served anyway.
        return self._token is not None

    def _without_token(self, scope: Scope, headers: dict[str, str], token: str) -> Response | None:
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = query.pop("token", None)
        if given and _equal(given[-1], token):
            rest = urlencode(query, doseq=True)
            # The token leaves the address bar, and so the history and what is copied from it.
            answer = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._cookie, token, httponly=True, samesite="lax", path="/")
            return answer
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            kept = None
        if kept is not None and _equal(kept.value, token):
            return None
        said = "this dashboard needs its token: open the address that `stoker watch` printed, with ?token=…\n"
        return PlainTextResponse(said, 401)


def _equal(given: str, token: str) -> bool:
    """Compared in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
