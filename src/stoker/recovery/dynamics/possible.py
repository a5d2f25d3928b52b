"""Which faults of training dynamics a recipe can have."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.errors import BadInput
from stoker.recipe import Recipe
from stoker.recovery.dynamics.kinds import DYNAMICS
from stoker.recovery.faults import Fault

_SHARES = ("bad_data", "repeat_batch", "oversample", "mixture_shift", "lost_rng", "lost_optimizer_state")
_BETWEEN_RANKS = ("jitter", "slow_network")
SHORTEST = 8
"""Tokens of a sequence, at least, that a change of length leaves."""


def require_possible_course(fault: Fault, recipe: Recipe) -> None:
    """Raise `BadInput` when a run of `recipe` cannot have this fault, saying why."""
    if fault.kind not in DYNAMICS:
        return
    for why_not in _reasons(fault, recipe):
        raise BadInput(f"--fault {fault}: {why_not}")


def _reasons(fault: Fault, recipe: Recipe) -> Iterator[str]:
    strength = fault.option("strength")
    if fault.kind in _SHARES and strength > 1:
        yield f"strength is a share here, at most 1, not {strength:g}"
    if DYNAMICS[fault.kind].everywhere and fault.rank:
        yield f"it happens on all ranks alike: leave the rank ({fault.rank}) out"
    if fault.kind == "repeat_batch" and fault.step < 2:
        yield "there is no step before the first whose sequences could come again; give step 2 or a later one"
    if fault.kind == "lost_rng" and fault.step < 2:
        yield "the order of samples is at its beginning in step 1; give step 2 or a later one"
    if fault.kind in ("oversample", "mixture_shift"):
        yield from _about_sources(fault, recipe)
    if fault.kind in _BETWEEN_RANKS and recipe.layout.world_size == 1:
        yield "one rank sums nothing with others; give a layout of 2 ranks or more"
    if fault.kind == "accumulation_bug" and recipe.accumulation_at(fault.step) == 1:
        yield (
            f"step {fault.step} has one micro-batch on each rank, whose loss is divided by the right count in any "
            "case; give a smaller training.micro_batch_size"
        )
    if fault.kind == "overflow" and recipe.training.precision != "fp16":
        yield f"there is a loss scale only with training.precision fp16, and it is {recipe.training.precision}"
    if fault.kind == "router_collapse" and recipe.model.moe is None:
        yield "the model has no routers; give one with experts (model.moe)"
    if fault.kind == "logit_growth" and recipe.model.latent_attention is not None:
        yield "queries and keys of latent attention have no gains of their own; give a model without it"
    if fault.kind == "length_change":
        yield from _about_length(fault, recipe)


def _about_sources(fault: Fault, recipe: Recipe) -> Iterator[str]:
    weighed = [source.name for source in recipe.data.sources if source.weight != 0]
    if len(weighed) < 2:
        yield f"a mixture of one source ({', '.join(weighed)}) is always the same; give data.sources a second one"
    if fault.kind == "oversample" and (name := fault.word("source")) and name not in weighed:
        yield f"the recipe samples no source {name!r}; it has {', '.join(weighed)}"


def _about_length(fault: Fault, recipe: Recipe) -> Iterator[str]:
    layout, longer = recipe.layout, fault.word("what") == "longer"
    if layout.pp > 1:
        yield "stages of a pipeline exchange tensors of one length; give a layout with pp=1"
    if longer and recipe.model.position == "learned":
        yield "the model has learned positions, and none beyond training.sequence_length; give what=shorter"
    if changed_length(fault, recipe) < SHORTEST:
        yield f"fewer than {SHORTEST} tokens a sequence would be left; give less strength"


def changed_length(fault: Fault, recipe: Recipe) -> int:
    """Tokens of a sequence while `fault` lasts: such that all ranks have as many of them."""
    power: float = fault.option("strength") * (1 if fault.word("what") == "longer" else -1)
    parts = 2 * recipe.layout.cp * recipe.layout.tp
    wanted: float = recipe.training.sequence_length * 2.0**power
    return parts * max(1, round(wanted / parts))
