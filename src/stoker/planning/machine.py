"""The machine a plan is made for: what it has, what its maker says of it, and what was measured on it."""

from __future__ import annotations

import importlib
import os
import platform
from pathlib import Path
from typing import Literal

import psutil
import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stoker.durable_files import write_text
from stoker.errors import BadInput
from stoker.planning.cluster.accelerators import Accelerator, accelerators
from stoker.planning.rates import Rates, Work, measure_rates
from stoker.recipe import Recipe

_DEFAULT_VOCABULARY = 8192


class Hardware(BaseModel):
    """What a machine has, before anything is measured on it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: Literal["cpu", "cuda"]
    name: str
    """Processor's or accelerator's name."""
    devices: int = Field(ge=1)
    """Accelerators; 1 on a machine that computes on its processor, which all ranks share."""
    cores: int = Field(ge=1)
    threads: int = Field(ge=1)
    """Processor threads of one rank, with which the rates were measured."""
    memory_bytes: int = Field(ge=0)
    """Of one accelerator, or of the whole machine."""
    available_bytes: int = Field(ge=0)
    """What was free of it when it was measured."""
    host_available_bytes: int = Field(ge=0)
    """What was free of the host's memory; the same on a machine that computes on its processor."""
    runtime_bytes: int = Field(ge=0)
    """Memory of a rank that holds no model yet (Python, libraries), where ranks share the machine's memory."""
    accelerator: Accelerator | None = None
    """None on a processor, and for an accelerator that is not in the table: then there is no published peak."""

    def ranks_here(self, world_size: int) -> int:
        """How many ranks of a run of `world_size` share this machine's memory (CPU) or one device (CUDA: 1)."""
        return world_size if self.device == "cpu" else 1


class Machine(Hardware):
    """One machine, as far as a plan needs to know it."""

    rates: Rates
    precision: str | None = None
    """That the rates are of; None where nobody said."""

    def peak_flops_per_second(self, precision: str) -> float | None:
        """What model FLOPs are held against: the published peak; on a processor the measured one."""
        if self.device == "cpu":
            return self.rates.matmul_flops_per_second
        return None if self.accelerator is None else self.accelerator.peak_flops_per_second(precision)

    def summary(self) -> str:
        """The rates, a line each."""
        rates = self.rates
        return (
            f"{self.name}, {self.threads} of {self.cores} cores for a rank\n"
            f"matrix products    {rates.matmul_flops_per_second / 1e9:,.1f} GFLOP/s\n"
            f"attention          {rates.attention_flops_per_second / 1e9:,.1f} GFLOP/s\n"
            f"norms, activations {rates.pointwise_bytes_per_second / 1e9:,.1f} GB/s\n"
            f"loss               {rates.loss_bytes_per_second / 1e9:,.1f} GB/s\n"
            f"optimizer          {rates.update_bytes_per_second / 1e9:,.1f} GB/s\n"
            f"copies             {rates.copy_bytes_per_second / 1e9:,.1f} GB/s"
        )


def look_at_machine(recipe: Recipe | None = None) -> Hardware:
    """What this machine has, and the threads one rank of `recipe` will have. Measures and allocates nothing."""
    if _wants_cuda(recipe):
        return _cuda_hardware()
    # Torch's optimizers and custom operators load its tracer as soon as they are used: 150 MB of every rank.
    importlib.import_module("torch._dynamo")
    ranks = recipe.layout.world_size if recipe else 1
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    cores = min(cores, len(os.sched_getaffinity(0)))
    memory, available = _host_memory()
    return Hardware(
        device="cpu",
        name=_processor_name(),
        devices=1,
        cores=cores,
        threads=(recipe.training.threads if recipe else None) or max(1, cores // ranks),
        memory_bytes=memory,
        available_bytes=available,
        host_available_bytes=available,
        runtime_bytes=psutil.Process().memory_info().rss,
    )


def measure_machine(
    recipe: Recipe | None = None, vocabulary_size: int | None = None, hardware: Hardware | None = None
) -> Machine:
    """Look at this machine and measure, in about a second, how fast it does a model's operations.

    With a `recipe` the rates are those of its shapes, its precision and the threads one of its ranks
    will have; without, those of a small fp32 model. Holds tensors of those shapes: ask `require_fits`
    first. Starts no process and leaves the thread count as it was. `hardware` is what
    `look_at_machine` gave for the same recipe.
    """
    work = Work.of(recipe, vocabulary_size or _DEFAULT_VOCABULARY)
    hardware = hardware or look_at_machine(recipe)
    if hardware.device == "cuda":
        rates = measure_rates(work, torch.device("cuda", torch.cuda.current_device()))
    else:
        before = torch.get_num_threads()
        torch.set_num_threads(hardware.threads)
        try:
            rates = measure_rates(work, torch.device("cpu"))
        finally:
            torch.set_num_threads(before)
    return Machine(**dict(hardware), rates=rates, precision=recipe.training.precision if recipe else "fp32")


def _wants_cuda(recipe: Recipe | None) -> bool:
    wanted = recipe.training.device if recipe else "auto"
    return wanted != "cpu" and torch.cuda.is_available()


def _cuda_hardware() -> Hardware:
    device = torch.device("cuda", torch.cuda.current_device())
    available, memory = torch.cuda.mem_get_info(device)
    name = torch.cuda.get_device_name(device)
    return Hardware(
        device="cuda",
        name=name,
        devices=torch.cuda.device_count(),
        cores=psutil.cpu_count(logical=False) or 1,
        threads=torch.get_num_threads(),
        memory_bytes=memory,
        available_bytes=available,
        host_available_bytes=_host_memory()[1],
        runtime_bytes=0,
        accelerator=accelerators().get(name.casefold()),
    )


def write_machine(machine: Machine, path: Path) -> None:
    """Write what was measured, to be read by `read_machine`."""
    write_text(path, yaml.safe_dump(machine.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def read_machine(path: Path) -> Machine:
    """A machine measured before. Raises `BadInput` for a file that is none."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); `stoker plan calibrate` writes one") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    try:
        return Machine.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise BadInput(
            f"{path} is no measured machine: {place}: {first['msg']}; `stoker plan calibrate` writes one"
        ) from None


def _host_memory() -> tuple[int, int]:
    """Bytes of memory this process may use, in all and now: the machine's, or its control group's if less."""
    memory = psutil.virtual_memory()
    limit_file, used_file = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit_file.is_file() and used_file.is_file():
        limit = limit_file.read_text().strip()
        if limit.isdigit() and int(limit) < memory.total:
            free = max(0, int(limit) - int(used_file.read_text()))
            return int(limit), min(memory.available, free)
    return memory.total, memory.available


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
