"""Which layers each pipeline stage has, and where the stages are."""

from __future__ import annotations

from functools import lru_cache

from stoker.layout import Layout
from stoker.pipeline_schedule import balance, build_schedule
from stoker.recipe.model import Model
from stoker.recipe.size import flops_per_token


@lru_cache(maxsize=64)
def stage_to_rank(layout: Layout) -> tuple[int, ...]:
    """The place along `pp` of each stage."""
    if layout.pp == 1:
        return (0,)
    return build_schedule(layout.pipeline_schedule, layout.pp, 1, layout.stages // layout.pp).stage_to_rank


@lru_cache(maxsize=64)
def stage_layers(config: Model, vocabulary_size: int, sequence_length: int, layout: Layout) -> tuple[range, ...]:
    """The layers of each stage of `layout`, so that the slowest stage, then the slowest rank, has little to do.

    Costs are floating-point operations of a token. The first stage has the embedding besides its
    layers, the last one the head and what `mtp_depth` adds. Raises `BadInput` when there are
    fewer layers than stages.
    """

    def cost(**changes: object) -> int:
        changed = config.model_copy(update={"mtp_depth": 0, **changes})
        return flops_per_token(changed, vocabulary_size, sequence_length).causal

    def cost_of_one(experts: bool) -> int:
        moe = None
        if experts and config.moe is not None:
            moe = config.moe.model_copy(update={"first_dense_layers": 0})
        return cost(layers=2, moe=moe) - cost(layers=1, moe=moe)

    dense = cost_of_one(experts=False)
    mixed = cost_of_one(experts=True)
    layers = [mixed if config.has_experts(layer) else dense for layer in range(config.layers)]
    head = cost(layers=1, moe=None) - dense
    predictions = cost(mtp_depth=config.mtp_depth) - cost()
    placed = stage_to_rank(layout)
    return balance(
        layers,
        len(placed),
        first_cost=config.hidden_size,  # a gradient is added to a row; looking up costs no arithmetic
        last_cost=head + predictions,
        stage_to_rank=placed,
    )
