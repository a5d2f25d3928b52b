"""Draws layouts for a model, so that few of them cover every pair of dimensions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from stoker.errors import BadInput
from stoker.layout import DIMENSIONS, ContextParallelMethod, Layout, PipelineScheduleName
from stoker.layout.validity import problems
from stoker.verification.subject import Subject

Feature = tuple[str, ...]
"""Two dimensions above one, or a choice that a dimension leaves."""
_ZERO_STAGES = (1, 2, 3)


def draw(subject: Subject, count: int, ranks: int, seed: int) -> list[Layout]:
    """`count` different layouts of 2 to `ranks` ranks that can train the model, the same for the same `seed`.

    The first ones together have every pair of dimensions, schedule, method and stage that is possible at
    all; 24 layouts suffice for that. Fewer are returned where there are no more.
    """
    dice = random.Random(seed)
    families = _families(subject, ranks)
    drawn: list[Layout] = []
    missing = {feature for family in families for layout in family for feature in features(layout)}
    candidates = [layout for family in families for layout in family]
    while missing and len(drawn) < count:
        best = max(candidates, key=lambda one: (len(missing & features(one)), dice.random()))
        drawn.append(best)
        missing -= features(best)
    # Families of many schedules and methods would otherwise be nearly all that is drawn.
    left = [[layout for layout in family if layout not in drawn] for family in families]
    while len(drawn) < count and (left := [family for family in left if family]):
        (family,) = dice.choices(left, [_weight(family[0]) for family in left])
        drawn.append(family.pop(dice.randrange(len(family))))
    return drawn


def features(layout: Layout) -> frozenset[Feature]:
    """What of a layout is to be covered."""
    above = [name for name in (*DIMENSIONS, "ep") if getattr(layout, name) > 1]
    found: set[Feature] = {(name,) for name in above} | set(itertools.combinations(above, 2))
    if layout.pp > 1:
        found.add(("pp", layout.pipeline_schedule))
    if layout.cp > 1:
        found.add(("cp", layout.cp_method))
    if layout.dp_shard > 1:
        found.add(("dp_shard", str(layout.zero_stage)))
    if layout.ep > 1 and layout.tp > 1:
        found.add(("ep", "divided" if layout.expert_tp else "whole"))
    return frozenset(found)


def _weight(layout: Layout) -> int:
    """Dimensions go wrong together more often than alone."""
    above = len([name for name in DIMENSIONS if getattr(layout, name) > 1])
    return above * above


def _families(subject: Subject, ranks: int) -> list[list[Layout]]:
    """Possible layouts, together those that have the same sizes."""
    shape = subject.shape
    families = []
    for sizes in _sizes(ranks, len(DIMENSIONS)):
        given = dict(zip(DIMENSIONS, sizes, strict=True))
        family = [layout for layout in _variants(given, shape.experts is not None) if not problems(layout, shape)]
        if family:
            families.append(family)
    return families


def _sizes(ranks: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    for sizes in _products(ranks, dimensions):
        if any(size > 1 for size in sizes):
            yield sizes


def _products(most: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """Sizes whose product is at most `most`."""
    if dimensions == 0:
        yield ()
        return
    for size in range(1, most + 1):
        for rest in _products(most // size, dimensions - 1):
            yield (size, *rest)


def _variants(sizes: dict[str, int], experts: bool) -> Iterator[Layout]:
    def choices(wanted: bool, values: Sequence[Any]) -> Sequence[Any]:
        return values if wanted else values[:1]

    schedules = choices(sizes["pp"] > 1, get_args(PipelineScheduleName))
    methods = choices(sizes["cp"] > 1, get_args(ContextParallelMethod))
    stages = choices(sizes["dp_shard"] > 1, _ZERO_STAGES[::-1])
    divided = choices(experts and sizes["tp"] > 1, (True, False))
    for schedule, method, stage, each in itertools.product(schedules, methods, stages, divided):
        layout = Layout(
            **sizes,
            pipeline_schedule=schedule,
            cp_method=method,
            zero_stage=stage,
            expert_tp=each,
        )
        yield layout
        for ep in range(2, layout.expert_ranks + 1) if experts else ():
            if layout.expert_ranks % ep == 0:
                yield layout.model_copy(update={"ep": ep})


def parse(text: str) -> Layout:
    """The layout that `tp=2,pp=2,pipeline_schedule=zbv` describes. Raises `BadInput` when it describes none."""
    given: dict[str, str | int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in Layout.model_fields:
            known = ", ".join(Layout.model_fields)
            raise BadInput(f"--layout {text}: expected NAME=VALUE of {known}; got {part!r}")
        value = value.strip()
        given[name.strip()] = int(value) if value.isdecimal() else value
    try:
        return Layout.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(f"--layout {text}: {where + ': ' if where else ''}{first['msg']}") from None
