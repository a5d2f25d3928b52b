"""The one door through which a layout reaches a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist

from stoker.layout.ranks import at_ends, expert_sizes
from stoker.model import Decoder
from stoker.parallel.compilation import compile_block
from stoker.parallel.context_parallel import SequenceSplit, context_parallel
from stoker.parallel.expert_parallel import SequencesOverRanks, expert_parallel
from stoker.parallel.fixed_order import FixedOrder, FixedOrderGradients
from stoker.parallel.gradients import Gradients
from stoker.parallel.offload import Offload
from stoker.parallel.parallel_model import LocalInputs, ParallelModel, Stage
from stoker.parallel.pipeline import Pipeline, stages_of_rank
from stoker.parallel.placement import Held, hold, initialise_part
from stoker.parallel.recompute import numbered_blocks, recompute
from stoker.parallel.replicate import PartialGradients, SummedGradients
from stoker.parallel.shard import shard
from stoker.parallel.tensor_parallel import TokensOfRank, tensor_parallel
from stoker.parallel.world import World
from stoker.recipe.memory import Recomputation
from stoker.recipe.stages import stage_to_rank


@dataclass(frozen=True)
class Settings:
    """How a layout is applied, besides the layout itself."""

    compile_blocks: bool = False
    reduce: torch.dtype | None = None
    """Type gradients are summed in; by default their own."""
    seed: int = 0
    """Of the initial values, when the model has none yet."""
    fixed_order: bool = False
    """Sum gradients in an order that does not depend on the layout; for data-parallel layouts only."""
    recompute: Recomputation = field(default_factory=Recomputation)
    """What layers compute again in backward."""
    offload_activations: bool = False
    """Let what layers keep for backward rest in host memory."""
    offload_parameters: bool = False
    """Let weights and gradients rest there."""


_DEFAULT = Settings()


def apply(model: Decoder, world: World, settings: Settings = _DEFAULT) -> ParallelModel:
    """Lay `model` out as `world.layout` says. Parameters keep their names.

    `model` has its values already, the same on every rank, or is on `meta` and gets its initial values now:
    then no rank ever holds more than its own part. It is taken apart, and not to be used any more.
    """
    layout, names = world.layout, [name for name, _ in model.named_parameters()]
    order = FixedOrder(world) if settings.fixed_order else None
    split = None
    stages: dict[int, Stage] = {}
    parts = {0: model} if layout.pp == 1 else stages_of_rank(model, layout, world.rank)
    for number, part in parts.items():
        held = hold(part)
        expert_parallel(part, held, world)
        tensor_parallel(part, held, world)
        cp = world.along("cp")
        if cp is not None:
            split = context_parallel(part, cp, layout.cp_method)
        _let_routers_see(part, split, world)
        recompute(part, settings.recompute.layers)
        if settings.compile_blocks:
            for layer, block in numbered_blocks(part):
                compile_block(block, settings.recompute.shares.get(layer, 1.0))
        blocks = [block for _, block in numbered_blocks(part)]
        offload = Offload(part, world.device) if settings.offload_activations else None
        sharding = shard(part, blocks, world, settings.reduce, order, settings.offload_parameters)
        stages[number] = Stage(part, held, sharding, offload)
    ours = [one for stage in stages.values() for one in stage.held.values()]
    for stage in stages.values():
        _materialise(stage, world.device, settings)
    for one in ours:
        one.copies = expert_sizes(layout).replicate if one.placement.expert else layout.replicate_size
    twins = _share_embedding(stages, world)
    parameters = [one for one in ours if one.is_parameter]
    return ParallelModel(
        stages=stages,
        held=ours,
        world=world,
        config=model.config,
        gradients=Gradients(names, parameters, world, exact=settings.fixed_order),
        split=split,
        pipeline=_pipeline(stages, model, world),
        order=order,
        compiled=settings.compile_blocks,
        summed=_summed(parameters, world, settings, order, model.config.moe is not None),
        partial=PartialGradients(
            [(one.parameter, group) for one in parameters for group in one.placement.partial], twins
        ),
    )


def _let_routers_see(part: Decoder, split: SequenceSplit | None, world: World) -> None:
    """Tell routers where the tokens of their sequences are."""
    tp, gathered = world.layout.tp, world.layout.expert_tp
    stream = part.stream if tp > 1 and not gathered else None
    group = world.along("cp") if gathered else world.along("cp", "tp")
    if split is None and tp == 1:
        return
    for mixture in part.mixtures().values():
        mixture.sequences = SequencesOverRanks(split, stream, group, alike=tp if gathered else 1)


def _materialise(stage: Stage, device: torch.device, settings: Settings) -> None:
    if not next(stage.part.parameters()).is_meta:
        return
    stage.part.to_empty(device="cpu" if settings.offload_parameters else device)
    for module in stage.part.modules():  # parameters alone rest on the host
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(device))
    for one in stage.held.values():
        if one.is_parameter:
            initialise_part(one, stage.part.config, settings.seed)
        else:
            one.tensor.zero_()


def _share_embedding(stages: dict[int, Stage], world: World) -> list[tuple[Held, Held]]:
    """The embedding that the last stage reads too is one parameter in two places, whose gradients add up.

    Where both stages are on this rank they are returned as a pair.
    """
    owners, config = stage_to_rank(world.layout), next(iter(stages.values())).part.config
    if len(owners) == 1 or not (config.tie_embeddings or config.mtp_depth):
        return []
    group = world.group(partial(at_ends, world.layout, first=owners[0], last=owners[-1]))
    found = [stages[number].held.get("embedding.weight") for number in (0, len(owners) - 1) if number in stages]
    here = [one for one in found if one is not None]
    if len(here) == 2:
        for one in here:
            one.copies *= 2
        return [(here[0], here[1])]
    for one in here:
        one.shared_by(group)
    return []


def _pipeline(stages: dict[int, Stage], model: Decoder, world: World) -> Pipeline[LocalInputs] | None:
    if world.layout.pp == 1:
        return None
    part = next(iter(stages.values())).part
    dtype = next(part.parameters()).dtype

    def stream_shape(batch: LocalInputs) -> tuple[int, ...]:
        B, L = batch.tokens.shape
        if isinstance(part.stream, TokensOfRank):
            L = part.stream.own_length(L)
        return B, L, model.config.hidden_size

    parts = {number: stage.part for number, stage in stages.items()}
    offload = {number: stage.offload for number, stage in stages.items() if stage.offload is not None}
    return Pipeline(parts, world.layout, world, stream_shape, dtype, offload=offload)


def _summed(
    held: Iterable[Held], world: World, settings: Settings, order: FixedOrder | None, experts_exist: bool
) -> SummedGradients | FixedOrderGradients:
    """Sums over ranks that see other tokens, of what FSDP does not sum."""
    held = list(held)
    if order is not None:
        whole = world.layout.dp_shard == 1  # in one shard each, where FSDP manages them: it sums nothing then
        return FixedOrderGradients([one.parameter for one in held] if whole else [], order, settings.reduce)
    by_fsdp = settings.offload_parameters
    dense = world.replicas if world.sharding_mesh(also_whole=by_fsdp) is None else None
    experts: dist.ProcessGroup | None = None
    if experts_exist and world.sharding_mesh(experts=True, also_whole=by_fsdp) is None:
        experts = world.among_experts("replicate")
    pairs = []
    for one in held:
        group = experts if one.placement.expert else dense
        if group is not None:
            pairs.append((one.parameter, group))
    return SummedGradients(pairs, world.layout.gradient_bucket_mib * 2**20, settings.reduce)
