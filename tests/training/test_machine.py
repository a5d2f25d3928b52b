"""What an accelerator and its machine are read to do: units, what is absent, and that no error comes through."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from stoker.record.rows import KINDS
from stoker.training.machine import MachineWatch, accelerator_figures, host_figures

UNCORRECTED, VOLATILE, GRAPHICS = 1, 0, 1
FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


class _NVMLError(Exception):
    """As NVML's library for Python has it."""


class _DriverNotLoaded(_NVMLError):
    """One of its kinds."""


class _Accelerators:
    """Two devices as `pynvml` tells of them. `lacks` are functions that are not there, `fails` those that raise."""

    def __init__(self, bits: int = 0, lacks: tuple[str, ...] = (), fails: tuple[tuple[str, int], ...] = ()) -> None:
        self.module: Any = ModuleType("pynvml")
        self.module.NVMLError, self.module.NVMLError_DriverNotLoaded = _NVMLError, _DriverNotLoaded
        self.module.NVML_MEMORY_ERROR_TYPE_CORRECTED, self.module.NVML_MEMORY_ERROR_TYPE_UNCORRECTED = (
            0,
            UNCORRECTED,
        )
        self.module.NVML_VOLATILE_ECC, self.module.NVML_AGGREGATE_ECC = VOLATILE, 1
        self.module.NVML_TEMPERATURE_GPU, self.module.NVML_CLOCK_SM = 0, GRAPHICS
        told: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid[-1]),
            "nvmlDeviceGetUtilizationRates": lambda one: SimpleNamespace(gpu=87 + one, memory=12),
            "nvmlDeviceGetTemperature": lambda one, sensor: {0: 64 + one}[sensor],
            "nvmlDeviceGetClockInfo": lambda one, clock: {GRAPHICS: 1755 + one}[clock],
            "nvmlDeviceGetPowerUsage": lambda one: 412_500 + one,
            "nvmlDeviceGetTotalEccErrors": lambda one, kind, counter: {(UNCORRECTED, VOLATILE): 3 + one}[
                kind, counter
            ],
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda one: bits,
        }
        for name, function in told.items():
            if name not in lacks:
                setattr(self.module, name, self._guarded(name, function, [one for n, one in fails if n == name]))

    @staticmethod
    def _guarded(name: str, function: Callable[..., Any], failing: list[int]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            if failing and arguments and arguments[0] in failing:
                raise _NVMLError(f"{name}: not supported")
            return function(*arguments)

        return ask

    def put_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", self.module)
        monkeypatch.setattr(torch.cuda, "pynvml", self.module, raising=False)
        monkeypatch.setattr(torch.cuda, "_HAS_PYNVML", True)
        monkeypatch.setattr(torch.cuda, "_PYNVML_ERR", None, raising=False)
        monkeypatch.setattr(torch.cuda, "_get_nvml_device_index", lambda device: torch.device(device).index)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30 * 2**30 - device.index, 80 * 2**30))


def _read(monkeypatch: pytest.MonkeyPatch, device: torch.device = FIRST, **told: Any) -> dict[str, Any]:
    _Accelerators(**told).put_in(monkeypatch)
    return accelerator_figures(device)


WHOLE = {
    "memory_used_bytes": 50 * 2**30,
    "memory_total_bytes": 80 * 2**30,
    "utilisation": pytest.approx(0.87),
    "temperature_celsius": 64.0,
    "clock_hertz": pytest.approx(1.755e9),
    "power_watts": pytest.approx(412.5),
    "ecc_errors": 3,
    "throttled": False,
    "throttle_reasons": "",
}


def test_figures_of_an_accelerator_have_the_records_names_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _read(monkeypatch)
    assert found == WHOLE
    assert found.keys() <= KINDS["machine"].keys()


def test_each_device_is_asked_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _read(monkeypatch, SECOND)
    assert found["memory_used_bytes"] == 50 * 2**30 + 1
    assert (found["utilisation"], found["temperature_celsius"]) == (pytest.approx(0.88), 65.0)
    assert (found["clock_hertz"], found["power_watts"]) == (pytest.approx(1.756e9), pytest.approx(412.501))
    assert found["ecc_errors"] == 4


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x1, ""),  # idle
        (0x2, ""),  # as the clock was set
        (0x4, "power cap"),
        (0x8 | 0x40 | 0x1, "hardware slowdown, thermal (hardware)"),
        (0x20 | 0x80, "thermal (software), power brake"),
    ],
)
def test_a_clock_is_held_down_by_power_or_heat_and_not_by_idleness(
    monkeypatch: pytest.MonkeyPatch, bits: int, reasons: str
) -> None:
    found = _read(monkeypatch, bits=bits)
    assert (found["throttled"], found["throttle_reasons"]) == (bool(reasons), reasons)


def test_reasons_are_asked_for_by_the_newer_name_where_the_older_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = _Accelerators(lacks=("nvmlDeviceGetCurrentClocksThrottleReasons",))
    devices.module.nvmlDeviceGetCurrentClocksEventReasons = lambda one: {0: 0x8}[one]
    devices.put_in(monkeypatch)
    assert accelerator_figures(FIRST) == {**WHOLE, "throttled": True, "throttle_reasons": "hardware slowdown"}


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilisation"}),
        ("nvmlDeviceGetTemperature", {"temperature_celsius"}),
        ("nvmlDeviceGetClockInfo", {"clock_hertz"}),
        ("nvmlDeviceGetPowerUsage", {"power_watts"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_errors"}),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", {"throttled", "throttle_reasons"}),
    ],
)
def test_what_a_device_or_a_library_does_not_tell_is_absent_and_all_else_is_there(
    monkeypatch: pytest.MonkeyPatch, function: str, fields: set[str]
) -> None:
    rest = {name: value for name, value in WHOLE.items() if name not in fields}
    assert _read(monkeypatch, fails=((function, 0),)) == rest
    assert _read(monkeypatch, SECOND, fails=((function, 0),)).keys() == WHOLE.keys()  # the other one tells
    assert _read(monkeypatch, lacks=(function,)) == rest


def test_without_the_library_memory_alone_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _Accelerators().put_in(monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.cuda, "_HAS_PYNVML", False)
    monkeypatch.setattr(torch.cuda, "_PYNVML_ERR", ModuleNotFoundError("pynvml"), raising=False)
    assert accelerator_figures(FIRST).keys() == {"memory_used_bytes", "memory_total_bytes"}


def test_a_device_that_is_lost_tells_nothing_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _Accelerators().put_in(monkeypatch)

    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: the device fell off the bus")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    monkeypatch.setattr(torch.cuda, "_get_nvml_device_index", lost)
    assert accelerator_figures(FIRST) == {}
    rows: list[dict[str, Any]] = []
    watch = MachineWatch(FIRST, 0.001, rows.append, of_host=False)
    while len(rows) < 3:
        pass
    watch.close()
    assert all(row.keys() == {"time"} for row in rows)


def test_of_the_host_network_is_summed_over_all_interfaces_but_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = {
        name: SimpleNamespace(bytes_sent=sent, bytes_recv=received)
        for name, sent, received in (("lo", 10**9, 10**9), ("eth0", 70, 11), ("ib0", 500, 9000))
    }
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: counters if pernic else None)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 37.5)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000, available=640, used=200))
    assert host_figures() == {
        "processor_share": 0.375,
        "host_memory_used_bytes": 360,
        "host_memory_total_bytes": 1000,
        "network_sent_bytes": 570,
        "network_received_bytes": 9011,
    }
