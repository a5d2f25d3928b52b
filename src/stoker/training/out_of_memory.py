"""When memory runs out: what was seen, what the plan had expected, and what to change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

from stoker.data.corpus import Corpus
from stoker.errors import OutOfMemory, StokerError
from stoker.planning import look_at_machine
from stoker.planning.plan import needed_bytes, what_fits
from stoker.recipe import Recipe
from stoker.run_directory import RunDirectory
from stoker.training.memory import peak_memory_bytes, reserved_memory_bytes
from stoker.wording import size

_GIB = 2**30
_MARGIN = 1.2
"""A change that is named has to help: what allocators lose between their blocks counts, too."""
_CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers")
_ASKED_FOR = re.compile(r"ried to allocate ([\d.,]+ ?\w+)")
_ELSEWHERE = re.compile(r"rank (\d+) failed: ")
"""How ranks that do something together say which of them could not."""
_OF_THE_HOST = ("DefaultCPUAllocator", "can't allocate memory", "Cannot allocate memory")


def ran_out(error: BaseException) -> bool:
    """Whether `error` says that there was no memory left: of an accelerator's allocator or the host's."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    expected = isinstance(error, (RuntimeError, OSError, StokerError))  # the last: from a save, on any rank
    return expected and any(words in str(error) for words in _OF_THE_HOST)


def as_seen(error: BaseException, rank: int, device: torch.device) -> OutOfMemory | RuntimeError:
    """What this rank had when memory ran out; when it says that it ran out on another, only that."""
    elsewhere = _ELSEWHERE.match(str(error))
    if elsewhere is not None and int(elsewhere[1]) != rank:
        return RuntimeError(f"rank {elsewhere[1]} ran out of memory")
    asked = _ASKED_FOR.search(str(error))
    wanted = f" when it asked for {asked[1]}" if asked else ""
    held, reserved = peak_memory_bytes(device), reserved_memory_bytes(device)
    unused = "" if reserved is None else f", and the allocator {size(reserved)}"
    what = "allocated" if device.type == "cuda" else "resident"
    seen = OutOfMemory(f"rank {rank} ran out of memory{wanted}; it had {size(held)} {what} at most{unused}")
    seen.held_bytes = held
    return seen


def oom_kills() -> int:
    """How many processes Linux has killed for memory since it started; 0 where it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def with_help(error: OutOfMemory, recipe: Recipe, run: RunDirectory, corpus: Corpus) -> OutOfMemory:
    """`error` with what the plan expected by category, and the three cheapest changes that would fit."""
    lines = [str(error)]
    expected = _expected(run)
    if expected is not None:
        parts = ", ".join(f"{name} {size(expected[name] * _GIB)}" for name in _CATEGORIES)
        lines.append(f"the plan expected {size(expected['total'] * _GIB)} at most on a rank: {parts}")
    machine, vocabulary_size = look_at_machine(recipe), corpus.vocabulary_size
    ranks = machine.ranks_here(recipe.layout.world_size)
    if expected is not None:  # this process may hold the model still: what it held without one is in the plan
        bare = needed_bytes(recipe, vocabulary_size, machine.model_copy(update={"runtime_bytes": 0})) // ranks
        runtime = max(0, int(expected["total"] * _GIB) - bare)
        machine = machine.model_copy(update={"runtime_bytes": min(runtime, machine.runtime_bytes)})
    # More than was held was needed, and no more than was held is there, whatever was predicted and looks free.
    available = error.held_bytes * ranks or machine.available_bytes
    beyond = _MARGIN * max(1.0, available / needed_bytes(recipe, vocabulary_size, machine))
    found = what_fits(recipe, vocabulary_size, machine.model_copy(update={"available_bytes": available}), beyond)
    lines += [f"this would fit: {remedy}" for remedy in found]
    if not found:
        lines.append(
            "no smaller micro-batch, recomputation or sharding fits either: use more ranks or a smaller model"
        )
    helped = OutOfMemory("\n  ".join(lines))
    helped.held_bytes = error.held_bytes
    return helped


def _expected(run: RunDirectory) -> dict[str, Any] | None:
    try:
        plan = json.loads(run.plan.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = plan.get("peak_memory_gib")
    return found if isinstance(found, dict) and {*_CATEGORIES, "total"} <= found.keys() else None
