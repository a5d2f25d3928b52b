"""Lets routers choose what they chose in fp64: elsewhere rounding decides between experts that are nearly even.

An expert more or less is another model, of which nothing could be said. What routers are made of, scores, weights
and losses, is still what the precision gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from stoker.model.router import Router
from stoker.parallel import ParallelModel
from stoker.verification.activations import part_of
from stoker.verification.reference import Reference


@contextmanager
def choices_of(
    model: ParallelModel, length: int, first_sample: int, when: str, reference: Reference, *, record: bool
) -> Iterator[None]:
    """Around passes over the sequences of a step: `record` what the routers of one process choose, or repeat it.

    `when` tells these passes from others.
    """
    routers: list[Router] = []
    hooks: list[Any] = []
    for stage in model.stages.values():
        rows: dict[str, Tensor] = {}
        hooks.append(stage.part.register_forward_pre_hook(_noting(rows, first_sample), with_kwargs=True))
        for name, router in stage.part.named_modules():
            if not isinstance(router, Router):
                continue
            place = part_of(name, router, stage.held, model.world, length)
            assert place is not None
            if record:
                wanted: Any = partial(_recorded, router._choose, reference, f"{when} {name}", rows)
            else:
                wanted = partial(_repeated, reference, f"{when} {name}", rows, place.places)
            routers.append(router)
            router._choose = wanted  # type: ignore[method-assign]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for router in routers:
            del router._choose


def _noting(rows: dict[str, Tensor], first_sample: int) -> Callable[..., None]:
    def note(part: nn.Module, inputs: Any, keywords: dict[str, Any]) -> None:
        rows["now"] = keywords["samples"].cpu() - first_sample

    return note


def _recorded(
    choose: Callable[[Tensor], Tensor],
    reference: Reference,
    where: str,
    rows: dict[str, Tensor],
    scores: Tensor,
) -> Tensor:
    chosen = choose(scores)
    reference.choose(where, rows["now"], chosen.cpu())
    return chosen


def _repeated(reference: Reference, where: str, rows: dict[str, Tensor], places: Tensor, scores: Tensor) -> Tensor:
    return reference.choices[where][rows["now"]][:, places].to(scores.device)
