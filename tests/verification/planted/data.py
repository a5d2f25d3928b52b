"""Mistakes in what data-parallel ranks divide: the batch, gradients, weights, optimizer state, the norm."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit
from tests.verification.planted.bug import PlantedBug, bug

_COPIES, _SHARDED, _BOTH = Layout(dp_replicate=2), Layout(dp_shard=2), Layout(dp_replicate=2, dp_shard=2)
_TP, _FOUR = Layout(tp=2), Layout(tp=4)
_REPLICATE, _SHARD, _MODEL = (
    "parallel.replicate",
    "parallel.shard:Sharding",
    "parallel.parallel_model:ParallelModel",
)
_GRADIENTS = "gradient: *"
_MATRICES = ("blocks.*.weight*", "blocks.*.row", "blocks.*.column", "embedding*", "head*")

BUGS: tuple[PlantedBug, ...] = (
    bug(
        "gradients are averaged over copies",
        _COPIES,
        "plain",
        Edit(
            f"{_REPLICATE}:Bucket.finish",
            "complete(self._work)",
            "complete(self._work)\n    assert self._flat is not None\n    self._flat /= self._group.size()",
        ),
        where=_GRADIENTS,
        says="As DDP does: the mean over ranks of what should be summed.",
    ),
    bug(
        "gradients of copies are not summed",
        _COPIES,
        "plain",
        Edit(
            f"{_REPLICATE}:Bucket.start",
            "dist.all_reduce(self._flat, group=self._group, async_op=True)",
            "dist.all_reduce(self._flat.clone(), group=self._group, async_op=True)",
        ),
        where=_GRADIENTS,
        says="The sum is made in memory that nobody reads.",
    ),
    bug(
        "copies count as many times as there are in the global norm",
        _COPIES,
        "plain",
        Edit(
            "parallel.gradients:Gradients.__init__", "(one.placement.holders * one.copies)", "one.placement.holders"
        ),
        where="norm: *",
        says="The squares of all ranks are added, though they hold the same.",
    ),
    bug(
        "sums start before gradients are complete",
        _COPIES,
        "plain",
        Edit(f"{_REPLICATE}:SummedGradients.during", "self._summing = last", "self._summing = True"),
        where=_GRADIENTS,
        says="Buckets are summed in the first micro-batch's backward pass.",
    ),
    bug(
        "bucket forgets its last parameter",
        _COPIES,
        "plain",
        Edit(f"{_REPLICATE}:_buckets", "if filled:", "if len(filled) > 1:\n            filled.pop()"),
        where=("embedding*",),
        says="The parameter that closes a bucket is not summed.",
    ),
    bug(
        "gradients are cleared before each micro-batch",
        _COPIES,
        "plain",
        Edit(
            f"{_MODEL}._one_by_one",
            "last = index == len(batches) - 1",
            "last = index == len(batches) - 1\n        self.gradients.clear()",
        ),
        where=_GRADIENTS,
        says="Only the last micro-batch is summed.",
    ),
    bug(
        "gradients are averaged over shards",
        _SHARDED,
        "plain",
        Edit(
            f"{_SHARD}.__init__",
            "module.set_gradient_divide_factor(1.0)",
            "module.set_gradient_divide_factor(float(world.layout.dp_shard))",
        ),
        where=_GRADIENTS,
        says="As FSDP does by default: the mean over ranks of what should be summed.",
    ),
    bug(
        "FSDP sums when a pass is not the last",
        Layout(dp_shard=2, zero_stage=1),
        "plain",
        Edit(
            f"{_SHARD}.begin_pass",
            "set_requires_gradient_sync(",
            "set_requires_gradient_sync(not last and ",
        ),
        where=_GRADIENTS,
        says="Gradients are summed too early; the last micro-batch's never are.",
    ),
    bug(
        "only the last micro-batch is summed over shards",
        _SHARDED,
        "plain",
        Edit(
            f"{_MODEL}._one_by_one",
            "last = index == len(batches) - 1",
            "last = index == len(batches) - 1\n        self.gradients.clear()",
        ),
        where=_GRADIENTS,
        says="Sharded gradients are cleared before each micro-batch.",
    ),
    bug(
        "whole weights outlast the update",
        Layout(dp_shard=2, zero_stage=2),
        "plain",
        Edit(
            f"{_SHARD}.begin_pass",
            "set_reshard_after_backward(self._stage == 3 or (last and not later),",
            "set_reshard_after_backward(self._stage == 3,",
        ),
        where=_GRADIENTS,
        says="Weights are not let go of after the last pass: the next step sees those from before the update.",
    ),
    bug(
        "sharded gradients are not summed over copies",
        _BOTH,
        "plain",
        Edit("parallel.world:World.sharding_mesh", "if copy_group is None or copies_apart:", "if True:"),
        where=_GRADIENTS,
        says="FSDP knows of one copy, and each trains on its own part of the batch.",
    ),
    bug(
        "samples are numbered within a rank",
        _COPIES,
        "layer_drop",
        Edit(f"{_MODEL}._run", "samples=batch.samples", "samples=torch.arange(len(batch.tokens))"),
        where="samples",
        says="LayerDrop draws the same for the first sample of every rank.",
    ),
    bug(
        "dropout by a sample's number in its micro-batch",
        _SHARDED,
        "dropout",
        Edit(f"{_MODEL}._run", "samples=batch.samples", "samples=torch.arange(len(batch.tokens))"),
        where="samples",
        says="All ranks and micro-batches drop the same.",
    ),
    bug(
        "dropout by a token's place on its rank",
        _TP,
        "dropout",
        Edit(
            "model.decoder:Decoder._draws",
            "self.stream.own(own, 0)",
            "own[: len(self.stream.own(own, 0))]",
        ),
        where=("embedding*", "blocks.0*"),
        says="Tensor-parallel ranks drop the same of their own tokens.",
    ),
    bug(
        "loss is the mean of ranks' means",
        _COPIES,
        "plain",
        Edit(
            f"{_MODEL}.forward_backward",
            "loss_scale=loss_scale",
            "loss_scale=1.0 / max(1, sum(int((one.targets >= 0).sum()) for one in batches)) "
            "/ self.world.layout.data_parallel_size",
        ),
        where="activation gradient: norm",
        says="Each rank divides by the count of its own targets.",
    ),
    bug(
        "loss is divided by the count of a micro-batch",
        _SHARDED,
        "plain",
        Edit(
            f"{_MODEL}._run",
            "loss_scale=loss_scale",
            "loss_scale=loss_scale * 20 / max(1, int((batch.targets >= 0).sum()))",
        ),
        where="activation gradient: norm",
        says="Every micro-batch weighs the same, however few targets it has.",
    ),
    bug(
        "gradient is clipped by a rank's own norm",
        _SHARDED,
        "plain",
        Edit("parallel.gradients:Gradients.norms", "self._world.sum(squares).sqrt()", "squares.sqrt()"),
        where="norm: *",
        says="The norm is that of a rank's shards.",
    ),
    bug(
        "norm is the sum of ranks' norms",
        _TP,
        "plain",
        Edit(
            "parallel.gradients:Gradients.norms",
            "self._world.sum(squares).sqrt()",
            "self._world.sum(squares.sqrt())",
        ),
        where="norm: *",
        says="Roots are added, not squares.",
    ),
    bug(
        "Adafactor's statistics are those of a rank's part",
        _TP,
        "adafactor",
        Edit(
            "training.optimizer.adafactor:AdafactorOptimizer._sum",
            "return sum_over_parts(values, [self._held[parameter] for parameter in parameters], dims)",
            "return values",
        ),
        where=_MATRICES,
        says="Sums over rows and columns end where a rank's part does.",
    ),
    bug(
        "Adafactor counts shared key and value heads twice",
        _FOUR,
        "adafactor",
        Edit(
            "parallel.whole:sum_over_parts",
            "torch.zeros_like(value) if _is_repeated(one, along) else value",
            "value.clone()",
        ),
        where=("blocks.*.attention.key*", "blocks.*.attention.value*"),
        says="What two ranks hold of a key matrix is added to its sums twice.",
    ),
    bug(
        "Adafactor's rows are naught where another rank has the same ones",
        _FOUR,
        "adafactor",
        Edit("parallel.whole:_is_repeated", " and any(cut.dim in dims for cut in held.placement.cuts)", ""),
        where=("weight: blocks.*.attention.key*", "weight: blocks.*.attention.value*"),
        says="Of two ranks with one key head one gives naught, also to sums that nobody else adds to.",
    ),
    bug(
        "Muon orthogonalises a rank's part",
        _SHARDED,
        "muon",
        Edit(
            "training.optimizer.muon:MuonOptimizer._orthogonal_step",
            "gathered(ahead, held, within)",
            "own_part(torch.zeros(held.shape, dtype=ahead.dtype), held, within)[:0].new_zeros(held.shape)"
            ".index_put_(tuple(torch.meshgrid(*(torch.arange(*one) for one in held.box), indexing='ij')), ahead)",
        ),
        where=_MATRICES,
        says="Newton-Schulz sees a matrix of which other ranks' rows are naught.",
    ),
    bug(
        "Muon adds shared key and value heads twice",
        Layout(tp=3),
        "muon",
        Edit("parallel.whole:gathered", "if placement.speaks:", "if True:"),
        where=("blocks.*.attention.key*", "blocks.*.attention.value*"),
        says="Whole matrices are put together from all ranks' parts, though two hold the same one.",
    ),
    bug(
        "Muon keeps the first rank's part of the update",
        _SHARDED,
        "muon",
        Edit(
            "training.optimizer.muon:MuonOptimizer._orthogonal_step",
            "own_part(direction, held, within)",
            "direction[tuple(slice(0, size) for size in local(parameter).shape)]",
        ),
        where=_MATRICES,
        says="Every rank moves its rows as the first rows are to move.",
    ),
    bug(
        "momentum of another parameter of the same shape",
        _COPIES,
        "lion",
        Edit(
            "training.optimizer.lion:LionOptimizer._update",
            'momenta = [local(self.state[parameter]["momentum"]) for parameter in moving]',
            "by_shape = {p.shape: p for p in moving}\n"
            '    momenta = [local(self.state[by_shape[p.shape]]["momentum"]) for p in moving]',
        ),
        where=("state: *", "weight: *"),
        says="Optimizer state is found by shape, where it should be found by parameter.",
    ),
    bug(
        "parts of a checkpoint are written from the other end",
        _TP,
        "plain",
        Edit(
            "checkpoint.parts:pieces_of",
            "found.append((Piece(name, dtype, tuple(part.shape), box), elements))",
            "mirrored = tuple((size - last, size - first) for (first, last), size in zip(box, part.shape))\n"
            "            found.append((Piece(name, dtype, tuple(part.shape), mirrored), elements))",
        ),
        where="checkpoint: *",
        says="What each rank holds is put where another's part belongs.",
    ),
    bug(
        "column statistics are saved as if they were rows'",
        Layout(tp=2),
        "adafactor",
        Edit(
            "checkpoint.state:_part_of_state",
            "shape, box = (*shape[:-2], shape[-1]), (*box[:-2], box[-1])",
            "shape, box = (*shape[:-2], shape[-1]), (*box[:-2], (0, value.shape[-1]))",
        ),
        where=("state: *.column", "checkpoint: *"),
        says="Statistics of divided columns are said to begin the whole on every rank.",
    ),
)
