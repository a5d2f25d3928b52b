"""Why a configuration was chosen: where memory and time go, who lost and why, what would help."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from stoker.errors import BadInput
from stoker.model import parameter_count
from stoker.planning.cluster import Cluster, Prediction, predict
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
_WORTH_NAMING = 0.02
_CURES = {
    "tp": "faster links would shrink it",
    "cp": "faster links would shrink it",
    "ep": "faster links would shrink it",
    "dp": "a larger batch or a faster network would hide it",
    "pp_bubble": "more micro-batches (a larger batch) would shrink it",
    "pp_transfer": "a faster network would shrink it",
    "offload": "a faster host link would hide it",
    "launch": "the accelerators wait for their hosts: larger micro-batches or fewer accelerators would help",
    "data": "the step is too small for so many accelerators",
}
_FASTER_NETWORK = 2.0
_MORE_MEMORY = 1.5


@dataclass(frozen=True)
class Improvement:
    """What a change of the cluster or the batch would bring."""

    change: str
    seconds: float
    """Of a step then."""
    speedup: float
    """Times the tokens per second, or per accelerator-hour where that is the goal."""


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
    """What the loser spends more on, and what less; of as many accelerators by part."""
    ranks, others = winner.layout.world_size, loser.layout.world_size
    if ranks != others:
        hours = loser.accelerator_hours / winner.accelerator_hours - 1
        return (
            f"{loser.layout}: {others:,} accelerators need {loser.seconds:.3g} s for a step, {ranks:,} "
            f"{winner.seconds:.3g} s: {hours:+.1%} accelerator-hours"
        )
    ours, theirs = seconds_by_part(winner.prediction), seconds_by_part(loser.prediction)
    gaps = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in {*ours, *theirs}}
    order = sorted(gaps, key=lambda name: -gaps[name])
    shown = [name for name in order[:2] if gaps[name] > 0]
    if gaps[order[-1]] < -_WORTH_SAYING * winner.seconds:
        shown.append(order[-1])
    total = loser.seconds - winner.seconds
    said = [f"{gaps[name]:+.2g} s of {_PARTS[name]}" for name in shown]
    rest = total - sum(gaps[name] for name in shown)
    if abs(rest) > _WORTH_SAYING * winner.seconds:
        said.append(f"{rest:+.2g} s of all else")
    why = ", ".join(said) or "nothing in particular"
    return f"{loser.layout}: {total / winner.seconds:+.1%} ({total:+.2g} s): {why}"


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
    same = found.recipe.layout.world_size == found.best.layout.world_size
    if not same and (found.goal == "time" or found.recipe.layout.world_size == 1):
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
            again = search(found.recipe, found.vocabulary_size, cluster, found.goal, choices).best
        except BadInput:
            continue
        if best is None or found.price(again) < found.price(best):
            best = again
    return best


def _better(found: Found, cluster: Cluster) -> Candidate:
    """The best on a cluster that can do all that the other can: at worst the configuration of before."""
    best, again = found.best, _again(found, cluster)
    prediction = predict(best.prediction.workload, cluster)
    before = Candidate(best.layout, best.micro_batch_size, best.memory, prediction)
    return before if again is None or found.price(before) < found.price(again) else again


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
    return _improvement(found, f"a network {_FASTER_NETWORK:g} times as fast", _better(found, faster))


def _memory(found: Found) -> Improvement | None:
    accelerator = found.cluster.accelerator
    larger = accelerator.model_copy(update={"memory_gb": (accelerator.memory_gb or 0.0) * _MORE_MEMORY})
    best = _better(found, found.cluster.model_copy(update={"accelerator": larger}))
    return _improvement(found, f"{_MORE_MEMORY:g} times the memory", best)


def _batch(found: Found) -> Improvement | None:
    training = found.recipe.training
    if training.batch_ramp:
        return None
    larger = training.model_copy(update={"global_batch_size": 2 * training.global_batch_size})
    doubled = replace(found, recipe=found.recipe.model_copy(update={"training": larger}))
    best = _again(doubled, found.cluster)
    if best is None:
        return None
    return Improvement("twice the batch", best.seconds, 2 * found.price(found.best) / found.price(best))


def _improvement(found: Found, change: str, best: Candidate) -> Improvement:
    return Improvement(change, best.seconds, found.price(found.best) / found.price(best))


def next_constraint(found: Found, improved: list[Improvement]) -> str:
    """What holds the best configuration back most."""
    best = found.best
    parts = seconds_by_part(best.prediction)
    bought = next((one.speedup - 1 for one in improved if "memory" in one.change), 0.0)
    if bought > _WORTH_NAMING and best.memory != Memory():
        used, limit = best.prediction.memory.total / 1e9, found.cluster.accelerator.memory_gb or 0.0
        return (
            f"memory: {used:.1f} of {limit:.0f} GB are used although {_said(best.memory)}; with "
            f"{_MORE_MEMORY:g} times as much a step would be {bought:.1%} faster"
        )
    waits = {name: parts[name] for name in _CURES if name in parts}
    name = max(waits, key=lambda part: waits[part], default="")
    if name and waits[name] > _WORTH_NAMING * best.seconds:
        return f"{_PARTS[name]}: {waits[name] / best.seconds:.0%} of the step; {_CURES[name]}"
    longest = next(iter(parts))
    return f"{_PARTS[longest]}: {parts[longest] / best.seconds:.0%} of the step, and little of it is waiting"


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
    hours, recipe = steps * best.seconds / 3600, found.recipe
    training = recipe.training
    parameters = parameter_count(recipe.model, found.vocabulary_size, training.sequence_length).total
    used = "" if ranks == cluster.accelerators else f", of which {ranks:,} are used"
    batch, nodes = counted(prediction.workload.global_batch_size, "sequences"), counted(cluster.nodes, "nodes")
    gained = "tokens/s" if found.goal == "time" else "tokens per accelerator-hour"
    mfu = "" if prediction.mfu is None else f", {prediction.mfu:.0%} of the published peak"
    lines = [
        ("model", f"{parameters / 1e9:.3g} billion parameters in {counted(recipe.model.layers, 'layers')}; "
         f"{batch} of {training.sequence_length:,} tokens in a batch"),
        ("cluster", f"{cluster.accelerators:,} × {cluster.accelerator.name} in {nodes}{used}"),
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
        *(("would", f"{one.change}: {one.speedup - 1:+.1%} {gained}") for one in improved),
        ("searched", f"{found.looked_at:,} configurations; {found.too_large:,} layouts need more memory"),
        ("take it", " ".join(best.overrides())),
    ]  # fmt: skip
    return "\n".join(f"{name:<10}{text}" for name, text in lines)
