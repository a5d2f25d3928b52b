"""Which operations of which layers backward computes again: as the recipe says, or solved for a budget of bytes.

Keeping what an operation gave costs bytes and saves the work of giving it again. For one layer the sets of
operations that may be recomputed are few, so that all of them are looked at; over layers this is a multiple-choice
knapsack, solved exactly by its Pareto frontier (Nemhauser & Ullmann 1969): of the ways to keep some layers, only
those are gone on with that no other beats in bytes and in work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stoker.errors import BadInput
from stoker.planning.activations import MicroBatch, kept_by_layer, numbers_of
from stoker.planning.operations import Repeated, repeated
from stoker.recipe import Model
from stoker.recipe.memory import OPERATIONS, Operation, Recomputation, Recompute, Recomputed

_MIB = 2**20
_FLOPS_PER_BYTE = {True: 6.0, False: 200.0}
"""What a machine computes while it moves a byte of memory: a processor, an accelerator. The choice must be the same
on all ranks, so that no measured rate enters it."""
_BYTES_PER_BYTE_SENT = 10.0


class Option(NamedTuple):
    """One way to run a layer."""

    recomputed: Recomputed | None
    kept: int
    """Bytes from its forward to its backward pass."""
    work: float
    """Done again, in floating-point operations or what could be done of them meanwhile."""


def options_of(config: Model, pass_: MicroBatch, layer: int) -> list[Option]:
    """The ways to run a layer that no other beats, the one that keeps least first."""
    possible = operations_of(config, layer)
    subsets = itertools.chain.from_iterable(
        itertools.combinations(possible, count) for count in range(len(possible) + 1)
    )
    left_out = frozenset(OPERATIONS) - frozenset(possible)
    choices: list[Recomputed | None] = [None, *(left_out.union(subset) for subset in subsets)]
    options = [_option(config, pass_, layer, choice) for choice in choices]
    best: list[Option] = []
    for option in sorted(options, key=lambda one: (one.kept, one.work)):
        if not best or option.work < best[-1].work:
            best.append(option)
    return best


def operations_of(config: Model, layer: int) -> tuple[Operation, ...]:
    """Those that a layer has."""
    if not config.has_experts(layer):
        return tuple(one for one in OPERATIONS if one != "experts")
    shared = config.moe is not None and config.moe.shared_experts > 0
    return tuple(one for one in OPERATIONS if shared or one != "feed_forward")


def _option(config: Model, pass_: MicroBatch, layer: int, recomputed: Recomputed | None) -> Option:
    kept = kept_by_layer(config, pass_, layer, recomputed)
    return Option(
        recomputed, kept, 0.0 if recomputed is None else work_of(repeated(config, pass_, layer, recomputed), pass_)
    )


def work_of(again: Repeated, pass_: MicroBatch) -> float:
    """`Option.work` of what is done again."""
    moved = again.moved + _BYTES_PER_BYTE_SENT * again.sent
    return (
        sum(one.flops for one in again.matmuls) + again.attention_flops + moved * _FLOPS_PER_BYTE[pass_.dense_masks]
    )


def solve(layers: Sequence[Sequence[Option]], budget: int) -> list[Option]:
    """One option of each layer: least work of all that keep at most `budget` bytes together.

    Raises `BadInput` when even the smallest do not fit.
    """
    least = sum(min(option.kept for option in options) for options in layers)
    if least > budget:
        raise BadInput(
            f"training.memory.recompute.budget_mib is {budget / _MIB:.4g}, but layers that recompute everything "
            f"keep {least / _MIB:.4g} MiB for their inputs alone; give at least that, or a smaller micro-batch"
        )
    kept, work = np.zeros(1, dtype=np.int64), np.zeros(1)
    steps: list[tuple[np.ndarray, np.ndarray]] = []
    for options in layers:
        more = np.add.outer(kept, np.array([option.kept for option in options], dtype=np.int64))
        total = np.add.outer(work, np.array([option.work for option in options]))
        order = np.lexsort((total.ravel(), more.ravel()))
        order = order[more.ravel()[order] <= budget]
        sums = total.ravel()[order]
        better = np.concatenate([[True], sums[1:] < np.minimum.accumulate(sums)[:-1]])
        order = order[better]
        kept, work = more.ravel()[order], total.ravel()[order]
        steps.append(np.divmod(order, len(options)))
    chosen: list[Option] = []
    place = len(kept) - 1
    for options, (before, option) in zip(reversed(layers), reversed(steps), strict=True):
        chosen.append(options[int(option[place])])
        place = int(before[place])
    return chosen[::-1]


def recomputation(
    wanted: Recompute, config: Model, pass_: MicroBatch, stages: Iterable[tuple[range, int]]
) -> Recomputation:
    """Of the layers of a rank whose stages are given with the most passes of each that are in flight at a time.

    `config` has the rank's heads and inner widths. Where stages are at their highest at different moments, a
    budget is for all of them at their highest.
    """
    flights = {number: most for layers, most in stages for number in numbers_of(config, layers)}
    if wanted.name == "budget":
        assert wanted.budget_mib is not None
        found = _within(int(wanted.budget_mib * _MIB), config, pass_, flights)
    else:
        found = {number: choice for number in flights if (choice := wanted.of_layer(number)) is not None}
    if not pass_.compiled:
        return Recomputation(found)
    full = {number: choice for number, choice in found.items() if choice == frozenset(OPERATIONS)}
    shares = {
        number: _share(config, pass_, number, choice) for number, choice in found.items() if number not in full
    }
    return Recomputation(full, shares)


def _within(budget: int, config: Model, pass_: MicroBatch, flights: Mapping[int, int]) -> dict[int, Recomputed]:
    kinds = {(config.has_experts(number)): number for number in flights}
    ways = {experts: options_of(config, pass_, number) for experts, number in kinds.items()}
    layers = [
        [option._replace(kept=option.kept * most) for option in ways[config.has_experts(number)]]
        for number, most in flights.items()
    ]
    chosen = _latest_keep_most(
        solve(layers, budget), [(config.has_experts(n), most) for n, most in flights.items()]
    )
    return {
        number: option.recomputed
        for number, option in zip(flights, chosen, strict=True)
        if option.recomputed is not None
    }


def _latest_keep_most(chosen: Sequence[Option], kinds: Sequence[tuple[bool, int]]) -> list[Option]:
    """The same options among layers that are alike, dealt out so that the last ones keep most.

    Backward lets go of those first: when the first layers are at their most, it has.
    """
    found = list(chosen)
    for kind in set(kinds):
        places = [place for place, one in enumerate(kinds) if one == kind]
        options = sorted((chosen[place] for place in places), key=lambda option: option.kept)
        for place, option in zip(places, options, strict=True):
            found[place] = option
    return found


def nearest_choice(config: Model, pass_: MicroBatch, layer: int, share: float) -> Recomputed | None:
    """What stands for the choice of a compiler that may keep `share` of what it could leave out."""
    eager = replace(pass_, compiled=False)
    options = options_of(config, eager, layer)
    least, most = options[0].kept, kept_by_layer(config, eager, layer, None)
    fitting = [option for option in options if option.kept <= least + share * (most - least)]
    return min(fitting, key=lambda option: option.work).recomputed


def _share(config: Model, pass_: MicroBatch, layer: int, choice: Recomputed) -> float:
    least = kept_by_layer(config, pass_, layer, frozenset(OPERATIONS))
    most, kept = (kept_by_layer(config, pass_, layer, one) for one in (None, choice))
    return min(1.0, max(0.0, (kept - least) / max(1, most - least)))
