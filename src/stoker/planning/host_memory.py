"""What a node's own memory holds beside the ranks' work: what they offload, and copies of their state.

Every save goes through a copy in host memory, one a rank, that is used again and again. With `recovery.copy_every`
there are two instead, and with `recovery.copy_gradients_every` two of the gradients as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from stoker.planning.machine import Hardware
from stoker.planning.memory import host_bytes_of_rank, optimizer_bytes
from stoker.planning.parts import Part, parts_of_rank, ranks_that_differ
from stoker.recipe import Recipe
from stoker.wording import size

_GIB = 2**30
_KEPT = 2


class HostMemory(BaseModel):
    """GiB of this node's own memory that its ranks need together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offloaded: float
    """Weights, optimizer state, activations: what rests there; 0 on processors, whose memory it is anyway."""
    saved_from: float
    """One copy of weights and optimizer state a rank, which checkpoints are written from."""
    copies: float
    """With `recovery.copy_every`: two a rank, in place of that one."""
    gradient_copies: float
    """With `recovery.copy_gradients_every`: two a rank of the gradients so far."""
    total: float
    available: float
    """What was free of it."""


def offloaded_bytes(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> int:
    """What the ranks of one machine with accelerators need together of its own memory, for what they offload."""
    if hardware.device == "cpu":
        return 0
    training = recipe.training
    firsts = [1, *(ramp.step for ramp in training.batch_ramp if ramp.step <= training.steps)]
    micro_batch_size = max(recipe.micro_batch_size_at(first) for first in firsts)
    ranks = ranks_that_differ(recipe)
    most = max(host_bytes_of_rank(recipe, vocabulary_size, micro_batch_size, rank) for rank in ranks)
    return most * _ranks_here(recipe, hardware)


def copied_bytes(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> int:
    """What the ranks of one machine need together for copies of their state, whatever they compute on."""
    saved_from, copies, gradients = _copies(recipe, vocabulary_size)
    return (saved_from + copies + gradients) * _ranks_here(recipe, hardware)


def host_memory(recipe: Recipe, vocabulary_size: int, hardware: Hardware) -> HostMemory:
    """Of the machine's own memory, in GiB."""
    here = _ranks_here(recipe, hardware)
    saved_from, copies, gradients = _copies(recipe, vocabulary_size)
    offloaded = offloaded_bytes(recipe, vocabulary_size, hardware)
    return HostMemory(
        offloaded=offloaded / _GIB,
        saved_from=saved_from * here / _GIB,
        copies=copies * here / _GIB,
        gradient_copies=gradients * here / _GIB,
        total=(offloaded + (saved_from + copies + gradients) * here) / _GIB,
        available=hardware.host_available_bytes / _GIB,
    )


def missing_on_host(needed: HostMemory, recipe: Recipe, device: str, margin: float) -> Iterator[str]:
    """Why it does not fit, and what to do; on a processor that is told of all its memory together."""
    if device == "cpu" or needed.total <= margin * needed.available:
        return
    remedies = ["offload less"] if needed.offloaded else []
    if recipe.recovery.copy_gradients_every:
        remedies.append("recovery.copy_gradients_every=0")
    if recipe.recovery.copy_every:
        remedies.append("recovery.copy_every=0 (one copy instead of two)")
    remedies.append("use more machines")
    yield (
        f"{parts_of(needed)} needs {size(needed.total * _GIB)} of host memory, but "
        f"{size(needed.available * _GIB)} are free; {', or '.join(remedies)}"
    )


def parts_of(needed: HostMemory) -> str:
    """What it is for, in words, as far as there is any."""
    parts = {
        "what is offloaded": needed.offloaded,
        "the copy that is saved from": needed.saved_from,
        "two copies of the state": needed.copies,
        "two copies of the gradients": needed.gradient_copies,
    }
    return ", ".join(f"{name} ({size(gib * _GIB)})" for name, gib in parts.items() if gib)


def _copies(recipe: Recipe, vocabulary_size: int) -> tuple[int, int, int]:
    """Of one rank, in bytes: the copy that is saved from, those that are kept, those of gradients."""
    held = [parts_of_rank(recipe, vocabulary_size, rank) for rank in ranks_that_differ(recipe)]
    state, recovery = max(_state_bytes(recipe, parts) for parts in held), recipe.recovery
    if not recovery.copy_every:
        return state, 0, 0
    gradients = 0
    if recovery.copy_gradients_every:
        gradients = _KEPT * max(map(_held, held)) * _width(recipe)
    return 0, _KEPT * state, gradients


def state_bytes_of_rank(recipe: Recipe, vocabulary_size: int, rank: int) -> int:
    """What `rank` holds of weights and optimizer state: what it copies for a save."""
    return _state_bytes(recipe, parts_of_rank(recipe, vocabulary_size, rank))


def _state_bytes(recipe: Recipe, parts: Sequence[Part]) -> int:
    return _held(parts) * _width(recipe) + optimizer_bytes(recipe, parts)


def _held(parts: Sequence[Part]) -> int:
    return sum(part.held_elements for part in parts)


def _width(recipe: Recipe) -> int:
    return 2 if recipe.training.precision == "pure_bf16" else 4


def _ranks_here(recipe: Recipe, hardware: Hardware) -> int:
    ranks = recipe.layout.world_size
    return hardware.ranks_here(ranks) if hardware.device == "cpu" else min(hardware.devices, ranks)
