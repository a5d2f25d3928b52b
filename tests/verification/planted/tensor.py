"""Mistakes in what tensor-parallel ranks divide: matrices, heads, vocabulary, the residual stream's tokens."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit
from tests.verification.planted.bug import ATTENTION, FEED_FORWARD, PlantedBug, bug

_TWO, _FOUR = Layout(tp=2), Layout(tp=4)
_TP, _SUMS = "parallel.tensor_parallel", "parallel.collectives"
_HEAD = ("head*", "norm", "token losses")

BUGS: tuple[PlantedBug, ...] = (
    bug(
        "embedding is not summed over tp",
        _TWO,
        "plain",
        Edit(f"{_TP}:RowsOfEmbedding.forward", "sum_and_cut(found, 1, self.group)", "cut(found, 1, self.group)"),
        where="embedding*",
        says="A rank sees zeros for the tokens of the other's part of the vocabulary.",
    ),
    bug(
        "embedding's bounds are off by one",
        _TWO,
        "plain",
        Edit(
            f"{_TP}:RowsOfEmbedding.forward",
            "index = tokens - self.first",
            "index = tokens - self.first + (self.first > 0)",
        ),
        where="embedding*",
        says="From the second rank on, tokens are looked up one row too far.",
    ),
    bug(
        "outputs are not summed over tp",
        _TWO,
        "plain",
        Edit(f"{_TP}:RowParallelLinear.finished", "sum_and_cut(y, 1, self.group)", "cut(y, 1, self.group)"),
        where="blocks.0.attention*",
        says="Each rank keeps its own product in the place of all ranks' sum.",
    ),
    bug(
        "bias is added by every tp rank",
        _TWO,
        "biased",
        Edit(
            f"{_TP}:RowParallelLinear.finished",
            "if self.summed:\n",
            "if self.bias is not None and self.summed:\n"
            "        return sum_and_cut(y + self.bias.to(y.dtype), 1, self.group)\n"
            "    if self.summed:\n",
        ),
        where=("blocks.*.attention.output*", "blocks.*.feed_forward.down*", ATTENTION, FEED_FORWARD),
        says="The bias of a layer with divided columns is added before the sum.",
    ),
    bug(
        "gathered tokens' gradients are not summed over tp",
        _TWO,
        "plain",
        Edit(
            f"{_SUMS}:_Gather.backward",
            "_sum_and_cut(gradient, ctx.dim, ctx.group)",
            "_cut(gradient, ctx.dim, ctx.group)",
        ),
        where=("norm*", "head*", "blocks.1*"),
        says="Backward of the gather takes a rank's own part of its own gradient alone.",
    ),
    bug(
        "gradients of summed outputs are averaged over tp",
        _TWO,
        "plain",
        Edit(
            f"{_SUMS}:_SumAndCut.backward",
            "return _gather(gradient, ctx.dim, ctx.length, ctx.group)",
            "return _gather(gradient / ctx.group.size(), ctx.dim, ctx.length, ctx.group)",
        ),
        where=("blocks.1.feed_forward*", "blocks.1*", "embedding*"),
        says="The gradient of a sum is divided by the number of its terms.",
    ),
    bug(
        "partial gradients of norms are not summed over tp",
        _TWO,
        "plain",
        Edit(
            f"{_TP}:tensor_parallel",
            "if not placement.expert and",
            'if not parameter.name.endswith("norm.weight") and',
        ),
        where=("*norm*",),
        says="Norms see only a rank's tokens, and their gradients are left at that.",
    ),
    bug(
        "partial gradients of output biases are not summed over tp",
        _TWO,
        "biased",
        Edit(
            f"{_TP}:tensor_parallel",
            "if not placement.expert and",
            'if not parameter.name.endswith(("output.bias", "down.bias")) and',
        ),
        where=("blocks.*.attention.output*", "blocks.*.feed_forward.down*", ATTENTION, FEED_FORWARD),
        says="The bias after the sum sees only a rank's tokens, and its gradient is left at that.",
    ),
    bug(
        "partial gradients are averaged over tp",
        _TWO,
        "plain",
        Edit(
            "parallel.replicate:PartialGradients.finish",
            "bucket.finish()",
            "bucket.finish()\n"
            "        for parameter in bucket.parameters:\n"
            "            parameter.grad.div_(bucket._group.size())",
        ),
        where=("*norm*",),
        says="Parts of a gradient are averaged like copies of it.",
    ),
    bug(
        "norms count once for each tp rank in the global norm",
        _TWO,
        "plain",
        Edit("parallel.gradients:Gradients.__init__", "(one.placement.holders * one.copies)", "one.copies"),
        where=("*norm*", "blocks.0"),
        says="What all tensor-parallel ranks hold counts as many times as there are ranks.",
    ),
    bug(
        "gradients of shared key and value heads are not summed",
        _FOUR,
        "biased",
        Edit(f"{_TP}:_cut_attention", "for prefix in of_holders:", "for prefix in ():"),
        where=("blocks.*.attention.key*", "blocks.*.attention.value*", ATTENTION),
        says="Two ranks hold one key head, and each trains it on its own queries.",
    ),
    bug(
        "shared key and value heads count twice in the global norm",
        _FOUR,
        "plain",
        Edit(
            "parallel.gradients:Gradients.__init__",
            "one.placement.holders *",
            "(1 if one.placement.repeated else one.placement.holders) *",
        ),
        where="blocks.0",
        says="What two ranks hold of keys and values is not divided by two.",
    ),
    bug(
        "key head of the wrong group",
        _FOUR,
        "plain",
        Edit(
            "layout.shares:attention_share", "(index, index + 1), (", "(kv_heads - 1 - index, kv_heads - index), ("
        ),
        where="blocks.0.attention*",
        says="With fewer key heads than ranks, ranks have the key head of other queries.",
    ),
    bug(
        "full q/k norm is that of a rank's own heads",
        _TWO,
        "normed",
        Edit(
            f"{_TP}:NormOverRanks.forward",
            "squares = sum_both_ways(wide.square().sum(dim=-1, keepdim=True) / self.holders, self.group)",
            "squares = wide.square().mean(dim=-1, keepdim=True) * self.size",
        ),
        where=("blocks.0.attention*",),
        says="A norm over all heads is taken over those at hand.",
    ),
    bug(
        "full q/k norm counts shared key heads twice",
        _FOUR,
        "normed",
        Edit(f"{_TP}:NormOverRanks.forward", " / self.holders", ""),
        where=("blocks.0.attention*",),
        says="A key head that two ranks hold is counted by both.",
    ),
    bug(
        "gradient of the full q/k norm's sum is not summed",
        _TWO,
        "normed",
        Edit(
            f"{_SUMS}:sum_both_ways", "sum_in_backward(sum_in_forward(x, group), group)", "sum_in_forward(x, group)"
        ),
        where=("blocks.1.attention*",),
        says="The sum of squares is used by all ranks, but its gradient is that of one.",
    ),
    bug(
        "ALiBi's slopes are those of the first heads",
        _TWO,
        "alibi",
        Edit(f"{_TP}:_cut_alibi", "slopes[slice(*share.queries)]", "slopes[: share.queries[1] - share.queries[0]]"),
        where="blocks.0.attention*",
        says="Every rank bends its heads by the slopes of rank 0's.",
    ),
    bug(
        "learned positions are those of the first rank's tokens",
        _TWO,
        "learned",
        Edit(
            f"{_TP}:TokensOfRank.own",
            "return cut(x, dim, self.group)",
            "return x.narrow(dim, 0, self.own_length(x.shape[dim]))",
        ),
        where=("position_embedding*", "embedding*", "blocks.0*"),
        says="A rank takes the first tokens for its own.",
    ),
    bug(
        "columns of the other rank",
        _TWO,
        "plain",
        Edit(
            f"{_TP}:_cut_feed_forward",
            'cutting.linear(f"{name}.down", down, 1, bounds)',
            'cutting.linear(f"{name}.down", down, 1, chunk(down.in_features, 2, 1 - cutting.group.rank()))',
        ),
        where="blocks.0.feed_forward*",
        says="The second matrix is cut at the other rank's bounds.",
    ),
    bug(
        "gradients of latents are not summed over tp",
        _TWO,
        "latent",
        Edit(
            f"{_TP}:tensor_parallel",
            "if not placement.expert and",
            'if not parameter.name.endswith(("kv_down.weight", "query_down.weight")) and',
        ),
        where=("blocks.*.attention.kv_down*", "blocks.*.attention.query_down*", ATTENTION),
        says="Every rank computes the latents, whose gradients by way of its own heads are taken for all.",
    ),
    bug(
        "shared rotary key's gradient is not summed over tp",
        _TWO,
        "latent",
        Edit(
            f"{_TP}:tensor_parallel",
            "if not placement.expert and",
            'if not parameter.name.endswith("key_rope.weight") and',
        ),
        where=("blocks.*.attention.key_rope*", ATTENTION),
        says="The rotary key is one for all heads, its gradient is taken by way of a rank's own.",
    ),
    bug(
        "largest logit is not that of all ranks",
        _TWO,
        "plain",
        Edit(f"{_TP}:RowsOfVocabulary.largest", 'return all_reduce(x, self._group, "max")', "return x"),
        where=_HEAD,
        says="Each rank's exponentials are scaled by a maximum of its own before they are summed.",
    ),
    bug(
        "partition sum is not that of all ranks",
        _TWO,
        "plain",
        Edit(
            "model.loss:_Losses._chunk",
            "vocabulary.sum(logits.exp_().sum(dim=-1, keepdim=True))",
            "logits.exp_().sum(dim=-1, keepdim=True)",
        ),
        where=_HEAD,
        says="The softmax is over a rank's own tokens of the vocabulary.",
    ),
    bug(
        "target's logit is counted by two ranks",
        _TWO,
        "plain",
        Edit(
            "model.loss:_Losses._chunk",
            "_at(logits.sub_(largest), index).where(here, 0.0)",
            "_at(logits.sub_(largest), index).where(valid[:, None], 0.0)",
        ),
        where=_HEAD,
        says="A rank that lacks the target's row adds the logit of its first row.",
    ),
    bug(
        "vocabulary's bounds are off by one",
        _TWO,
        "plain",
        Edit(
            f"{_TP}:_cut_vocabulary",
            "RowsOfVocabulary(bounds[0],",
            "RowsOfVocabulary(max(0, bounds[0] - 1),",
        ),
        where=_HEAD,
        says="From the second rank on, targets are taken for one row further than they are.",
    ),
    bug(
        "target's gradient is taken off on two ranks",
        _TWO,
        "plain",
        Edit("model.loss:_Losses._chunk", "-scale.where(here, 0.0)", "-scale"),
        where=_HEAD,
        says="A rank that lacks the target's row takes its gradient off its first row.",
    ),
    bug(
        "loss is counted by every tp rank",
        _TWO,
        "plain",
        Edit(
            "parallel.parallel_model:ParallelModel._own_sums",
            "if losses is not None and self.world.coordinate.tp == 0:",
            "if losses is not None:",
        ),
        where="loss",
        says="All tensor-parallel ranks have the whole loss, and all of it is summed.",
    ),
    bug(
        "initial values by place in a rank's part",
        _TWO,
        "plain",
        Edit(
            "parallel.placement:initialise_part",
            "row * width, (row + count) * width",
            "index * width, (index + count) * width",
        ),
        where="initial: *",
        says="The second rank's part begins with the draws of the first rank's.",
    ),
    bug(
        "a rank's part begins at the start of the whole",
        Layout(tp=2, dp_shard=2),
        "plain",
        Edit("parallel.placement:Held.box", "first + start, first + stop", "start, stop"),
        where="embedding*",
        says="Where parts are sharded further, their place in the whole forgets the first cut (as in checkpoints).",
    ),
)
