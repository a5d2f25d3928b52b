"""How a rank does to itself what a fault says."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from stoker.checkpoint import latest
from stoker.parallel.alone import leaves
from stoker.recovery.drill_network import ask_network
from stoker.recovery.dynamics.course import Course
from stoker.recovery.faults import Fault
from stoker.training.trainer import Trainer

_ROUND_SECONDS = 10.0
_UNSIGNED = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


class Injection:
    """Waits for this rank's faults to come due, tells the supervisor of each, and does it. Each comes once."""

    def __init__(
        self,
        faults: Sequence[Fault],
        attempt: int,
        tell: Callable[[dict[str, Any]], None],
        memory: Path | None = None,
        rank: int = 0,
    ) -> None:
        """`faults` are those that concern this rank; `memory` is where its node keeps copies of the state."""
        self._rank = rank
        self._course = Course(faults, attempt)
        self._memory = memory
        self._faults = list(faults)
        self._attempt = attempt
        self._completed = -1
        self._times: Counter[str] = Counter()
        """How often each phase has begun since."""
        self._tell = tell
        self._trainer: Trainer | None = None
        self._full: tuple[Fault, int] | None = None
        self._disturbed: list[tuple[Fault, int, socket.socket]] = []
        self._wrong: RemovableHandle | None = None
        self._wrong_steps = 0
        """How many steps more it computes wrong gradients."""

    def attach(self, trainer: Trainer) -> None:
        """Take note of what is trained, which some faults change."""
        self._trainer = trainer
        self._course.attach(trainer)

    def heard(self, completed: int, phase: str) -> None:
        """A phase begins in this rank, which has completed so many steps."""
        self._course.heard(completed, phase)
        self._free_the_disk(completed)
        self._calm_the_network(completed)
        self._go_on_being_wrong(phase)
        if completed != self._completed:
            self._completed, self._times = completed, Counter()
        self._times[phase] += 1
        due = [fault for fault in self._faults if self._is_due(fault, phase)]
        for fault in due:
            if fault.kind in ("nan", "bitflip_gradient") and not self._gradients():
                continue  # the same phase comes once more in the step, when there are gradients
            self._faults.remove(fault)
            if fault.rank == self._rank:  # of those that happen everywhere one rank tells
                told = {"fault": str(fault), "time": time.time(), "monotonic": time.monotonic()}
                self._tell({"kind": "fault", **told})
            self._do(fault, completed)

    def _is_due(self, fault: Fault, phase: str) -> bool:
        return fault.is_due(self._completed, phase, self._attempt, self._times[phase])

    def _do(self, fault: Fault, completed: int) -> None:
        match fault.kind:
            case "kill":
                threading.Timer(fault.option("delay"), os.kill, (os.getpid(), signal.SIGKILL)).start()
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "error":
                raise RuntimeError(f"{fault}: put in on purpose")
            case "hang":
                while True:
                    time.sleep(3600)
            case "spin":
                while True:
                    pass
            case "memory":
                _give_no_more_memory()
            case "disk":
                self._full = (fault, completed)
                _limit_files(0)
            case "corrupt_checkpoint":
                self._corrupt_newest_checkpoint()
                os.kill(os.getpid(), signal.SIGKILL)
            case "nan":
                self._gradients()[0].view(-1)[0] = float("nan")
            case "bitflip_gradient":
                _flip(self._gradients()[0], int(fault.option("bit")))
            case "bitflip_local_gradient":
                self._wrong_steps = int(fault.option("steps"))
                self._compute_wrongly(int(fault.option("bit")))
            case "bitflip_weight":
                _flip(self._weight(), int(fault.option("bit")))
            case "network":
                _break_connections()
            case "delay" | "bandwidth" | "partition":
                time.sleep(0.5)  # until the command that leads has recorded that this fault is done
                self._disturb_network(fault, completed)
            case "sigterm":
                os.kill(_parent_of(os.getppid()), signal.SIGTERM)
                self._await_stop()
            case "kill_command":
                time.sleep(0.5)  # until the command has recorded that this fault is done
                os.kill(_parent_of(os.getppid()), signal.SIGKILL)
            case "drop_node":
                time.sleep(0.5)  # until the command that leads has recorded that this fault is done
                _drop_node(self._memory)
            case "kill_supervisor":
                time.sleep(0.5)  # until it has passed on that this fault is done
                os.kill(os.getppid(), signal.SIGKILL)
            case _:
                self._course.begin(fault)

    def _await_stop(self) -> None:
        """Until the request has come round to this rank: short steps would be over before."""
        until = time.monotonic() + _ROUND_SECONDS
        while self._trainer is not None and not self._trainer.stop.asked and time.monotonic() < until:
            time.sleep(0.01)

    def _gradients(self) -> list[Tensor]:
        if self._trainer is None:
            return []
        held = self._trainer.step.model.held
        found = [one.parameter.grad for one in held if one.is_parameter]
        return [_local(gradient) for gradient in found if gradient is not None and _local(gradient).numel()]

    def _weight(self) -> Tensor:
        assert self._trainer is not None, "weights are there from the first step on"
        self._trainer.saver.settle()  # what is being saved is the state before it
        held = self._trainer.step.model.held
        return next(
            _local(one.parameter.data) for one in held if one.is_parameter and _local(one.parameter).numel()
        )

    def _corrupt_newest_checkpoint(self) -> None:
        assert self._trainer is not None
        newest = latest(self._trainer.saver.checkpoints)
        if newest is None:
            return
        sizes = {file.name: file.stat().st_size for file in newest.iterdir()}
        file = newest / max(sizes, key=sizes.__getitem__)
        content = bytearray(file.read_bytes())
        content[len(content) * 3 // 4] ^= 0x10
        file.write_bytes(bytes(content))

    def _compute_wrongly(self, bit: int) -> None:
        assert self._trainer is not None, "weights are there from the first step on"
        first = next(leaf for leaf in leaves(self._trainer.step.model) if leaf.numel())

        def flipped(gradient: Tensor) -> Tensor:
            wrong = gradient.clone()
            _flip(wrong, bit)
            return wrong

        self._wrong = first.register_hook(flipped)  # type: ignore[no-untyped-call]

    def _go_on_being_wrong(self, phase: str) -> None:
        if self._wrong is None or phase != "data":
            return
        self._wrong_steps -= 1
        if not self._wrong_steps:
            self._wrong.remove()
            self._wrong = None

    def _disturb_network(self, fault: Fault, completed: int) -> None:
        match fault.kind:
            case "delay":
                asked = ask_network("delay", fault.option("ms") / 1e3, fault.option("jitter") / 1e3)
            case "bandwidth":
                asked = ask_network("rate", fault.option("mbit") * 1e6 / 8)
            case _:
                ask_network("cut", fault.option("seconds")).close()
                return
        self._disturbed.append((fault, completed, asked))

    def _calm_the_network(self, completed: int) -> None:
        for one in [one for one in self._disturbed if completed >= one[1] + one[0].option("steps")]:
            self._disturbed.remove(one)
            one[2].close()

    def _free_the_disk(self, completed: int) -> None:
        if self._full is not None and completed >= self._full[1] + self._full[0].option("steps"):
            self._full = None
            _limit_files(resource.RLIM_INFINITY)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _flip(tensor: Tensor, bit: int) -> None:
    """Change one bit of the first element."""
    width = tensor.element_size()
    bits = tensor.detach().view(-1)[:1].view(_UNSIGNED[width])
    mask = 1 << (bit % (8 * width))
    bits ^= mask - (1 << 8 * width) if mask >> (8 * width - 1) else mask


def _give_no_more_memory() -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _break_connections() -> None:
    """Shut down every network connection of this process."""
    libc = ctypes.CDLL(None)
    for entry in os.listdir("/proc/self/fd"):
        number = int(entry)
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.family in (socket.AF_INET, socket.AF_INET6):
                        libc.shutdown(number, socket.SHUT_RDWR)
        except OSError:  # closed in the meantime
            continue


def _drop_node(memory: Path | None) -> None:
    """Leave nothing of this node: the processes around this one, what they keep in memory, the command, itself."""
    supervisor = os.getppid()
    command = _parent_of(supervisor)
    os.kill(supervisor, signal.SIGSTOP)  # or it would see its ranks die, and tell
    for process in psutil.Process(supervisor).children(recursive=True):
        if process.pid != os.getpid():
            process.kill()
    if memory is not None:
        shutil.rmtree(memory, ignore_errors=True)
    os.kill(command, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _parent_of(process: int) -> int:
    said = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    return int(said.rpartition(")")[2].split()[1])
