"""A connection between the supervisors of two nodes: both sides prove themselves, and both see it break.

Neither side ever waits long for the other: a node that is gone, stopped or behind a broken network is a link that
is silent, and a link that is silent too long is broken.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from stoker.errors import BadInput
from stoker.recovery.processes import Address

Order = tuple[Any, ...]
"""What is said over a link: a word, and what belongs to it."""
BEAT_SECONDS = 0.5
"""How often a side that has nothing to say shows that it is there."""
_QUIET_BEATS = 4
KNOCK_SECONDS = 2.0
"""How long whoever connects has to prove that it belongs to the run."""
_STALL_SECONDS = 3
"""How long a message may stand still half-way."""
_UNSEEN_SECONDS = 1.0
"""Nobody looked for so long: the time beyond it counts for no silence."""
_MOST_GUESTS = 256
_NONCE, _PROOF = 32, 32


class Link:
    """One side of a connection. It is broken for good when it breaks, or is silent for `silent_seconds`."""

    def __init__(self, connected: socket.socket, silent_seconds: float) -> None:
        connected.setblocking(True)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for timeout in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connected.setsockopt(socket.SOL_SOCKET, timeout, struct.pack("ll", _STALL_SECONDS, 0))
        self.channel = Connection(os.dup(connected.fileno()))
        self.is_broken = False
        self.silence: float | None = None
        """Seconds that the other side had not been heard of when the link was given up; None: it broke."""
        self._socket = connected
        self._silent_seconds = silent_seconds
        self._sent = self._heard = self._looked = time.monotonic()
        self._allowed_until = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether several beats of the other side are overdue."""
        return time.monotonic() - max(self._heard, self._allowed_until) > _QUIET_BEATS * BEAT_SECONDS

    def send(self, *order: Any) -> None:
        """Say something; to a side that is gone nothing is said."""
        if self.is_broken:
            return
        try:
            self.channel.send(order)
            self._sent = time.monotonic()
        except (OSError, ValueError):
            self.close()

    def beat(self) -> None:
        """Show that this side is there, if it has said nothing for a while."""
        if time.monotonic() - self._sent >= BEAT_SECONDS:
            self.send("beat")

    def receive(self) -> list[Order]:
        """What the other side has said since the last time. Breaks the link when it has been silent too long."""
        found: list[Order] = []
        now = time.monotonic()
        self._heard += max(0.0, now - self._looked - _UNSEEN_SECONDS)
        self._looked = now
        try:
            while not self.is_broken and self.channel.poll():
                word, *rest = self.channel.recv()
                self._heard = time.monotonic()
                if word == "busy":
                    self._allowed_until = self._heard + rest[0]
                elif word != "beat":
                    found.append((word, *rest))
        except Exception:  # the end, a message that stands still, or one that cannot be read: the link is of no use
            self.close()
        silent = now - max(self._heard, self._allowed_until)
        if not self.is_broken and silent > self._silent_seconds:
            self.silence = silent
            self.close()
        self.beat()
        return found

    def busy(self, seconds: float) -> None:
        """Ask the other side not to mind a silence of so many seconds from now on."""
        self.send("busy", seconds)

    def close(self) -> None:
        """Break it off, also for processes that have inherited it."""
        if self.is_broken:
            return
        self.is_broken = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.channel.close()

    def close_when_read(self, seconds: float = 2.0) -> None:
        """Close once the other side has read all and closed its side, or after so many seconds."""
        until = time.monotonic() + seconds
        try:
            while not self.is_broken and (left := until - time.monotonic()) > 0:
                if self.channel.poll(min(left, 0.1)):
                    self.channel.recv()
        except Exception:  # the other side's end, which is what was waited for
            pass
        self.close()


@dataclass
class _Guest:
    connected: socket.socket
    since: float
    said: bytes = b""


class Door:
    """Where nodes connect. Looking after it never waits for anyone: whoever does not prove itself is shown out."""

    def __init__(self, host: str, token: str, silent_seconds: float) -> None:
        try:
            self._listener = socket.create_server((host, 0), backlog=1024)
        except OSError as error:
            raise BadInput(
                f"this node cannot listen at {host}: {error.strerror or error}. STOKER_ADDRESS says at which of "
                "its own addresses other nodes reach it"
            ) from None
        self._listener.setblocking(False)
        self._token = token
        self._silent_seconds = silent_seconds
        self._guests: list[_Guest] = []
        self.address: Address = (host, self._listener.getsockname()[1])

    def waitables(self) -> list[Any]:
        """What becomes ready when somebody comes or speaks."""
        return [self._listener, *(guest.connected for guest in self._guests)]

    def let_in(self) -> list[Link]:
        """Links to those that have proved themselves since the last time."""
        while len(self._guests) < _MOST_GUESTS:
            try:
                connected, _ = self._listener.accept()
            except OSError:  # nobody more, or somebody who has gone again
                break
            connected.setblocking(False)
            self._guests.append(_Guest(connected, time.monotonic()))
        found = []
        for guest in list(self._guests):
            judged = self._judge(guest)
            if judged is None:
                continue
            self._guests.remove(guest)
            if judged:
                found.append(Link(guest.connected, self._silent_seconds))
            else:
                guest.connected.close()
        return found

    def _judge(self, guest: _Guest) -> bool | None:
        """Whether it belongs here; None while it has not said enough."""
        try:
            said = guest.connected.recv(_NONCE + _PROOF - len(guest.said))
        except BlockingIOError:
            return False if time.monotonic() - guest.since > KNOCK_SECONDS else None
        except OSError:
            return False
        guest.said += said
        if not said:
            return False
        if len(guest.said) < _NONCE + _PROOF:
            return None
        nonce, proof = guest.said[:_NONCE], guest.said[_NONCE:]
        if not hmac.compare_digest(proof, _proof(self._token, b"follower", nonce)):
            return False
        try:
            guest.connected.sendall(_proof(self._token, b"leader", nonce))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let nobody in any more."""
        for guest in self._guests:
            guest.connected.close()
        self._listener.close()


def knock(address: Address, token: str, seconds: float, silent_seconds: float) -> Link | None:
    """A link to whoever listens at `address`; None when nobody does there that knows `token`."""
    nonce = secrets.token_bytes(_NONCE)
    try:
        connected = socket.create_connection(address, timeout=seconds)
    except OSError:
        return None
    try:
        connected.sendall(nonce + _proof(token, b"follower", nonce))
        answer = b""
        while len(answer) < _PROOF and (part := connected.recv(_PROOF - len(answer))):
            answer += part
        if hmac.compare_digest(answer, _proof(token, b"leader", nonce)):
            return Link(connected, silent_seconds)
    except OSError:
        pass
    connected.close()
    return None


def _proof(token: str, who: bytes, nonce: bytes) -> bytes:
    """Shows that one knows the token without saying it: what listens at an old address may be anybody."""
    return hmac.digest(token.encode(), who + nonce, "sha256")
