"""Which machine, device and versions a run had. No secrets: nothing is taken from environment variables."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

from stoker import __version__

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "polars", "pyarrow", "pydantic", "transformers")


def describe_environment(device: torch.device | str) -> dict[str, Any]:
    """Versions, processor, memory, threads, accelerators and host of this process, as a JSON object.

    `device` is the one the run computes on; `auto` is an accelerator if there is one. Memory is in bytes.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    return {
        "stoker": {"version": __version__, "commit": git_commit(Path(__file__).parent)},
        "python": platform.python_version(),
        "packages": _package_versions(),
        "device": {"type": device.type, "name": _device_name(device)},
        "accelerators": _accelerators(),
        "processor": {
            "name": processor_name(),
            "architecture": platform.machine(),
            "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
            "logical_cores": os.cpu_count(),
            "usable_cores": _usable_cores(),
        },
        "memory_bytes": psutil.virtual_memory().total,
        "threads": torch.get_num_threads(),
        "operating_system": _operating_system(),
        "host": socket.gethostname(),
    }


def _package_versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def git_commit(folder: Path) -> str | None:
    """The commit of the checkout that `folder` belongs to, with `+changes` when files differ from it; or None."""
    commit = _git(folder, "rev-parse", "HEAD")
    # A package installed inside some other project's checkout is not tracked there.
    if not commit or not _git(folder, "ls-files", "--", "."):
        return None
    return commit + ("+changes" if _git(folder, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor_name() -> str:
    """The processor's model as the operating system names it."""
    if sys.platform == "darwin":
        return _first_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _first_line(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _device_name(device: torch.device) -> str:
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return processor_name() if device.type == "cpu" else str(device)


def _accelerators() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append({"name": properties.name, "memory_bytes": properties.total_memory})
    return found


def _usable_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _operating_system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.release()}"
    except (OSError, KeyError, AttributeError):
        return f"{platform.system()} {platform.release()}"
