"""A network between the nodes of a drill: each node in a network namespace of its own, joined by a switch.

    node-0   stoker0 10.77.0.1 ── TAP ──┐
    node-1   stoker0 10.77.0.2 ── TAP ──┤ switch, a process that is told what to do with frames
    node-2   stoker0 10.77.0.3 ── TAP ──┘

Every frame passes through the switch, which can hold it back, carry so many of them a second, or drop it. The
kernel's own delay (netem) is a module that many kernels lack; a TAP device needs nothing of the kind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

from stoker.child_processes import die_with_parent
from stoker.errors import BadInput, StokerError
from stoker.recovery.drill_switch import serve
from stoker.recovery.forked import Forked

NETWORK = "STOKER_DRILL_NETWORK"
"""Environment variable with the switch's socket, in every process of a node whose network is one of these."""
_INTERFACE = "stoker0"
_MTU = 16_000
_MAC = b"\x02\x53\x54\x4b\x00"
"""Locally administered; the node's number follows."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
_SET_FLAGS, _SET_ADDRESS, _SET_NETMASK, _SET_MTU, _SET_MAC = 0x8914, 0x8916, 0x891C, 0x8922, 0x8924
_UP_AND_RUNNING, _ETHERNET = 0x41, 1
_MOST_NODES = 200


def why_not() -> str:
    """Why there can be no such network on this machine, and what it takes; empty when there can be."""
    try:
        Forked("trying a network namespace", _try).result()
    except StokerError as error:
        return (
            f"{error}; it takes root or unprivileged user namespaces, and access to /dev/net/tun (in a container: "
            "--cap-add=NET_ADMIN,SYS_ADMIN --device=/dev/net/tun)"
        )
    return ""


def address_of(number: int) -> str:
    """Of the node of this number."""
    return f"10.77.0.{number + 1}"


def ask_network(word: str, *numbers: float, environment: Mapping[str, str] = os.environ) -> socket.socket:
    """Have the switch treat this process's node otherwise: `delay` (seconds, jitter), `rate` (bytes a second) or
    `cut` (seconds). All but the last end when what is returned is closed, or this process ends."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(environment[NETWORK])
    _order(connected, " ".join([word, environment["STOKER_NODE"], *(f"{one:.9g}" for one in numbers)]))
    return connected


class DrillNetwork:
    """The switch, in a process of its own until `close`."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="stoker-switch-")  # a socket's path must be short
        self.path = str(Path(self._folder) / "switch")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(64)
        self._process = get_context("fork").Process(target=_switch, args=(listener,), name="switch")
        self._process.start()
        listener.close()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def join(path: str, node: str, number: int) -> dict[str, str]:
    """Move this process, which has no threads, into a network namespace of its own, on the switch at `path`.

    Returns what its environment has to say.
    """
    if number >= _MOST_NODES:
        raise BadInput(f"a drill has at most {_MOST_NODES} nodes, not {number + 1}")
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(path)
    device = _alone(number)
    _order(connected, f"join {node} {number}", device)
    os.close(device)
    connected.close()
    own = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), _INTERFACE)
    return {NETWORK: path, "STOKER_ADDRESS": address_of(number), **own}


def _order(connected: socket.socket, order: str, device: int | None = None) -> None:
    socket.send_fds(connected, [order.encode()], [] if device is None else [device])
    answer = connected.recv(1024).decode()
    if answer != "done":
        raise StokerError(f"the drill's network did not do what it was told ({order}): {answer or 'it has ended'}")


def _alone(number: int) -> int:
    """Enter a namespace with a loopback and one TAP device; returns the descriptor of that."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:  # not root
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            raise StokerError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _INTERFACE.encode(), _TAP_WITHOUT_HEADER))
        _configure(number)
    except OSError as error:
        raise StokerError(f"no network device of its own ({error.strerror}: /dev/net/tun)") from None
    return device


def _configure(number: int) -> None:
    with contextlib.suppress(OSError):  # a kernel without IPv6
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="ascii")
    own, mac = _INTERFACE.encode(), _MAC + bytes([number])
    address, mask = socket.inet_aton(address_of(number)), socket.inet_aton("255.255.255.0")
    requests = (
        (_SET_MAC, struct.pack("16sH6s16x", own, _ETHERNET, mac)),
        (_SET_MTU, struct.pack("16si20x", own, _MTU)),
        (_SET_ADDRESS, struct.pack("16sHH4s16x", own, socket.AF_INET, 0, address)),
        (_SET_NETMASK, struct.pack("16sHH4s16x", own, socket.AF_INET, 0, mask)),
        (_SET_FLAGS, struct.pack("16sH22x", own, _UP_AND_RUNNING)),
        (_SET_FLAGS, struct.pack("16sH22x", b"lo", _UP_AND_RUNNING)),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, content in requests:
            fcntl.ioctl(any_socket, request, content)


def _try() -> None:
    os.close(_alone(0))


def _switch(listener: socket.socket) -> None:
    die_with_parent(by_thread=False)
    serve(listener, random.Random(0))
