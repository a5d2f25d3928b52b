"""Mistakes in what pipeline stages hand to each other, and in what becomes of gradients that are put off."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit
from tests.verification.planted.bug import PlantedBug, bug

_PLAIN, _GPIPE, _SPLIT = (Layout(pp=2, pipeline_schedule=name) for name in ("1f1b", "gpipe", "zbv"))
_PP, _APPLY = "parallel.pipeline", "parallel.apply"
_STEP = f"{_PP}.executor:_Step"
_EMBEDDING, _LATER_BLOCKS = ("embedding*", "head*"), ("blocks.2*", "blocks.3*")

BUGS: tuple[PlantedBug, ...] = (
    bug(
        "tied embedding's gradients stay apart",
        _PLAIN,
        "tied",
        Edit(f"{_APPLY}:_share_embedding", "one.shared_by(group)", "pass"),
        where=_EMBEDDING,
        says="First and last stage each train their copy of one matrix.",
    ),
    bug(
        "tied embedding's gradients on one rank stay apart",
        _SPLIT,
        "tied",
        Edit(f"{_APPLY}:_share_embedding", "return [(here[0], here[1])]", "return []"),
        where=_EMBEDDING,
        says="Where first and last stage are on one rank, their copies of one matrix are not added up.",
    ),
    bug(
        "tied embedding's gradient of the last stage is dropped",
        _SPLIT,
        "tied",
        Edit(
            "parallel.replicate:PartialGradients.finish",
            "total = _gradient(one).add_(_gradient(other))",
            "total = _gradient(one)",
        ),
        where=_EMBEDDING,
        says="The first stage's gradient is taken for the sum of both.",
    ),
    bug(
        "tied embedding counts twice in the global norm",
        _SPLIT,
        "tied",
        Edit(f"{_APPLY}:_share_embedding", "one.copies *= 2", "one.copies *= 1"),
        where=_EMBEDDING,
        says="A matrix that is in two stages is counted in both.",
    ),
    bug(
        "embedding of further tokens is not shared with the last stage",
        _PLAIN,
        "further",
        Edit(f"{_APPLY}:_share_embedding", "(config.tie_embeddings or config.mtp_depth)", "config.tie_embeddings"),
        where=_EMBEDDING,
        says="The last stage embeds further tokens with a matrix that nobody adds up.",
    ),
    bug(
        "later stages take micro-batches in another order",
        _PLAIN,
        "deep",
        Edit(
            f"{_STEP}._forward",
            "self._batches[micro_batch], None",
            "self._batches[-1 - micro_batch if stage else micro_batch], None",
        ),
        where="samples",
        says="The last stage has the targets of another micro-batch.",
    ),
    bug(
        "positions of the first micro-batch",
        _PLAIN,
        "deep",
        Edit(
            f"{_STEP}._forward",
            "self._batches[micro_batch], None",
            "self._batches[micro_batch]._replace(positions=self._batches[0].positions), None",
        ),
        where=("blocks.0.attention*", "blocks.2.attention*"),
        says="Stages turn queries and keys by the positions of the first micro-batch.",
    ),
    bug(
        "documents of the first micro-batch on later stages",
        _PLAIN,
        "deep",
        Edit(
            f"{_STEP}._forward",
            "self._batches[micro_batch], None",
            "self._batches[micro_batch]._replace(\n"
            "        documents=self._batches[0 if stage else micro_batch].documents), None",
        ),
        where=_LATER_BLOCKS,
        says="Later stages keep apart the documents of the first micro-batch.",
    ),
    bug(
        "messages of one lane share their memory",
        _GPIPE,
        "deep",
        Edit(
            f"{_PP}.lanes:Lanes.receive",
            "tensor = torch.empty(shape, dtype=dtype, device=self._device)",
            "kept = self.__dict__.setdefault('kept', {})\n"
            "    tensor = kept.setdefault((lane, shape), torch.empty(shape, dtype=dtype, device=self._device))",
        ),
        where=(*_LATER_BLOCKS, "blocks.1*", "token losses", "loss"),
        says="A receive is posted into memory that the micro-batch before still needs.",
    ),
    bug(
        "stage is given its own last output",
        _SPLIT,
        "deep",
        Edit(
            f"{_STEP}._forward",
            "entered = self._take(Payload.ACTIVATION, stage, stage - 1, micro_batch).requires_grad_()",
            "entered = self._take(Payload.ACTIVATION, stage, stage - 1, micro_batch)\n"
            "        kept = self.__dict__.setdefault('kept', {})\n"
            "        entered = kept.setdefault(stage, entered).detach().requires_grad_()",
        ),
        where=("blocks.*", "token losses", "loss"),
        says="Later micro-batches enter a stage with the first one's residual stream.",
    ),
    bug(
        "losses of micro-batches are averaged",
        _PLAIN,
        "deep",
        Edit(f"{_STEP}._forward", "torch.ones_like(root)", "torch.ones_like(root) / len(self._batches)"),
        where="activation gradient: norm",
        says="The gradient that backward starts with is divided by the number of micro-batches.",
    ),
    bug(
        "weight gradients that were put off replace those before",
        _SPLIT,
        "deep",
        Edit(f"{_PP}.deferred:WeightGradients.run", "parameter.grad += compute()", "parameter.grad = compute()"),
        where=("blocks.*", "head*"),
        says="Of all micro-batches the last one's weight gradients are left.",
    ),
    bug(
        "weight gradients of the first micro-batch are lost",
        _SPLIT,
        "deep",
        Edit(
            f"{_PP}.deferred:WeightGradients.run",
            "waiting = self._waiting.pop(micro_batch)",
            "waiting = self._waiting.pop(micro_batch)\n    if micro_batch == 0:\n        waiting.clear()",
        ),
        where=("blocks.*",),
        says="What the first half of a backward pass puts off is thrown away for one micro-batch.",
    ),
    bug(
        "weight gradients are computed at once and put off as well",
        _SPLIT,
        "deep",
        Edit(
            f"{_PP}.deferred:WeightGradients.gradient",
            "self._putting_off.append((parameter, compute))\n    return None",
            "self._putting_off.append((parameter, compute))\n    return compute()",
        ),
        where=("blocks.*",),
        says="Weight gradients count twice.",
    ),
    bug(
        "experts' weight gradients are put off and forgotten",
        _SPLIT,
        "experts_deep",
        Edit(
            f"{_PP}.deferred:_GroupsLater.outer",
            "return self._later.gradient(weight, partial(self._outer, x, y, weight))",
            "return None if self._later._putting_off is not None else self._outer(x, y, weight)",
        ),
        where=("blocks.*.feed_forward.experts*", "blocks.*.feed_forward*"),
        says="The first half of backward leaves them out, the second does not know of them.",
    ),
    bug(
        "gradients that were put off are not summed over shards",
        Layout(pp=2, dp_shard=2, pipeline_schedule="zbv"),
        "deep",
        Edit("parallel.parallel_model:ParallelModel._after_last", "sharding.reduce()", "pass"),
        where="gradient: *",
        says="FSDP sums in backward passes, and these gradients come after the last of them.",
    ),
    bug(
        "gradient that goes back is that of the first micro-batch's",
        _GPIPE,
        "deep",
        Edit(
            f"{_STEP}._backward",
            "back = held.entered.grad\n",
            "back = self.__dict__.setdefault('kept', {}).setdefault(stage, held.entered.grad)\n",
        ),
        where=("blocks.0*", "blocks.1*", "embedding*"),
        says="The stage before gets one micro-batch's gradient for all.",
    ),
    bug(
        "last layer is left out",
        _PLAIN,
        "deep",
        Edit(
            "model.decoder:Decoder._run",
            "for layer, block in self.blocks.items():",
            "for layer, block in list(self.blocks.items())[: -1 if self.ends and not self.begins else None]:",
        ),
        where=("blocks.3*",),
        says="The last stage stops one layer early.",
    ),
    bug(
        "layers are counted from the start of their stage",
        _PLAIN,
        "layer_drop",
        Edit(
            "model.decoder:Decoder._run",
            "draws.of_layer(int(layer))",
            "draws.of_layer(list(self.blocks).index(layer))",
        ),
        where=_LATER_BLOCKS,
        says="LayerDrop of a later stage is that of the first layers.",
    ),
)
