"""Figures of memory: which of torch's counters each is, and that those of the host are this process's own."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from stoker.profiling.checklist import Case, _fragmentation
from stoker.profiling.recording import memory_facts
from stoker.training import memory

CUDA, CPU = torch.device("cuda", 1), torch.device("cpu")
MIB = 2**20


def test_of_cuda_each_figure_is_the_allocators_own_of_that_device(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = {"max_memory_reserved": 700, "max_memory_allocated": 500, "memory_allocated": 300}
    for name, value in counters.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value + device.index)
    assert memory.reserved_memory_bytes(CUDA) == 701
    assert memory.peak_memory_bytes(CUDA) == 501
    assert memory.allocated_memory_bytes(CUDA) == 301
    assert memory.reserved_memory_bytes(CPU) is None
    assert memory.allocated_memory_bytes(CPU) is None


def test_host_memory_goes_up_and_down_with_what_the_process_holds_and_its_peak_stays() -> None:
    before, peak = memory.host_memory_bytes(), memory.peak_memory_bytes(CPU)
    assert before == pytest.approx(psutil.Process().memory_info().rss, abs=4 * MIB)
    size = peak - before + 64 * MIB
    held = mmap.mmap(-1, size)
    for place in range(0, size, mmap.PAGESIZE):
        held[place] = 1
    assert memory.host_memory_bytes() - before == pytest.approx(size, abs=8 * MIB)
    held.close()
    assert memory.host_memory_bytes() - before == pytest.approx(0, abs=8 * MIB)
    assert memory.peak_memory_bytes(CPU) - before == pytest.approx(size, abs=16 * MIB)


def _case(*told: dict[str, int]) -> Case:
    picture: Any = SimpleNamespace(facts=[{"memory": one} for one in told])
    return Case(picture, recipe=None, step=1, reachable=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reserved", "retries", "answer", "lost"),
    [(1000, 0, "yes", "20.0 MiB (2.0%)"), (1112, 0, "no", "132 MiB (11.9%)"), (1000, 1, "no", "20.0 MiB (2.0%)")],
)
def test_fragments_are_what_was_reserved_and_never_in_use_of_the_worst_rank(
    reserved: int, retries: int, answer: str, lost: str
) -> None:
    sound = {"peak_allocated": 990 * MIB, "peak_reserved": 1000 * MIB, "retries": 0}
    other = {"peak_allocated": 980 * MIB, "peak_reserved": reserved * MIB, "retries": retries}
    found = _fragmentation(_case(sound, other))
    assert found.answer == answer
    assert found.figures.startswith(f"{lost} of what is reserved")
    assert f"had to begin anew {retries} times" in found.figures


def test_nothing_is_said_of_fragments_where_the_allocator_does_not_tell() -> None:
    assert _fragmentation(_case({"parameters": 5})).answer == "unknown"


def test_a_profiles_facts_of_memory_are_the_allocators_and_the_states_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"allocated_bytes.all.peak": 5, "reserved_bytes.all.peak": 9, "num_alloc_retries": 2}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: told)
    weights = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.bfloat16))
    held = [SimpleNamespace(is_parameter=True, parameter=weights), SimpleNamespace(is_parameter=False)]
    state = {weights: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3, 4), "note": "kept"}}
    step = SimpleNamespace(model=SimpleNamespace(held=held), optimizer=SimpleNamespace(state=state))
    trainer: Any = SimpleNamespace(step=step)
    world: Any = SimpleNamespace(device=CUDA)
    facts = {"parameters": 24, "optimizer": 4 + 48, "peak_allocated": 5, "peak_reserved": 9, "peak_split": 0}
    assert memory_facts(trainer, world) == {**facts, "retries": 2}
    world.device = CPU
    assert memory_facts(trainer, world) == {"parameters": 24, "optimizer": 52}
