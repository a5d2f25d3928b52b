"""The performance check-list: data, computation, communication in turn, each question answered with figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stoker import wording
from stoker.planning.pipeline import makespan
from stoker.profiling.account import BUBBLE, COMPUTE, EXPOSED, HOST
from stoker.profiling.analysis import Picture, RankTable, mean_of
from stoker.profiling.operators import MULTIPLES
from stoker.recipe import Recipe

Said = Literal["yes", "no", "unknown"]
_LITTLE = 0.02
_SOME = 0.05
"""Shares of a step below which a loss is no matter."""
_EVEN = 1.05
_REACHED = 0.7
"""The share of what matrix products reach that a model's own shapes should."""
_LARGE_MESSAGE = 2**20
"""Bytes below which a message takes time for being one, more than for its size."""
_BUBBLE_BEYOND = 1.25
_SUITED = 0.95


@dataclass(frozen=True)
class Answer:
    """One question of the check-list."""

    area: Literal["data", "compute", "communication", "memory"]
    question: str
    """So put that `yes` is well."""
    answer: Said
    figures: str
    advice: str
    """What to do where the answer is no."""
    seconds: float
    """What a step would be shorter by, at most, if all were well here."""


@dataclass(frozen=True)
class Case:
    """What the questions are asked about."""

    picture: Picture
    recipe: Recipe
    step: int
    reachable: float
    """FLOPs a second that matrix products reach on this machine, on one rank."""

    @property
    def wall(self) -> float:
        """Seconds of a step."""
        return self.picture.wall

    def share(self, seconds: float) -> str:
        """`12 ms (3.4%)`."""
        return f"{wording.duration(seconds)} ({wording.percent(seconds / self.wall)})"


def answers(case: Case) -> tuple[Answer, ...]:
    """Every question, those first whose answer is no and costs most."""
    questions: Sequence[Callable[[Case], Answer]] = (
        _loader_ahead,
        _batches_even,
        _busy,
        _reaches,
        _shapes,
        _attention_fused,
        _nothing_twice,
        _compiled,
        _host_ahead,
        _optimizer,
        _saving,
        _hidden,
        _together,
        _buckets,
        _bubble,
        _fragmentation,
    )
    found = [question(case) for question in questions]
    rank = {"no": 0, "unknown": 1, "yes": 2}
    return tuple(sorted(found, key=lambda one: (rank[one.answer], -one.seconds)))


def _said(well: bool) -> Said:
    return "yes" if well else "no"


def _worst(case: Case, category: str) -> tuple[RankTable, float]:
    worst = max(case.picture.ranks, key=lambda one: one.nanoseconds[category])
    return worst, worst.seconds[category]


def _loader_ahead(case: Case) -> Answer:
    worst, seconds = _worst(case, "data")
    return Answer(
        "data",
        "Is the loader ahead of the step?",
        _said(seconds <= _LITTLE * case.wall),
        f"rank {worst.rank} waits {case.share(seconds)} for its batches",
        "give the machine faster storage, or prepare the corpus on it; fewer ranks on a machine leave the loader "
        "more of its processors",
        seconds,
    )


def _batches_even(case: Case) -> Answer:
    layout, question = case.recipe.layout, "Is computation even across ranks that see other tokens?"
    advice = "`training.document_mask` makes long documents dearer than short ones; a slow machine shows here too"
    worst, names = 0.0, "one rank alone has the tokens"
    for first in case.picture.ranks:
        at = layout.coordinate(first.rank)
        alike = [
            one
            for one in case.picture.ranks
            if layout.coordinate(one.rank).pp == at.pp and layout.coordinate(one.rank).tp == at.tp
        ]
        if len(alike) < 2:
            continue
        longest = max(alike, key=lambda one: one.nanoseconds[COMPUTE])
        mean = sum(one.seconds[COMPUTE] for one in alike) / len(alike)
        ratio = longest.seconds[COMPUTE] / mean if mean else 1.0
        if ratio - 1 >= worst:
            worst, beyond = ratio - 1, longest.seconds[COMPUTE] - mean
            names = f"rank {longest.rank} computes {wording.percent(worst)} longer than their mean"
            cost = beyond
    if names.startswith("one rank"):
        return Answer("data", question, "yes", names, "", 0.0)
    return Answer("data", question, _said(worst + 1 <= _EVEN), names, advice, cost)


def _busy(case: Case) -> Answer:
    mean = case.picture.mean()
    busy = (mean[COMPUTE] + mean["optimizer"]) / case.wall
    return Answer(
        "compute",
        "Is the device busy computing?",
        _said(busy >= 0.8) if case.picture.saw_device else "unknown",
        f"it computes {wording.percent(busy)} of the step",
        "the other questions say what it waits for",
        0.0,
    )


