"""Mistakes in what context-parallel ranks divide: sequences, and attention to what the others hold."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit
from tests.verification.planted.bug import ATTENTION, PlantedBug, bug

_RING, _GATHERED, _ULYSSES = (Layout(cp=2, cp_method=method) for method in ("ring", "all_gather", "ulysses"))
_CP, _MODEL = "parallel.context_parallel", "parallel.parallel_model:ParallelModel"
_FIRST_ATTENTION, _LAST_ATTENTION = ("blocks.0.attention*",), ("blocks.1.attention*",)

BUGS: tuple[PlantedBug, ...] = (
    bug(
        "loss is divided by cp",
        _RING,
        "plain",
        Edit(f"{_MODEL}.forward_backward", "loss_scale=loss_scale", "loss_scale=loss_scale / self.world.layout.cp"),
        where="activation gradient: norm",
        says="Gradients are averaged over ranks whose losses already add up.",
    ),
    bug(
        "gradients are not summed over cp",
        _RING,
        "plain",
        Edit(
            "layout.ranks:replicas",
            '("dp_replicate", "cp") if layout.dp_shard == 1 else ("dp_replicate",)',
            '("dp_replicate",)',
        ),
        where="gradient: *",
        says="Context-parallel ranks are left out of those that see other tokens.",
    ),
    bug(
        "rotary positions of the first tokens on every cp rank",
        _RING,
        "plain",
        Edit(
            f"{_MODEL}._local",
            "positions=cut(batch.positions, 1)",
            "positions=batch.positions[:, : cut(batch.positions, 1).shape[1]]",
        ),
        where=_FIRST_ATTENTION,
        says="A rank turns its queries and keys as if its part began the sequence.",
    ),
    bug(
        "places of the first tokens on every cp rank",
        _RING,
        "dropout",
        Edit(
            f"{_CP}.split:SequenceSplit.places",
            "own_places(length, self.group.size(), self.group.rank())",
            "torch.arange(own_length(length, self.group.size(), self.group.rank()))",
        ),
        where=("embedding*", "blocks.0*"),
        says="Dropout is drawn by place in a rank's part.",
    ),
    bug(
        "cp ignores documents",
        _RING,
        "plain",
        Edit(f"{_CP}.masks:PartMaskRule.build", "starts = None if documents is None else", "starts = None and"),
        where=_FIRST_ATTENTION,
        says="Attention over ranks crosses from one document to the next.",
    ),
    bug(
        "cp ignores the window",
        _RING,
        "window",
        Edit(
            f"{_CP}.masks:PartMaskRule.build",
            "window = None if self.window is None or self.window >= whole else self.window",
            "window = None",
        ),
        where=_FIRST_ATTENTION,
        says="Attention over ranks looks back as far as there are keys.",
    ),
    bug(
        "cp compares the window with a rank's own tokens",
        _RING,
        "window",
        Edit(f"{_CP}.masks:PartMaskRule.build", "self.window >= whole", "self.window >= length // 2"),
        where=_FIRST_ATTENTION,
        says="A window as long as half a rank's part is taken for no window.",
    ),
    bug(
        "early and late chunk are swapped",
        _RING,
        "plain",
        Edit(
            f"{_CP}.split:own_part",
            "torch.cat(parts, dim) if parts",
            "torch.cat(parts[::-1], dim) if parts",
        ),
        where=("embedding*", *_FIRST_ATTENTION),
        says="Tokens come late chunk first, attention takes them early chunk first.",
    ),
    bug(
        "a later piece does not scale the earlier ones",
        _RING,
        "plain",
        Edit(
            f"{_CP}.blockwise:add_keys",
            "values.mul_(torch.exp(before - together).unsqueeze(-1))",
            "values",
        ),
        where=_FIRST_ATTENTION,
        says="Mixes of pieces are added without their sums of exponentials.",
    ),
    bug(
        "logarithm of sums is that of the last piece",
        _RING,
        "plain",
        Edit(f"{_CP}.blockwise:add_keys", "before.copy_(together)", "before.copy_(log_sums)"),
        where=_FIRST_ATTENTION,
        says="What is kept of a query's sum of exponentials is what the last keys had.",
    ),
    bug(
        "ring loses the gradients that came with the keys",
        Layout(cp=3),
        "even",
        Edit(
            f"{_CP}.ring:_ring_backward",
            "by_kv += ring.receive(before, kv, step)",
            "ring.receive(before, kv, step)",
        ),
        where=_LAST_ATTENTION,
        says="Keys and values have the gradient of one rank's queries.",
    ),
    bug(
        "ring counts the gradients that came with the keys twice",
        Layout(cp=3),
        "even",
        Edit(
            f"{_CP}.ring:_ring_backward",
            "by_kv += ring.receive(before, kv, step)",
            "by_kv += 2 * ring.receive(before, kv, step)",
        ),
        where=_LAST_ATTENTION,
        says="Gradients of keys and values are added on arrival and once more.",
    ),
    bug(
        "ring forgets what a rank makes of its own keys",
        _RING,
        "plain",
        Edit(
            f"{_CP}.ring:_ring_backward",
            "own += ring.receive(before, own, ranks)",
            "own = ring.receive(before, own, ranks)",
        ),
        where=_LAST_ATTENTION,
        says="What comes home takes the place of what had stayed.",
    ),
    bug(
        "ring sends keys in the other direction than it counts",
        Layout(cp=3),
        "even",
        Edit(
            f"{_CP}.ring:_Ring.steps",
            "self.ranges(self.source(step))",
            "self.ranges((self.rank + step) % self.ranks)",
        ),
        where=_FIRST_ATTENTION,
        says="Keys that arrive are taken for those of the rank on the other side.",
    ),
    bug(
        "Ulysses brings heads back in the wrong order",
        _ULYSSES,
        "plain",
        Edit(
            f"{_CP}.ulysses:_all_heads",
            "_exchange(torch.cat(messages), send, shapes, group)], dim=2)",
            "_exchange(torch.cat(messages), send, shapes, group)][::-1], dim=2)",
        ),
        where=_FIRST_ATTENTION,
        says="Heads of the last rank come first.",
    ),
    bug(
        "Ulysses bends heads by the first heads' slopes",
        _ULYSSES,
        "alibi",
        Edit(f"{_CP}.ulysses:ulysses_attention", "mask.slopes[first:last]", "mask.slopes[: last - first]"),
        where=_FIRST_ATTENTION,
        says="Every rank has the ALiBi slopes of rank 0's heads.",
    ),
    bug(
        "Ulysses lays the sequence out by rank",
        _ULYSSES,
        "plain",
        Edit(
            f"{_CP}.ulysses:_whole_sequence",
            "[in_order(of_ranks, 1, length) for of_ranks in zip(*parts, strict=True)]",
            "[torch.cat(of_ranks, 1) for of_ranks in zip(*parts, strict=True)]",
        ),
        where=_FIRST_ATTENTION,
        says="The whole sequence is left in order of rank, but is given back in order of place.",
    ),
    bug(
        "Ulysses' exchange sends no gradient of others' tokens back",
        _ULYSSES,
        "plain",
        Edit(
            "parallel.collectives:_Exchange.backward",
            "return back, None",
            "own = ctx.group.rank()\n"
            "    first = sum(ctx.send[:own])\n"
            "    back[:first] = 0\n"
            "    back[first + ctx.send[own] :] = 0\n"
            "    return back, None",
        ),
        where=(*_LAST_ATTENTION, ATTENTION),
        says="Gradients from other ranks are dropped.",
    ),
    bug(
        "gathered keys' gradients are not summed over cp",
        _GATHERED,
        "plain",
        Edit(
            "parallel.collectives:_Gather.backward",
            "_sum_and_cut(gradient, ctx.dim, ctx.group)",
            "_cut(gradient, ctx.dim, ctx.group)",
        ),
        where=_LAST_ATTENTION,
        says="Keys and values have the gradient of a rank's own queries.",
    ),
    bug(
        "gathered keys are left in order of rank",
        _GATHERED,
        "plain",
        Edit(f"{_CP}.split:in_order", "for first in sorted(chunks)", "for first in chunks"),
        where=_FIRST_ATTENTION,
        says="The late chunk of the first rank stands before the early chunk of the second.",
    ),
    bug(
        "gathered attention takes queries for whole and in order",
        _GATHERED,
        "plain",
        Edit(
            f"{_CP}.all_gather:all_gather_attention",
            "own_ranges(mask.length, group.size(), group.rank())",
            "[(0, q_BLHK.shape[1])]",
        ),
        where=_FIRST_ATTENTION,
        says="The mask takes a rank's queries for the first ones of the sequence.",
    ),
    bug(
        "further tokens are found after the cut",
        _RING,
        "further",
        Edit(
            f"{_MODEL}._local",
            "Future(cut(future.tokens, 2), cut(future.targets, 2))",
            "shifted(cut(batch.tokens, 1), cut(batch.targets, 1), None, self.config.mtp_depth)",
        ),
        where=("embedding (call *", "mtp.0*"),
        says="The token after next is looked for in a rank's own part of the sequence.",
    ),
)
