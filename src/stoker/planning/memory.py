"""Peak memory of one rank, by category, from a recipe alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from stoker.layout.ranks import expert_sizes
from stoker.layout.shares import chunk
from stoker.planning.activations import Activations, MicroBatch, activations
from stoker.planning.parts import Part, local_model, own_stages, parts_of_rank, ranks_that_differ
from stoker.planning.pipeline import most_at_once, puts_weight_gradients_off
from stoker.planning.recompute import recomputation
from stoker.recipe import Adafactor, Lion, Muon, Recipe
from stoker.recipe.memory import Recomputation

_LOSS_CHUNK_BYTES = {"cpu": 16 * 2**20, "cuda": 128 * 2**20}
"""Size of one chunk of logits in fp32, as `stoker.model.loss` takes it."""
_BETWEEN_BLOCKS, _BESIDE_BLOCKS = 0.5, 40 * 2**20
"""Resident bytes of a process on a processor beyond those it asks for: a share of the activations, which come and
go and leave holes in glibc's heap, and what torch's kernels keep. `benchmarks/process_memory.py` measures it."""
_FEWEST_LOSS_TOKENS = 128


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes on one rank, each category at its own highest."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int
    """16-bit copies of weights, weights gathered from other ranks, gradients on their way to others, and what the
    optimizer needs for a moment."""
    total: int
    """At the highest moment of a step: not all categories are at their highest at once."""


def optimizer_bytes(recipe: Recipe, parts: Sequence[Part]) -> int:
    """Bytes of the optimizer's state over `parts`, after the first step."""
    width = 2 if recipe.training.precision == "pure_bf16" else 4
    total = 0
    for part in parts:
        held = part.held_elements
        match recipe.training.optimizer:
            case Lion():
                total += held * width
            case Muon() if of_block_matrix(part):
                total += held * width
            case Adafactor() if len(part.held) > 1:
                *stacked, rows, columns = part.held
                total += 4 * math.prod(stacked) * (rows + columns) + 4
            case Adafactor():
                total += 4 * held + 4
            case _:
                total += 2 * held * width + 4
    return total


def of_block_matrix(part: Part) -> bool:
    """Whether Muon orthogonalises the parameter."""
    return part.name.startswith(("blocks.", "mtp.")) and len(part.whole) > 1


