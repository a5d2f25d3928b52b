"""Why a configuration was chosen: where memory and time go, who lost and why, what would help."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from stoker.errors import BadInput
from stoker.planning.cluster import Cluster, Prediction
from stoker.planning.search.searching import Candidate, Found, judge, search
from stoker.plural import counted
from stoker.recipe.memory import Memory

_PARTS = {
    "matmul": "matrix products",
    "attention": "attention",
    "pointwise": "norms and activations",
    "launch": "launching kernels",
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "ep": "expert-parallel traffic",
    "dp": "gradients and weights on their way",
    "pp_bubble": "pipeline bubble",
    "pp_transfer": "transfers between stages",
    "optimizer": "optimizer",
    "recompute": "computing again",
    "offload": "waiting for the host",
    "data": "data and bookkeeping",
    "straggler": "the slowest rank",
}
_CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "framework")
_WORTH_SAYING = 0.01
_FASTER_NETWORK = 2.0
_MORE_MEMORY = 1.5


@dataclass(frozen=True)
class Improvement:
    """What a change of the cluster or the batch would bring."""

    change: str
    seconds: float
    """Of a step then."""
    speedup: float
    """Times the tokens per second."""


def seconds_by_part(prediction: Prediction) -> dict[str, float]:
    """Seconds of a step by part, the longest first, without those that take nothing."""
    found = {one.name: getattr(prediction.seconds, one.name) for one in fields(prediction.seconds)}
    return dict(sorted(((name, value) for name, value in found.items() if value > 0), key=lambda pair: -pair[1]))


def gigabytes_by_category(prediction: Prediction) -> dict[str, float]:
    """Memory of the rank that holds most, in 10^9 bytes."""
    return {name: getattr(prediction.memory, name) / 1e9 for name in _CATEGORIES}


def where_time_goes(prediction: Prediction) -> str:
    """One line."""
    total = prediction.seconds.total
    shares = ((_PARTS[name], value / total) for name, value in seconds_by_part(prediction).items())
    return ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= _WORTH_SAYING)


def where_memory_goes(prediction: Prediction) -> str:
    """One line."""
    return ", ".join(f"{name} {size:.1f}" for name, size in gigabytes_by_category(prediction).items())


def why_it_lost(winner: Candidate, loser: Candidate) -> str:
    """What the loser spends more on, and what less."""
    ours, theirs = seconds_by_part(winner.prediction), seconds_by_part(loser.prediction)
    more = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in {*ours, *theirs}}
    worse = sorted(((gap, name) for name, gap in more.items() if gap > 0), reverse=True)[:2]
    better = min(((gap, name) for name, gap in more.items()), default=(0.0, ""))
    said = " and ".join(f"{gap:.2g} s more of {_PARTS[name]}" for gap, name in worse) or "nothing more"
    if better[0] < 0 and -better[0] > _WORTH_SAYING * winner.seconds:
        said += f", though {-better[0]:.2g} s less of {_PARTS[better[1]]}"
    return f"{loser.layout}: {loser.seconds / winner.seconds - 1:+.1%}; {said}"


def rivals(found: Found, count: int = 3) -> list[Candidate]:
    """The best of those that divide the model in another way than the winner and each other."""
    seen, chosen = {_way(found.best)}, []
    for one in found.candidates[1:]:
        if _way(one) not in seen:
            seen.add(_way(one))
            chosen.append(one)
        if len(chosen) == count:
            break
    return chosen


def own(found: Found) -> list[Candidate]:
    """The recipe's own configuration, where it is for as many ranks and is not the winner."""
    if found.recipe.layout.world_size != found.best.layout.world_size:
        return []
    one = judge(found.recipe, found.vocabulary_size, found.cluster)
    return [] if one.overrides() == found.best.overrides() else [one]


def _way(one: Candidate) -> tuple[int, ...]:
    return one.layout.tp, one.layout.pp, one.layout.cp, one.layout.ep


def improvements(found: Found) -> list[Improvement]:
    """What more accelerators, a faster network, more memory and a larger batch would bring, each searched anew."""
    return [one for one in (_nodes(found), _network(found), _memory(found), _batch(found)) if one is not None]


def _again(found: Found, cluster: Cluster) -> Candidate | None:
    """The best on another cluster of what divides the model as the winner and its rivals do."""
    best = None
    for one in (found.best, *rivals(found, 2)):
        layout = one.layout
        choices = replace(found.choices, tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep)
        try:
            again = search(found.recipe, found.vocabulary_size, cluster, choices=choices).best
        except BadInput:
            continue
        if best is None or again.seconds < best.seconds:
            best = again
    return best


def _nodes(found: Found) -> Improvement | None:
    cluster = found.cluster
    for nodes in range(cluster.nodes + 1, cluster.nodes * 2 + 1):
        best = _again(found, cluster.model_copy(update={"nodes": nodes}))
        if best is not None:
            more = counted(nodes - cluster.nodes, "nodes")
            first = "" if nodes == cluster.nodes + 1 else ", the fewest that this batch can be divided over"
            ranks = nodes * cluster.accelerators_per_node
            return _improvement(found, f"{more} more ({ranks:,} accelerators){first}", best)
    return None


def _network(found: Found) -> Improvement | None:
    if found.cluster.accelerators <= found.cluster.link_domain:
        return None
    faster = found.cluster.model_copy(update={"nic_gbps": found.cluster.nic_gbps * _FASTER_NETWORK})
    best = _again(found, faster)
    return None if best is None else _improvement(found, f"a network {_FASTER_NETWORK:g} times as fast", best)


