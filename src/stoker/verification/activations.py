"""Which part of what one process computes each module of a laid-out model computes: the map, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor, nn

from stoker.layout.shares import chunk
from stoker.model import TokenLosses
from stoker.model.router import Choice
from stoker.parallel import World
from stoker.parallel.context_parallel.split import own_places
from stoker.parallel.placement import Held
from stoker.parallel.tensor_parallel import RowParallelLinear

Tokens = Literal["stream", "gathered", "experts'"]
"""Of a context-parallel part of a sequence: one tensor-parallel rank's tokens, those of all of them, or
whichever of the two the routers and experts work on."""
Complete = Literal["always", "held once", "whole"]
"""When the gradient of an output is complete on a rank: always; unless several ranks hold the rows that make it
and use them for other queries; or only where tensor-parallel ranks do not each have a part of what follows."""


@dataclass(frozen=True)
class Rule:
    """Which part of the whole output a module gives."""

    tokens: Tokens = "stream"
    rows_of: str | None = None
    """A parameter, relative to the module's parent, whose rows are the features; None: all features."""
    complete: Complete = "always"


TABLE: tuple[tuple[str, Rule], ...] = (
    (r"attention\.query", Rule("gathered", "query.weight")),
    (r"attention\.query_norm", Rule("gathered", "query.weight")),
    (r"attention\.key", Rule("gathered", "key.weight", "held once")),
    (r"attention\.key_norm", Rule("gathered", "key.weight", "held once")),
    (r"attention\.value", Rule("gathered", "value.weight", "held once")),
    (r"attention\.(query_down|kv_down|key_rope)", Rule("gathered", None, "whole")),
    (r"feed_forward(\.shared)?\.gate", Rule("gathered", "gate.weight")),
    (r"feed_forward(\.shared)?\.up", Rule("gathered", "up.weight")),
    (r"feed_forward\.router", Rule("experts'", None, "whole")),
)
"""The first pattern that the end of a module's name matches; `Rule()` for all others, which give the residual
stream's own tokens, whole and once."""
LOSSES, SAMPLES = "token losses", "samples"
"""Names of what the whole model gives, and of the numbers of the sequences that it is given."""


class Part(NamedTuple):
    """A part of the whole output [sequences, places, features]."""

    places: Tensor
    """int64: of the tokens in their sequences."""
    features: slice
    complete: bool
    """Whether its gradient is the whole one's."""


def probed(name: str, module: nn.Module) -> bool:
    """Whether `module` gives a part of what one process gives."""
    if isinstance(module, nn.Identity | nn.ModuleDict):
        return False
    # Rows of experts stand in another order on every rank.
    return not name.endswith("feed_forward.experts")


def part_of(name: str, module: nn.Module, held: dict[str, Held], world: World, length: int) -> Part | None:
    """What `module`, named `name`, gives of sequences of `length`; None when it is only a summand of the whole."""
    if _summed_later(name, module):
        return None
    rule = next((rule for pattern, rule in TABLE if re.search(rf"(^|\.){pattern}$", name)), Rule())
    layout, at = world.layout, world.coordinate
    places = own_places(length, layout.cp, at.cp)
    gathered = rule.tokens == "gathered" or (rule.tokens == "experts'" and layout.expert_tp) or name == ""
    if not gathered:
        places = places[slice(*chunk(len(places), layout.tp, at.tp))]
    features, complete = slice(None), True
    # Of latent attention the norm of queries is that of a latent, which has no such rows.
    rows = held.get(f"{name.rpartition('.')[0]}.{rule.rows_of}")
    if rows is not None:
        placement = rows.placement
        features = slice(*placement.box[0])
        complete = rule.complete == "always" or placement.repeated is None
    elif rule.complete == "whole" or rule.rows_of is not None:
        complete = layout.tp == 1 or not gathered
    return Part(places, features, complete)


def output_of(output: object) -> Tensor | None:
    """The tensor [B, L, features] that a module's output is compared by."""
    if isinstance(output, TokenLosses):
        return output.token_losses[..., None]
    if isinstance(output, Choice):
        return output.weights
    return output.flatten(2) if isinstance(output, Tensor) and output.ndim >= 3 else None


def _summed_later(name: str, module: nn.Module) -> bool:
    down = getattr(module, "down", module) if name.endswith("shared") else module
    return isinstance(down, RowParallelLinear) and not down.summed
