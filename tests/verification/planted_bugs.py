"""The catalogue: mistakes that a verifier must find, and changes that it must not take for mistakes."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit, Value
from tests.verification.planted import data, experts, pipeline, sequence, tensor
from tests.verification.planted.bug import PlantedBug, bug

BUGS: tuple[PlantedBug, ...] = (
    *data.BUGS,
    *tensor.BUGS,
    *sequence.BUGS,
    *experts.BUGS,
    *pipeline.BUGS,
)
"""Each changes what is trained, in its layout."""


def _twin(name: str, layout: Layout, model: str, *changes: Edit | Value, says: str) -> PlantedBug:
    return bug(name, layout, model, *changes, where=(), says=says)


TWINS: tuple[PlantedBug, ...] = (
    _twin(
        "buckets of one parameter",
        Layout(dp_replicate=2, gradient_bucket_mib=1e-6),
        "plain",
        says="Another size of what is summed at once.",
    ),
    _twin(
        "buckets from the first parameter on",
        Layout(dp_replicate=2),
        "plain",
        Edit("parallel.replicate:_buckets", "in reversed(parameters)", "in parameters"),
        says="Another order of the same sums.",
    ),
    _twin(
        "sums wait for the end of backward",
        Layout(dp_replicate=2),
        "plain",
        Edit("parallel.replicate:SummedGradients.during", "self._summing = last", "self._summing = False"),
        says="Nothing is summed while backward goes on.",
    ),
    _twin(
        "partial gradients one by one",
        Layout(tp=4),
        "biased",
        Edit("parallel.replicate:PartialGradients.__init__", 'float("inf")', "1.0"),
        says="As many sums as there are parameters.",
    ),
    _twin(
        "FSDP sums after every micro-batch",
        Layout(dp_shard=2, zero_stage=1),
        "plain",
        Edit(
            "parallel.shard:Sharding.begin_pass",
            "set_requires_gradient_sync(",
            "set_requires_gradient_sync(not later or ",
        ),
        says="Sharded gradients add up as whole ones do.",
    ),
    _twin(
        "weights are gathered again for backward never",
        Layout(dp_shard=2),
        "plain",
        Edit(
            "parallel.shard:shard",
            "free = world.layout.zero_stage == 3",
            "free = False",
        ),
        says="Whole weights are kept between forward and backward.",
    ),
    _twin(
        "blocks are computed twice",
        Layout(tp=2),
        "plain",
        Edit(
            "model.decoder:Decoder._run",
            "x_BLD = self.run_block(block, x_BLD, shared, draws.of_layer(int(layer)))",
            "x_BLD = torch.utils.checkpoint.checkpoint(\n"
            "            block, x_BLD, shared, draws.of_layer(int(layer)), use_reentrant=False)",
        ),
        says="What backward needs is computed again.",
    ),
    _twin(
        "blocks with experts are computed twice",
        Layout(cp=2),
        "experts",
        Edit(
            "model.decoder:Decoder._run",
            "x_BLD = self.run_block(block, x_BLD, shared, draws.of_layer(int(layer)))",
            "x_BLD = torch.utils.checkpoint.checkpoint(\n"
            "            block, x_BLD, shared, draws.of_layer(int(layer)), use_reentrant=False)",
        ),
        says="What backward needs is computed again, by the experts that were chosen.",
    ),
    _twin(
        "few tokens' logits at a time",
        Layout(tp=2),
        "plain",
        Value("model.loss:_FEWEST_TOKENS", 3),
        Value("model.loss:_CHUNK_BYTES", {"cpu": 1}),
        says="Smaller chunks of the loss.",
    ),
    _twin(
        "attention by few queries at a time",
        Layout(cp=2),
        "alibi",
        Value("parallel.context_parallel.blockwise:_TILE_QUERIES", 2),
        says="More pieces of the same softmax.",
    ),
    _twin(
        "ring sums late gradients first",
        Layout(cp=3),
        "even",
        Edit(
            "parallel.context_parallel.ring:_ring_backward",
            "by_kv += ring.receive(before, kv, step)",
            "by_kv = ring.receive(before, kv, step) + by_kv",
        ),
        says="Terms of a sum change places.",
    ),
    _twin(
        "choices are combined from the last on",
        Layout(dp_replicate=2, ep=2),
        "experts",
        Edit(
            "model.mixture_of_experts:_Combine.forward",
            "for number in range(1, order.per_token):",
            "for number in reversed(range(1, order.per_token)):",
        ),
        says="Another order of a token's experts.",
    ),
    _twin(
        "norms in one collective more",
        Layout(dp_shard=2, tp=2),
        "plain",
        Edit(
            "parallel.gradients:Gradients.norms",
            "self._world.sum(squares).sqrt()",
            "torch.cat([self._world.sum(part.clone()) for part in squares.split(5)]).sqrt()",
        ),
        says="The same squares are summed a few at a time.",
    ),
    _twin(
        "one message at a time",
        Layout(pp=2),
        "deep",
        Value("parallel.pipeline.lanes:_MOST_SENDS", 1),
        says="Pipeline ranks wait for each message to be taken.",
    ),
)
"""None changes what is trained."""
CLEAN: tuple[tuple[Layout, str], ...] = (
    *((Layout(pp=2, pipeline_schedule=name), "deep") for name in ("gpipe", "1f1b", "interleaved_1f1b")),
    *((Layout(pp=2, pipeline_schedule=name), "tied") for name in ("interleaved_zero_bubble", "zbv", "dualpipe_v")),
    *dict.fromkeys((one.layout, one.model) for one in BUGS),
)
"""Layouts with nothing planted: all schedules, and all those that bugs are planted in."""