def _reaches(case: Case) -> Answer:
    totals, question = case.picture.totals, "Do matrix products reach what this machine can?"
    if not totals.matmul:
        return Answer("compute", question, "unknown", "no product with known sizes was seen", "", 0.0)
    share = totals.matmul_flops / (totals.matmul / 1e9) / case.reachable
    of_step = totals.matmul / 1e9 / sum(one.steps for one in case.picture.ranks)
    return Answer(
        "compute",
        question,
        _said(share >= _REACHED),
        f"{wording.count(totals.matmul_flops / (totals.matmul / 1e9))} FLOP/s, {wording.percent(share)} of "
        f"{wording.count(case.reachable)}",
        "a larger training.micro_batch_size makes them larger, a smaller layout.tp too",
        of_step * max(0.0, 1 - share),
    )


def _shapes(case: Case) -> Answer:
    totals, question = case.picture.totals, "Are matrix shapes multiples of what the hardware likes?"
    if not totals.matmul:
        return Answer("compute", question, "unknown", "no product with known sizes was seen", "", 0.0)
    shares = {multiple: totals.suited[multiple] / totals.matmul for multiple in MULTIPLES}
    told = ", ".join(f"of {multiple}: {wording.percent(share)}" for multiple, share in shares.items())
    return Answer(
        "compute",
        question,
        _said(shares[8] >= _SUITED),
        f"time in products with all sizes multiples {told}",
        "choose hidden sizes, heads, vocabulary and micro-batch × length so that each rank's part divides by 8, "
        "better by 128",
        0.0,
    )


def _attention_fused(case: Case) -> Answer:
    totals, question = case.picture.totals, "Is attention fused?"
    calls = totals.fused_calls + totals.unfused_calls
    if not calls:
        return Answer("compute", question, "unknown", "no attention was seen", "", 0.0)
    rank_steps = sum(one.steps for one in case.picture.ranks)
    return Answer(
        "compute",
        question,
        _said(not totals.unfused_calls),
        f"{totals.fused_calls:,} of {calls:,} calls never hold the matrix of scores",
        "on CUDA use bf16 or fp16 and a head size that divides by 8",
        totals.attention / 1e9 / rank_steps if totals.unfused_calls else 0.0,
    )


def _nothing_twice(case: Case) -> Answer:
    worst = max(case.picture.ranks, key=lambda one: one.repeated)
    return Answer(
        "compute",
        "Is nothing computed twice?",
        _said(worst.repeated <= _LITTLE * case.wall),
        f"rank {worst.rank} spends {case.share(worst.repeated)} on what its forward passes had computed",
        "where memory is left, take less of training.memory.recompute; `stoker plan` says what fits",
        worst.repeated,
    )


def _compiled(case: Case) -> Answer:
    by_family = mean_of([one.compute for one in case.picture.ranks])
    small = sum(by_family.get(name, 0.0) for name in ("elementwise", "normalisation", "reductions", "copies"))
    on = case.recipe.training.compile
    return Answer(
        "compute",
        "Is torch.compile on?",
        _said(on),
        f"{case.share(small)} are passes over memory that compiling joins",
        "training.compile=true",
        0.0 if on else small,
    )


def _host_ahead(case: Case) -> Answer:
    worst, seconds = _worst(case, HOST)
    return Answer(
        "compute",
        "Is the host ahead of the computation?",
        _said(seconds <= _SOME * case.wall),
        f"for {case.share(seconds)} rank {worst.rank} neither computes nor waits for anybody",
        "larger micro-batches or training.compile=true give the interpreter less to do for each operator",
        seconds,
    )


def _optimizer(case: Case) -> Answer:
    worst, seconds = _worst(case, "optimizer")
    return Answer(
        "compute",
        "Is the optimizer a small part?",
        _said(seconds <= 2 * _SOME * case.wall),
        f"rank {worst.rank}: {case.share(seconds)}",
        "a larger global batch has fewer updates; layout.dp_shard divides them over ranks",
        seconds,
    )


def _saving(case: Case) -> Answer:
    worst, seconds = _worst(case, "checkpoint")
    return Answer(
        "data",
        "Is saving out of the way?",
        _said(seconds <= _LITTLE * case.wall),
        f"rank {worst.rank} waits {case.share(seconds)} for checkpoints",
        "a larger checkpoint.every; faster storage",
        seconds,
    )


def _hidden(case: Case) -> Answer:
    ranks = case.picture.ranks
    worst, seconds = _worst(case, EXPOSED)
    parts = sorted(worst.sent, key=lambda one: -one.exposed)
    told = ""
    if parts and parts[0].exposed:
        told = f", most for {parts[0].kind} along {parts[0].dimension} ({wording.duration(parts[0].exposed)})"
    all_ = sum(one.communication for one in ranks)
    hidden = sum(one.overlapped for one in ranks) / all_ if all_ else 1.0
    return Answer(
        "communication",
        "Is communication hidden behind computation?",
        _said(seconds <= _SOME * case.wall),
        f"{wording.percent(hidden)} of its time is; rank {worst.rank} waits {case.share(seconds)}{told}"
        if len(ranks) > 1
        else "one rank has nobody to talk to",
        _instead_of(parts[0].dimension if parts else ""),
        seconds,
    )