def pass_of(recipe: Recipe, vocabulary_size: int, micro_batch_size: int, device: str) -> MicroBatch:
    """The forward and backward pass that a recipe asks of one rank, of those with the most tokens."""
    training, layout = recipe.training, recipe.layout
    rows = -(-vocabulary_size // layout.tp)
    return MicroBatch(
        batch=micro_batch_size,
        length=_own_length(training.sequence_length, layout.cp),
        vocabulary_size=rows,
        precision=training.precision,
        compiled=training.compile,
        document_mask=training.document_mask,
        dense_masks=device == "cpu",
        loss_chunk=max(_FEWEST_LOSS_TOKENS, _LOSS_CHUNK_BYTES[device] // (4 * rows)),
        cp=layout.cp,
        cp_method=layout.cp_method,
        tp=layout.tp,
        ep=layout.ep,
        whole_experts=not layout.expert_tp and layout.tp > 1,
    )


def recomputation_of_rank(recipe: Recipe, vocabulary_size: int, device: str, rank: int) -> Recomputation:
    """What the layers of `rank` recompute: the same on all ranks that have the same stages.

    For the largest batch of the run. Raises `BadInput` when the budget is below what cannot be recomputed.
    """
    if recipe.training.memory.recompute.name == "none":
        return Recomputation()
    return _recomputation(recipe, vocabulary_size, device, recipe.layout.coordinate(rank).pp)


@lru_cache(maxsize=64)
def _recomputation(recipe: Recipe, vocabulary_size: int, device: str, pp: int) -> Recomputation:
    wanted, layout, length = recipe.training.memory.recompute, recipe.layout, recipe.training.sequence_length
    steps = [1, *(ramp.step for ramp in recipe.training.batch_ramp)]
    micro_batch_size = max(map(recipe.micro_batch_size_at, steps))
    pass_ = pass_of(recipe, vocabulary_size, micro_batch_size, device)
    micro_batches = max(map(recipe.accumulation_at, steps))
    stages = own_stages(recipe.model, vocabulary_size, length, layout, pp)
    flights = {
        stage: most_at_once(layout, micro_batches, pp, {one: int(one == stage) for one in stages})
        if layout.pp > 1
        else 1
        for stage in stages
    }
    model = local_model(recipe.model, layout, 0)  # no other tensor-parallel rank has more
    return recomputation(wanted, model, pass_, [(layers, flights[stage]) for stage, layers in stages.items()])


def _own_length(length: int, cp: int) -> int:
    """Tokens of a sequence on the rank along `cp` that has most: an early chunk and a late one."""
    if cp == 1:
        return length
    sizes = [last - first for first, last in (chunk(length, 2 * cp, index) for index in range(2 * cp))]
    return max(sizes[rank] + sizes[2 * cp - 1 - rank] for rank in range(cp))


def peak_memory(
    recipe: Recipe, vocabulary_size: int, micro_batch_size: int, accumulation: int, device: str
) -> MemoryBytes:
    """Peak bytes of the rank that needs most, for micro-batches of `micro_batch_size` sequences."""
    return max(
        (
            memory_of_rank(recipe, vocabulary_size, micro_batch_size, accumulation, device, rank)
            for rank in ranks_that_differ(recipe)
        ),
        key=lambda memory: memory.total,
    )


def memory_of_rank(
    recipe: Recipe, vocabulary_size: int, micro_batch_size: int, accumulation: int, device: str, rank: int
) -> MemoryBytes:
    """Peak bytes of `rank`; activations as on those of its kind with the most tokens."""
    account = _Account(recipe, vocabulary_size, micro_batch_size, accumulation, device, rank)
    away = account.on_host("offload_parameters")
    parameters = 0 if away else account.held * account.width
    optimizer = 0 if away or account.on_host("offload_optimizer") else optimizer_bytes(recipe, account.parts)
    kept, moment = account.kept(), account.moment()
    already = account.gradients() if account.gradients_stay else 0
    highest = max(
        kept + account.casts() + account.gathered(summing=False) + already + account.head() + moment,
        account.last_gradients() + account.summed() + account.gathered() + account.end(),
        account.gradients() + account.updating(),
    )
    return MemoryBytes(
        parameters=parameters,
        gradients=account.gradients(),
        optimizer=optimizer,
        activations=kept + moment,
        buffers=max(account.gathered() + max(account.casts(), account.summed()), account.updating()),
        total=parameters + optimizer + highest,
    )


def kept_by_forward(
    recipe: Recipe, vocabulary_size: int, micro_batch_size: int, device: str, rank: int
) -> dict[int, int]:
    """Bytes that a forward pass through each stage of `rank` leaves for backward, autocast's copies counted."""
    account = _Account(recipe, vocabulary_size, micro_batch_size, 1, device, rank)
    casts = account.casts_of_stages()[0]
    return {
        stage: one.blocks + one.outside_blocks + one.by_loss + casts.get(stage, 0)
        for stage, one in account.stages.items()
    }


def host_bytes_of_rank(recipe: Recipe, vocabulary_size: int, micro_batch_size: int, rank: int) -> int:
    """Bytes of `rank`, on an accelerator, that rest in host memory at their highest."""
    memory = recipe.training.memory
    account = _Account(recipe, vocabulary_size, micro_batch_size, 2, "cuda", rank)
    total = 0
    if memory.offload_parameters or memory.offload_optimizer:  # or copies of weights and gradients for the update
        total += 2 * account.held * account.width + optimizer_bytes(recipe, account.parts)
    if memory.offload_activations:
        kept = {stage: one.blocks - one.results for stage, one in account.stages.items()}
        total += account.most_at_once(kept)
    return total


def allocator_bytes(memory: MemoryBytes, device: str) -> int:
    """Resident bytes of a process on a processor beyond those it asks for; elsewhere they are not the process's."""
    return int(_BETWEEN_BLOCKS * memory.activations) + _BESIDE_BLOCKS if device == "cpu" else 0


class _Account:
    """What one rank holds, and for how long."""

    def __init__(
        self, recipe: Recipe, vocabulary_size: int, micro_batch_size: int, accumulation: int, device: str, rank: int
    ) -> None:
        layout, at = recipe.layout, recipe.layout.coordinate(rank)
        self.recipe, self.layout, self.at = recipe, layout, at
        self.parts = parts_of_rank(recipe, vocabulary_size, rank)
        self.device, self.micro_batches = device, accumulation
        self.pass_ = pass_of(recipe, vocabulary_size, micro_batch_size, device)
        self.width = self.pass_.stream_width
        model = local_model(recipe.model, layout, at.tp)
        length = recipe.training.sequence_length
        stages = own_stages(recipe.model, vocabulary_size, length, layout, at.pp)
        self.recomputation = recomputation_of_rank(recipe, vocabulary_size, device, rank)
        self.stages = {
            stage: activations(model, self.pass_, layers, self.recomputation) for stage, layers in stages.items()
        }
        self.held = sum(part.held_elements for part in self.parts)
        self.local = sum(part.local_elements for part in self.parts)
        self.puts_off = layout.pp > 1 and puts_weight_gradients_off(layout)
        several = accumulation > 1
        self.gradients_stay = several
        """Whether there are gradients already while activations are at their highest."""
        self.by_fsdp = layout.dp_shard > 1 or recipe.training.memory.offload_parameters
        self.whole_gradients = self.by_fsdp and (self.puts_off or (several and layout.zero_stage == 1))
        """Whether gradients are kept unsharded until the last micro-batch."""

    @property
    def sum_width(self) -> int:
        """Bytes of an element of a gradient while it is summed over ranks."""
        if self.recipe.training.gradient_reduction == "bf16":
            return 2
        return 4

    def on_host(self, technique: Literal["offload_activations", "offload_parameters", "offload_optimizer"]) -> bool:
        """Whether something rests in host memory that is not the memory of the device."""
        return self.device != "cpu" and bool(getattr(self.recipe.training.memory, technique))

    def gradients(self) -> int:
        """At their highest between two passes."""
        if self.recipe.training.memory.release_gradients and not self._waits_for_copies():
            late = sum(part.held_elements for part in self.parts if self._is_late(part))
            return (late + max(part.held_elements for part in self.parts)) * self.width
        if self.whole_gradients:
            return self.local * self.width
        if self.on_host("offload_parameters"):
            return self.held * self.sum_width if self._waits_for_copies() else 0
        return self.held * self.width

    def _waits_for_copies(self) -> bool:
        """Whether FSDP holds what it has summed over shards until backward ends, to sum it over copies."""
        return self.by_fsdp and self.layout.replicate_size > 1

    def _is_late(self, part: Part) -> bool:
        """Whether ranks sum the gradient when backward is over, or the pipeline has put it off."""
        layout = self.layout
        shared = layout.tp > 1 and not part.expert and part.local == part.whole
        twice = part.name == "embedding.weight" and layout.pp > 1
        return shared or twice or self._copies(part) > 1 or (self.puts_off and len(part.whole) > 1)

    def _copies(self, part: Part) -> int:
        """Ranks over which the gradient is summed in buckets."""
        if self.recipe.training.memory.offload_parameters:
            return 1
        if part.expert:
            sizes = expert_sizes(self.layout)
            return sizes.replicate if sizes.shard == 1 else 1
        return self.layout.replicate_size if self.layout.dp_shard == 1 else 1

    def kept(self) -> int:
        """Most that all passes in flight keep for backward."""
        if self.on_host("offload_activations"):  # the layer that computes, the one that comes, what is outside
            there = sum(one.outside_blocks for one in self.stages.values())
            there += 2 * max(one.largest_block for one in self.stages.values())
            # Results that recomputation keeps are not what autograd saves: they stay.
            results = {stage: one.results for stage, one in self.stages.items()}
            return there + self.most_at_once(results, by_loss=False)
        return self.most_at_once({stage: _forward(one) for stage, one in self.stages.items()})

    def casts(self) -> int:
        """16-bit copies of the blocks' matrices, which autograd keeps until backward has passed them."""
        of_stage, again = self.casts_of_stages()
        if self.puts_off:  # only while a product is computed
            return max(of_stage.values(), default=0)
        kept = self.most_at_once({stage: of_stage.get(stage, 0) for stage in self.stages}, by_loss=False)
        return kept + again

    def casts_of_stages(self) -> tuple[dict[int, int], int]:
        """What each stage keeps of them; and of the layer with most that makes them again, for a moment."""
        if not self.pass_.casts:
            return {}, 0
        own = ("query_up.weight", "kv_up.weight", "router.weight")  # which make their copies for a moment
        of_stage, again = Counter[int](), Counter[int]()
        for part in self.parts:
            if part.name.startswith(("blocks.", "mtp.")) and len(part.local) == 2 and not part.name.endswith(own):
                layer = part.layer(self.recipe.model)
                if layer is not None and layer in self.recomputation.layers:
                    again[layer] += 2 * part.local_elements
                else:
                    of_stage[part.stage] += 2 * part.local_elements
        return dict(of_stage), max(again.values(), default=0)

    def most_at_once(self, of_stage: Mapping[int, int], by_loss: bool = True) -> int:
        if self.layout.pp == 1:
            return sum(of_stage.values())
        # What the loss of one pass keeps is in `head` and `loss_transient`.
        last = {stage: one.by_loss for stage, one in self.stages.items()} if by_loss else {}
        each = {stage: size + last.get(stage, 0) for stage, size in of_stage.items()}
        return max(0, most_at_once(self.layout, self.micro_batches, self.at.pp, each) - sum(last.values()))

    def moment(self) -> int:
        """Most that a pass holds for a moment besides."""
        loss = max(one.loss_transient for one in self.stages.values())
        return max(loss, self.block_moment())

    def block_moment(self) -> int:
        """Most that a block holds for a moment besides."""
        return max(one.block_transient for one in self.stages.values())

    def end(self) -> int:
        """What is held besides all gradients when the last ones arrive: those of a first block or, after it,
        that of the embedding."""
        block = max(one.end_transient for one in self.stages.values())
        alone = self.arriving() == 0 and 0 in self.stages  # nothing of the embedding's is there before
        embedding = sum(part.held_elements for part in self.parts if part.name == "embedding.weight") * self.width
        stream = (
            int(self.pass_.tokens * self.pass_.stream * self.recipe.model.hidden_size) * self.pass_.stream_width
        )
        return max(block - embedding * alone, self.arriving() + stream)

    def head(self) -> int:
        """The gradient of the output projection, which is there before all others."""
        name = "embedding.weight" if self.recipe.model.tie_embeddings else "head.weight"
        last = self.layout.stages - 1
        return sum(p.local_elements for p in self.parts if (p.name, p.stage) == (name, last)) * self.width

    def arriving(self) -> int:
        """The gradient of the embedding, where it is added to one that is there."""
        model = self.recipe.model
        if not (self.gradients_stay or model.tie_embeddings or model.mtp_depth):
            return 0
        return max((p.local_elements for p in self.parts if p.name == "embedding.weight"), default=0) * self.width

    def last_gradients(self) -> int:
        """When the last of them arrives; those that were whole until their sum are shards by then."""
        return self.gradients() if self.puts_off else min(self.gradients(), self.held * self.width)

    def gathered(self, summing: bool = True) -> int:
        """Whole weights that a sharded rank holds besides its shards; while `summing`, gradients on their way."""
        if not self.by_fsdp:
            return 0
        away = self.recipe.training.memory.offload_parameters
        blocks, root = Counter[str](), 0
        for part in self.parts:
            if part.expert and expert_sizes(self.layout).shard == 1 and not away:
                continue
            if part.block is None:
                root += part.local_elements
            else:
                blocks[part.block] += part.local_elements
        largest = max(blocks.values())
        if self.layout.zero_stage == 3:
            # The root stays gathered; of the blocks one computes while the next arrives. In backward their
            # gradients are whole until they are summed.
            whole = root + 3 * largest
            if self.layout.shard_size == 1 and summing:  # what is summed, its sum, and a divided copy
                whole = max(whole, 4 * root)
            return whole * self.width
        return (root + sum(blocks.values())) * self.width + 2 * largest * self.sum_width * summing

    def summed(self) -> int:
        """Buckets of gradients that are summed over copies in another type; in their own, gradients lie in them."""
        if self.sum_width == self.width:
            return 0
        if self._waits_for_copies():
            return 0 if self.on_host("offload_parameters") else self.sum_width * self.held
        return self.sum_width * sum(part.local_elements for part in self.parts if self._copies(part) > 1)

    def updating(self) -> int:
        """What the optimizer holds for a moment while it updates."""
        if self.on_host("offload_parameters"):
            return 0
        # pure_bf16 keeps the weights from before the update, to count those that did not move.
        before = self.held * self.width if self.recipe.training.precision == "pure_bf16" else 0
        match self.recipe.training.optimizer:
            case Lion() if not self.on_host("offload_optimizer"):
                return before + self.held * self.width
            case Adafactor():
                return before + 2 * 4 * max(part.held_elements for part in self.parts)
            case Muon():
                # Every rank that shares a matrix orthogonalises all of it.
                matrices = [_whole_matrices(part) for part in self.parts if of_block_matrix(part)]
                return before + 5 * 4 * max(matrices, default=0)
            case _:
                return before


def _forward(kept: Activations) -> int:
    return kept.blocks + kept.outside_blocks


def _whole_matrices(part: Part) -> int:
    """Elements of the matrices that this rank has parts of; of stacked ones, those at hand."""
    return math.prod(part.held[:-2]) * math.prod(part.whole[-2:])
