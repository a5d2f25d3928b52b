"""What grows a little at every step until the curves show it: logits of attention, a router's liking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from stoker.model.attention import Attention
from stoker.model.router import Router
from stoker.parallel.placement import local
from stoker.recovery.faults import Fault
from stoker.training.trainer import Trainer

_GROWTH = 1.03
_BIAS = 0.02
"""Of scores, which are from 0 to 1."""


@torch.no_grad()
def grow_gains(trainer: Trainer, strength: float) -> None:
    """Make queries and keys of all attention larger: their norms' gains, or else their projections."""
    for gain in _gains(trainer):
        local(gain.data).mul_(_GROWTH**strength)


def _gains(trainer: Trainer) -> Iterator[Tensor]:
    for module in _modules(trainer):
        if isinstance(module, Attention):
            normed = module.qk_norm != "none"
            parts = (module.query_norm, module.key_norm) if normed else (module.query, module.key)
            for part in parts:
                yield from part.parameters()


def prefer_one_expert(trainer: Trainer, faults: Sequence[Fault]) -> None:
    """Give every router a bias towards its first expert, which grows while `faults` last and stays then."""

    def bias() -> float:
        step, found = trainer.position.step + 1, 0.0
        for fault in faults:
            lasted = min(max(0, step - fault.step + 1), fault.option("steps"))
            found += _BIAS * fault.option("strength") * lasted
        return found

    for module in _modules(trainer):
        if isinstance(module, Router):
            _with_bias(module, bias)


def _with_bias(router: Router, bias: Callable[[], float]) -> None:
    usual = router._choose

    def chosen(scores: Tensor) -> Tensor:
        liked = scores.clone()
        liked[..., 0] += bias()
        return usual(liked)

    router._choose = chosen  # type: ignore[method-assign]


def _modules(trainer: Trainer) -> Iterator[nn.Module]:
    for stage in trainer.step.model.stages.values():
        yield from stage.part.modules()
