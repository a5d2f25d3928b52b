"""Mistakes in what expert-parallel ranks divide, and in what routers know of tokens that are not at hand."""

from __future__ import annotations

from stoker.layout import Layout
from tests.verification.mutation import Edit
from tests.verification.planted.bug import PlantedBug, bug

_COPIES, _SHARDED, _TP, _CP = Layout(dp_replicate=2, ep=2), Layout(dp_shard=2, ep=2), Layout(tp=2), Layout(cp=2)
_WHOLE_EXPERTS = Layout(tp=2, ep=2, expert_tp=False)
_EP, _ROUTER, _APPLY = "parallel.expert_parallel", "model.router:Router", "parallel.apply"
_MIXTURE, _EXPERTS = "blocks.1.feed_forward*", "blocks.1.feed_forward.experts*"
_ROUTING = ("blocks.1.feed_forward.router*", "blocks.1*")

BUGS: tuple[PlantedBug, ...] = (
    bug(
        "experts' gradients are averaged over ep",
        _COPIES,
        "experts",
        Edit(
            f"{_APPLY}:_summed",
            "group = experts if one.placement.expert else dense",
            "group = experts if one.placement.expert else dense\n"
            "        if one.placement.expert:\n"
            "            one.parameter.register_hook(lambda gradient: gradient / world.layout.ep)",
        ),
        where=_EXPERTS,
        says="The tokens of all ranks passed through an expert; its gradient is divided by their number.",
    ),
    bug(
        "experts' gradients are summed over the wrong group",
        _COPIES,
        "experts",
        Edit(f"{_APPLY}:_summed", "group = experts if one.placement.expert else dense", "group = dense"),
        where=_EXPERTS,
        says="Gradients of different experts are summed like those of copies.",
    ),
    bug(
        "experts' gradients are not summed over their copies",
        Layout(dp_replicate=2),
        "experts",
        Edit(
            f"{_APPLY}:_summed",
            "group = experts if one.placement.expert else dense",
            "group = None if one.placement.expert else dense",
        ),
        where=_EXPERTS,
        says="Experts are left out of what is summed, as if ep had spread them.",
    ),
    bug(
        "experts count by the wrong number of copies in the global norm",
        _COPIES,
        "experts",
        Edit(
            f"{_APPLY}:apply",
            "expert_sizes(layout).replicate if one.placement.expert else layout.replicate_size",
            "layout.replicate_size",
        ),
        where="blocks.1",
        says="Experts that are held once are divided by the number of data-parallel ranks.",
    ),
    bug(
        "experts are sharded with other experts",
        _SHARDED,
        "experts",
        Edit(
            "parallel.shard:shard",
            "expert_mesh = world.sharding_mesh(experts=True, also_whole=offload)",
            "expert_mesh = mesh",
        ),
        where=_MIXTURE,
        says="Experts are sharded over all data-parallel ranks, though each has others.",
    ),
    bug(
        "rows come back in the wrong order",
        _COPIES,
        "experts",
        Edit(
            f"{_EP}:ToTheirExperts.__call__",
            "results = _permuted(experts(_permuted(rows, order, back), received.sum(dim=0)), back, order)",
            "results = experts(_permuted(rows, order, back), received.sum(dim=0))",
        ),
        where=_MIXTURE,
        says="Results are sent back in order of expert, not of rank.",
    ),
    bug(
        "rows are put back by the order that sorted them",
        _COPIES,
        "experts",
        Edit(
            f"{_EP}:ToTheirExperts.__call__",
            "received.sum(dim=0)), back, order)",
            "received.sum(dim=0)), order, back)",
        ),
        where=_MIXTURE,
        says="A permutation is applied twice where its inverse was meant.",
    ),
    bug(
        "counts are taken for those of the other rank",
        _COPIES,
        "experts",
        Edit(
            f"{_EP}:ToTheirExperts.__call__",
            "repeat_interleave(received.flatten())",
            "repeat_interleave(received.flip(0).flatten())",
        ),
        where=_MIXTURE,
        says="The rows of one rank are divided among experts by the counts of another.",
    ),
    bug(
        "rows' gradients stay in order of expert",
        _COPIES,
        "experts",
        Edit(f"{_EP}:_Permute.backward", "gradient[ctx.back]", "gradient"),
        where=(_MIXTURE, "blocks.0*"),
        says="Backward of a permutation leaves the gradient as it comes.",
    ),
    bug(
        "experts of the other rank",
        _COPIES,
        "experts",
        Edit(
            f"{_EP}:expert_parallel",
            "one.cut(0, chunk(one.shape[0], group.size(), group.rank()), group)",
            "one.cut(0, chunk(one.shape[0], group.size(), group.size() - 1 - group.rank()), group)",
        ),
        where=_MIXTURE,
        says="Rows go to rank r for experts that are dealt out from the last rank on.",
    ),
    bug(
        "mixture's outputs are not summed over tp",
        _TP,
        "experts",
        Edit(
            "parallel.tensor_parallel:TokensOfRank.sum_last",
            "sum_and_cut(output, 1, self.group)",
            "cut(output, 1, self.group)",
        ),
        where=_MIXTURE,
        says="Each rank has a part of every expert's columns, and keeps its own product.",
    ),
    bug(
        "experts' columns of the other tp rank",
        _TP,
        "experts",
        Edit(
            "parallel.tensor_parallel:_cut_mixture",
            "chunk(held.shape[dim], cutting.group.size(), cutting.group.rank())",
            "chunk(held.shape[dim], cutting.group.size(), "
            "cutting.group.rank() if dim == 1 else 1 - cutting.group.rank())",
        ),
        where=_MIXTURE,
        says="Experts' second matrices are cut at the other rank's bounds.",
    ),
    bug(
        "routers' losses count once for each tp rank",
        _TP,
        "experts",
        Edit(f"{_EP}:SequencesOverRanks.share", "1.0 / self._alike", "1.0"),
        where=_ROUTING,
        says="All tensor-parallel ranks add the whole auxiliary loss of the same tokens.",
    ),
    bug(
        "auxiliary loss is that of a rank's part of the sequence",
        _CP,
        "experts",
        Edit(f"{_EP}:SequencesOverRanks.sum", "return all_reduce(x, self._group)", "return x"),
        where=_ROUTING,
        says="Choices are not counted over the context-parallel ranks.",
    ),
    bug(
        "auxiliary loss takes the part's length for the sequence's",
        _CP,
        "experts",
        Edit(f"{_EP}:SequencesOverRanks.length", "return self.whole", "return at_hand"),
        where=_ROUTING,
        says="Shares of a whole sequence's choices are taken of a part of its tokens.",
    ),
    bug(
        "auxiliary loss is not summed over tp's tokens",
        _WHOLE_EXPERTS,
        "experts",
        Edit(
            f"{_APPLY}:_let_routers_see",
            'world.along("cp") if gathered else world.along("cp", "tp")',
            'world.along("cp")',
        ),
        where=_ROUTING,
        says="Routers see a tensor-parallel rank's own tokens, and count no others.",
    ),
    bug(
        "capacity of a cp rank's part of the sequence",
        _CP,
        "experts",
        Edit(
            f"{_ROUTER}._with_room",
            "whole = sequences.gather_choices(chosen_BLK)",
            "sequences, whole = WholeSequences(), chosen_BLK",
        ),
        where=_MIXTURE,
        says="The first tokens find room, counted on each context-parallel rank by itself.",
    ),
    bug(
        "capacity of a tp rank's part of the sequence",
        _WHOLE_EXPERTS,
        "experts",
        Edit(
            f"{_ROUTER}._with_room",
            "whole = sequences.gather_choices(chosen_BLK)",
            "sequences, whole = WholeSequences(), chosen_BLK",
        ),
        where=_MIXTURE,
        says="The first tokens find room, counted on each tensor-parallel rank by itself.",
    ),
    bug(
        "selection bias follows a rank's own counts",
        _COPIES,
        "experts",
        Edit(
            "parallel.parallel_model:ParallelModel.finish_routing",
            "update_selection_bias(found[name].tokens_per_expert)",
            "update_selection_bias(taken.tokens_per_expert)",
        ),
        where=_ROUTING,
        says="Ranks move the biases of one router apart.",
    ),
    bug(
        "routers' counts are those of every tp rank",
        _TP,
        "experts",
        Edit(
            "parallel.parallel_model:ParallelModel.finish_routing",
            "self.world.coordinate.tp > 0",
            "False",
        ),
        where="routing: blocks.1.*",
        says="Tensor-parallel ranks saw the same tokens, and all of them are counted.",
    ),
    bug(
        "router's gradient is not summed over tp's tokens",
        _WHOLE_EXPERTS,
        "experts",
        Edit(
            "parallel.tensor_parallel:tensor_parallel",
            "if not placement.expert and",
            'if not parameter.name.endswith("router.weight") and not placement.expert and',
        ),
        where=_ROUTING,
        says="A router that sees a rank's own tokens keeps the gradient they give it.",
    ),
)
