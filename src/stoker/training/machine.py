"""What the machine is doing while it trains: its processors, memory and network, and its accelerator.

Read now and then in a thread of its own. What a platform does not tell is absent.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch

_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""NVML's reasons for which an accelerator's clock is lower than it could be, but for idleness and settings."""
_ASKED_FOR_REASONS = "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksEventReasons"
"""One function, which NVML has renamed."""


class MachineWatch:
    """Calls `record` with a row every so many seconds until it is closed."""

    def __init__(
        self,
        device: torch.device,
        seconds: float,
        record: Callable[[dict[str, Any]], None],
        *,
        of_host: bool,
        latency: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`of_host` has it read what belongs to the whole machine: for one rank on each. `latency` tells how long a
        message to another machine and its answer take, in seconds."""
        self._device, self._seconds, self._record, self._of_host = device, seconds, record, of_host
        self._latency = latency
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if seconds > 0 and (of_host or device.type == "cuda"):
            psutil.cpu_percent()  # the first call begins what the next one ends
            self._thread = threading.Thread(target=self._run, name="machine", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            row: dict[str, Any] = {"time": time.time()}
            if self._of_host:
                row |= host_figures()
                row |= {} if (seconds := self._latency()) is None else {"network_latency_seconds": seconds}
            if self._device.type == "cuda":
                row |= accelerator_figures(self._device)
            with contextlib.suppress(ValueError):  # the record was closed in between
                self._record(row)


def host_figures() -> dict[str, Any]:
    """Of this machine's processors, memory and network."""
    figures: dict[str, Any] = {}
    with contextlib.suppress(OSError, RuntimeError):
        figures["processor_share"] = psutil.cpu_percent() / 100
        memory = psutil.virtual_memory()
        figures["host_memory_used_bytes"] = memory.total - memory.available
        figures["host_memory_total_bytes"] = memory.total
    with contextlib.suppress(OSError, RuntimeError):
        counted = [one for name, one in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        figures["network_sent_bytes"] = sum(one.bytes_sent for one in counted)
        figures["network_received_bytes"] = sum(one.bytes_recv for one in counted)
    return figures


def accelerator_figures(device: torch.device) -> dict[str, Any]:
    """Of a CUDA device. All but its memory need the package nvidia-ml-py."""
    figures: dict[str, Any] = {}
    with contextlib.suppress(RuntimeError):
        free, total = torch.cuda.mem_get_info(device)
        figures |= {"memory_used_bytes": total - free, "memory_total_bytes": total}
    asked: dict[str, Callable[[], float]] = {
        "utilisation": lambda: torch.cuda.utilization(device) / 100,
        "temperature_celsius": lambda: float(torch.cuda.temperature(device)),
        "clock_hertz": lambda: torch.cuda.clock_rate(device) * 1e6,
        "power_watts": lambda: torch.cuda.power_draw(device) / 1e3,
    }
    for name, ask in asked.items():
        with contextlib.suppress(Exception):  # no package, no driver, or a device that does not tell
            figures[name] = ask()
    with contextlib.suppress(Exception):
        figures |= _of_nvml(torch.cuda._get_pynvml_handler(device))
    return figures


def _of_nvml(handle: Any) -> dict[str, Any]:
    pynvml: Any = importlib.import_module("pynvml")  # absent where there are no devices of NVIDIA's

    figures: dict[str, Any] = {}
    # Library or driver may be older or newer than a function: what one lacks is absent, and nothing else.
    lacking = AttributeError, pynvml.NVMLError
    with contextlib.suppress(*lacking):
        figures["ecc_errors"] = pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    for function in _ASKED_FOR_REASONS:
        with contextlib.suppress(*lacking):
            bits = getattr(pynvml, function)(handle)
            reasons = [reason for bit, reason in _REASONS.items() if bits & bit]
            figures |= {"throttled": bool(reasons), "throttle_reasons": ", ".join(reasons)}
            break
    return figures