def _memory(found: Found) -> Improvement | None:
    accelerator = found.cluster.accelerator
    larger = accelerator.model_copy(update={"memory_gb": (accelerator.memory_gb or 0.0) * _MORE_MEMORY})
    best = _again(found, found.cluster.model_copy(update={"accelerator": larger}))
    return None if best is None else _improvement(found, f"{_MORE_MEMORY:g} times the memory", best)


def _batch(found: Found) -> Improvement | None:
    training = found.recipe.training
    if training.batch_ramp:
        return None
    larger = training.model_copy(update={"global_batch_size": 2 * training.global_batch_size})
    doubled = replace(found, recipe=found.recipe.model_copy(update={"training": larger}))
    best = _again(doubled, found.cluster)
    if best is None:
        return None
    return Improvement("twice the batch", best.seconds, 2 * found.best.seconds / best.seconds)


def _improvement(found: Found, change: str, best: Candidate) -> Improvement:
    return Improvement(change, best.seconds, found.best.seconds / best.seconds)


def next_constraint(found: Found, improved: list[Improvement]) -> str:
    """What holds the best configuration back most."""
    best = found.best
    memory = best.prediction.memory.total / 1e9
    limit = found.cluster.accelerator.memory_gb or 0.0
    if best.memory != Memory():
        bought = next((one for one in improved if "memory" in one.change), None)
        gain = (
            "" if bought is None else f", and with {bought.change} a step would be {bought.speedup - 1:.1%} faster"
        )
        return f"memory: {memory:.1f} of {limit:.0f} GB are used although {_said(best.memory)}{gain}"
    shares = seconds_by_part(best.prediction)
    waits = {name: shares.get(name, 0.0) for name in ("tp", "cp", "ep", "dp", "pp_bubble", "pp_transfer")}
    name = max(waits, key=lambda part: waits[part])
    share = waits[name] / best.seconds
    if share > 0.05:
        cure = {
            "pp_bubble": "more micro-batches (a larger batch) would shrink it",
            "dp": "a larger batch or a faster network would hide it",
        }.get(name, "a faster link would shrink it")
        return f"{_PARTS[name]}: {share:.0%} of the step; {cure}"
    return f"arithmetic: {1 - sum(waits.values()) / best.seconds:.0%} of the step is computation"


def _said(memory: Memory) -> str:
    words, recompute = [], memory.recompute
    if recompute.name == "full":
        words.append(
            f"{'every layer' if recompute.every == 1 else f'one layer of {recompute.every}'} is computed again"
        )
    elif recompute.name == "operations":
        named = ", ".join(("norms and activations", *(one.replace("_", " ") for one in recompute.operations)))
        words.append(f"{named} are computed again")
    words += [f"{name.removeprefix('offload_')} rests on the host" for name in memory.offloads]
    return " and ".join(words)


def as_dict(found: Found, improved: list[Improvement]) -> dict[str, Any]:
    """For machines; bytes in 10^9, seconds of a step."""

    def one(candidate: Candidate) -> dict[str, Any]:
        return {
            "layout": candidate.layout.model_dump(),
            "micro_batch_size": candidate.micro_batch_size,
            "memory_techniques": candidate.memory.model_dump(mode="json"),
            "overrides": candidate.overrides(),
            "step_seconds": candidate.seconds,
            "seconds": seconds_by_part(candidate.prediction),
            "memory_gb": candidate.prediction.memory.total / 1e9,
            "gigabytes": gigabytes_by_category(candidate.prediction),
            "mfu": candidate.prediction.mfu,
            "tokens_per_second_per_accelerator": candidate.prediction.tokens_per_second_per_accelerator,
            "accelerators": candidate.layout.world_size,
            "accelerator_hours_per_step": candidate.accelerator_hours,
        }

    return {
        "cluster": found.cluster.model_dump(),
        "goal": found.goal,
        "best": one(found.best),
        "rivals": [{**one(rival), "why_it_lost": why_it_lost(found.best, rival)} for rival in rivals(found)],
        "next_constraint": next_constraint(found, improved),
        "improvements": [vars(improvement) for improvement in improved],
        "looked_at": found.looked_at,
        "layouts_too_large": found.too_large,
    }


def as_text(found: Found, improved: list[Improvement], steps: int) -> str:
    """For people."""
    best, cluster = found.best, found.cluster
    prediction, ranks = best.prediction, best.layout.world_size
    hours = steps * best.seconds / 3600
    mfu = "" if prediction.mfu is None else f", {prediction.mfu:.0%} of the published peak"
    lines = [
        ("cluster", f"{cluster.accelerators:,} × {cluster.accelerator.name} in {counted(cluster.nodes, 'nodes')}"),
        ("layout", f"{best.layout}, micro-batches of {best.micro_batch_size}"),
        ("memory", f"{_said(best.memory) or 'nothing is computed again'}"),
        ("", f"{prediction.memory.total / 1e9:.1f} of {cluster.accelerator.memory_gb:.0f} GB on the fullest rank: "
         f"{where_memory_goes(prediction)}"),
        ("step", f"{best.seconds:.3g} s: {where_time_goes(prediction)}"),
        ("speed", f"{prediction.tokens_per_second_per_accelerator:,.0f} tokens/s on each of {ranks:,}{mfu}"),
        ("in all", f"{steps:,} steps in {hours:,.1f} hours, {hours * ranks:,.0f} accelerator-hours"),
        ("held by", next_constraint(found, improved)),
        *(("lost", why_it_lost(best, rival)) for rival in rivals(found)),
        *(("recipe's", why_it_lost(best, one)) for one in own(found)),
        *(("would", f"{one.change}: {one.speedup - 1:+.1%} tokens/s") for one in improved),
        ("searched", f"{found.looked_at:,} configurations; {found.too_large:,} layouts need more memory"),
        ("take it", " ".join(best.overrides())),
    ]  # fmt: skip
    return "\n".join(f"{name:<10}{text}" for name, text in lines)