def _instead_of(dimension: str) -> str:
    if "tp" in dimension.split("+"):
        return "a smaller layout.tp, within what one node's links join"
    if "ep" in dimension.split("+"):
        return "a smaller layout.ep, or ranks of one node for it"
    if "cp" in dimension.split("+"):
        return "layout.cp_method=ring hides it behind attention; or a smaller layout.cp"
    return (
        "more micro-batches in a step (accumulation) hide more; training.gradient_reduction=bf16 halves the bytes"
    )


def _together(case: Case) -> Answer:
    ranks, question = case.picture.ranks, "Do ranks arrive at collectives together?"
    if len(ranks) == 1:
        return Answer("communication", question, "yes", "there is one rank", "", 0.0)
    if not case.picture.met:
        return Answer("communication", question, "unknown", "no collective was seen on all its ranks", "", 0.0)
    worst = max(ranks, key=lambda one: one.late)
    last = max(case.picture.last, key=lambda rank: case.picture.last[rank])
    return Answer(
        "communication",
        question,
        _said(worst.late <= _LITTLE * case.wall),
        f"rank {worst.rank} waits {case.share(worst.late)} for ranks that are not there yet; rank {last} comes "
        f"last to {wording.percent(case.picture.last[last])} of its collectives",
        "see whether that rank has more tokens, more layers or a slower machine (`stoker diagnose`)",
        worst.late,
    )


def _buckets(case: Case) -> Answer:
    question, layout = "Are messages between data-parallel ranks large?", case.recipe.layout
    parts = [
        sent
        for one in case.picture.ranks
        for sent in one.sent
        if sent.kind in ("all_reduce", "reduce_scatter", "all_gather") and "dp" in sent.dimension and sent.bytes
    ]
    if layout.data_parallel_size == 1:
        return Answer("communication", question, "yes", "there is one data-parallel rank", "", 0.0)
    sent, count = sum(one.bytes for one in parts), sum(one.count for one in parts)
    if not count:
        return Answer("communication", question, "unknown", "none was seen", "", 0.0)
    exposed = max(sum(part.exposed for part in one.sent if part in parts) for one in case.picture.ranks)
    mean = sent / count
    return Answer(
        "communication",
        question,
        _said(mean >= _LARGE_MESSAGE or exposed <= _LITTLE * case.wall),
        f"{wording.size(mean)} each on average, {count / len(case.picture.ranks):,.0f} in a step of a rank, of "
        f"which {case.share(exposed)} are waited for",
        "a larger layout.gradient_bucket_mib; with dp_shard larger blocks"
        if sent / len(case.picture.ranks) > 2 * _LARGE_MESSAGE
        else "the model has too little to send for large messages: more micro-batches in a step send it less often",
        exposed,
    )


def _bubble(case: Case) -> Answer:
    layout, question = case.recipe.layout, "Is the pipeline's bubble what its schedule says?"
    if layout.pp == 1:
        return Answer("communication", question, "yes", "there is no pipeline", "", 0.0)
    stage = (1 / layout.stages, 2 / layout.stages)
    played = makespan(layout, case.recipe.accumulation_at(case.step), [stage] * layout.stages, 0.0)
    formula = 1 - played.busy / played.total
    worst, seconds = _worst(case, BUBBLE)
    measured = seconds / case.wall
    return Answer(
        "communication",
        question,
        _said(measured <= _BUBBLE_BEYOND * formula + _LITTLE),
        f"rank {worst.rank} waits {case.share(seconds)} for other stages; with equal stages and free messages "
        f"the schedule has {wording.percent(formula)}",
        "stages that take as long as each other, and more micro-batches; `stoker plan` looks for a better schedule",
        seconds,
    )


def _fragmentation(case: Case) -> Answer:
    question = "Is memory without fragments?"
    told: list[dict[str, Any]] = [
        facts["memory"] for facts in case.picture.facts if "peak_reserved" in facts["memory"]
    ]
    if not told:
        return Answer("memory", question, "unknown", "a processor's allocator does not tell", "", 0.0)
    worst = max(told, key=lambda one: one["peak_reserved"] - one["peak_allocated"])
    lost = worst["peak_reserved"] - worst["peak_allocated"]
    share = lost / worst["peak_reserved"] if worst["peak_reserved"] else 0.0
    return Answer(
        "memory",
        question,
        _said(share <= 2 * _SOME and not worst["retries"]),
        f"{wording.size(lost)} ({wording.percent(share)}) of what is reserved was never in use; the allocator "
        f"had to begin anew {worst['retries']:,} times",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        0.0,
    )
