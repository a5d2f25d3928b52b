"""Causes that lie in a machine: wrong numbers, slow work, waiting, memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stoker.diagnosis.causes.cause import Cause, Sign, from_confidence
from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.causes.signs import of_members, of_replay, recorded, said
from stoker.diagnosis.finding import Finding, Kind, Part
from stoker.diagnosis.recent_past import as_numbers, deviation, likelihood
from stoker.diagnosis.slowness import slowness
from stoker.diagnosis.told import AGAIN

_SLOW: tuple[Kind, ...] = ("slow_rank", "throughput_drop")
_ALONE = 10.0
"""Times its usual, by which the gradient of one part of the model stands out while those of the others do not."""
_STAYED, _ENDED = 1.5, 3.0
"""Nats for throttling that it stays, and against it that it is over: heat goes slowly."""
_UNEVEN = 0.3
"""Of what waits are longer by, by which their middle half lies further apart, that parts jitter from a slow
network: delays that are drawn from 0 to twice their mean give a half, and delays that are all alike nothing."""
_HALF = (0.75, 0.25)
_WAITS = "seconds of waiting of the rank that waits least"
_LONGER = 0.3
"""Of what ranks waited before, by which they have to wait longer for it to be the network."""
_SHORTEST, _AS_MUCH = 0.1, 0.9
_MARGIN, _COMPARED = 4, 32
"""Rows next to the first that are left out, and up to which is looked: the end of a long stretch may be another
story."""


def _wrong_numbers(incident: Incident) -> Iterator[Sign]:
    for member in incident.of_kind("silent_corruption"):
        yield recorded("bits of ranks that should agree", "different", member.first_step, "the same")
        return
    yield from of_replay(incident, batch=False)
    again = [one for member in incident.members for one in member.evidence if one.measure == AGAIN]
    if again and all(one.observed == "the same" for one in again):
        yield Sign(again[0], -6.0)
    grown = next(iter(incident.of_kind("gradient_growth")), None)
    step = grown.first_step if grown is not None and grown.first_step is not None else incident.first
    norm = incident.departure(incident.rows.curve("gradient_norm"), step)
    loss = incident.departure(incident.rows.curve("loss"), step)
    if norm is None or loss is None or norm.factor < _ALONE:
        return
    usual = abs(loss.deviations) < 4
    yield Sign(norm.evidence("gradient norm"), likelihood(norm.deviations) / 2)
    yield Sign(loss.evidence("loss of the same step"), 3.0 if usual else -4.0)
    modules = incident.modules_at(step)
    if len(modules) > 1:
        worst, *rest = sorted(modules, key=lambda name: -modules[name])
        others = float(np.median([modules[name] for name in rest]))
        alone = modules[worst] > _ALONE and others < modules[worst] / _ALONE
        measure = f"factor by which the gradients of {worst} grew, where those of other parts did by"
        yield said(measure, modules[worst], step, 5.0 if alone else -3.0, others)
    following = incident.departure(incident.rows.curve("gradient_norm"), step + incident.rows.spacing)
    if following is not None:
        over = following.factor < norm.factor / 5
        yield Sign(following.evidence("gradient norm of the next row"), 1.5 if over else -3.0)


def _slow(incident: Incident, part: Part) -> Finding | None:
    """The member that says that this part takes longer; of several the one by which steps became longest."""
    return max((one for one in incident.of_kind(*_SLOW) if one.part == part), key=_factor, default=None)


def _factor(member: Finding) -> float:
    """By which what it tells of first became longer; 1 where it gives no figures."""
    expected, observed = member.evidence[0].expected, member.evidence[0].observed
    if not (isinstance(expected, float) and isinstance(observed, float) and expected > 0):
        return 1.0
    return observed / expected


def _weight(member: Finding) -> float:
    return from_confidence(member.confidence) if member.score is None else member.score


def _slow_computing(incident: Incident) -> Finding | None:
    """The member that says so; a rank whose own work as a whole is slow, where nothing says of what, computes
    slowly."""
    member = _slow(incident, "compute")
    if member is None and not any(one.part for one in incident.of_kind(*_SLOW)):
        member = next(iter(incident.of_kind("slow_rank")), None)
    return member


def _compute(incident: Incident) -> Iterator[Sign]:
    member = _slow_computing(incident) or _slow(incident, "host")
    if member is None:
        for sign in of_members(incident, "slow_rank"):
            yield Sign(sign.evidence, min(sign.score, 5.0))
        return
    yield Sign(member.evidence[0], _weight(member))
    if member.part != "host" and (course := slowness(incident.parts, member)) is not None:
        score = 1.0 - max(course.gradual, -1.0) + (_ENDED if course.over else 0.0)
        yield said("how its computing became longer", _came(course.gradual), member.first_step, score, "at once")


def _throttled(incident: Incident) -> Iterator[Sign]:
    member = _slow_computing(incident)
    if member is None:
        return
    yield Sign(member.evidence[0], _weight(member) - 1)
    if (course := slowness(incident.parts, member)) is not None:
        came = _came(course.gradual)
        yield said("how its computing became longer", came, member.first_step, course.gradual, "at once")
        stays, score = ("is over", -_ENDED) if course.over else ("stays", _STAYED)
        yield said("what became of it", stays, member.first_step, score, "stays")
    for rank in member.ranks or (0,):
        yield from _machine_says(incident, rank, member.first_step or 0)


def _came(gradual: float) -> str:
    return "over tens of steps" if gradual > 0 else "at once"


def _machine_says(incident: Incident, rank: int, step: int) -> Iterator[Sign]:
    table = incident.rows.machines.get(rank)
    if table is None or "step" not in table.columns:
        return
    now = as_numbers(table, "step") >= step
    throttled = as_numbers(table, "throttled") if "throttled" in table.columns else np.zeros(table.height)
    if np.nan_to_num(throttled[now]).any() and not np.nan_to_num(throttled[~now]).any():
        yield said(f"rank {rank}'s accelerator", "throttled", step, 8.0, "not throttled")
    clock = as_numbers(table, "clock_hertz")
    before, after = clock[~now & np.isfinite(clock)], clock[now & np.isfinite(clock)]
    if before.size >= 3 and after.size:
        spread = max(deviation(before), 0.01 * float(np.median(before)))
        fallen = (float(np.median(before)) - float(np.median(after))) / spread
        yield said(f"clock of rank {rank}'s accelerator in hertz", float(np.median(after)), step,
                   likelihood(max(fallen, 0.0)), float(np.median(before)))  # fmt: skip


def _network(incident: Incident) -> Iterator[Sign]:
    member = _waiting(incident)
    if member is None:
        return
    yield Sign(member.evidence[0], _weight(member))
    for sign in _how_waits_came(incident, member):
        yield sign if sign.evidence.measure == _WAITS else Sign(sign.evidence, -sign.score)
    yield from _waits_for_work(incident)


def _jitter(incident: Incident) -> Iterator[Sign]:
    member = _waiting(incident)
    if member is None:
        return
    yield Sign(member.evidence[0], _weight(member))
    yield from _how_waits_came(incident, member)
    yield from _waits_for_work(incident)


def _waits_for_work(incident: Incident) -> Iterator[Sign]:
    """That some rank's own work takes longer: the others wait for it, and not for the network."""
    parts: tuple[Part, ...] = ("compute", "data", "host")
    for part in parts:
        if (member := _slow(incident, part)) is not None:
            yield Sign(member.evidence[0], -_weight(member))


def _waiting(incident: Incident) -> Finding | None:
    """The member that says that ranks wait longer for each other, or now short and now long."""
    return _slow(incident, "communication") or next(iter(incident.of_kind("jitter")), None)


def _how_waits_came(incident: Incident, member: Finding) -> Iterator[Sign]:
    """What tells jitter from a slow network: how much further the middle half of the waits lies apart than before,
    and how much the shortest ones became longer, over the median by which all did. Of the rank that waits least."""
    waits = [
        (own.steps, np.nan_to_num(own.parts["communication"]))
        for own in incident.parts.values()
        if "communication" in own.parts
    ]
    course = slowness(incident.parts, member.model_copy(update={"part": "communication"}))
    first = member.first_step if course is None else course.first
    if not waits or first is None:
        return
    steps, waited = min(waits, key=lambda one: float(np.median(one[1])))
    at = int(np.searchsorted(steps, first))
    end = int(np.searchsorted(steps, member.last_step or steps[-1], side="right"))
    before, during = (
        waited[max(0, at - 32 - _MARGIN) : max(0, at - _MARGIN)],
        waited[at + _MARGIN : min(end, at + _COMPARED)],
    )
    if before.size < 4 or during.size < 4:
        return
    expected, observed = float(np.median(before)), float(np.median(during))
    longer = observed - expected
    if longer < _LONGER * expected:
        yield said(_WAITS, observed, first, -4.0, expected)
        return
    apart = float(np.subtract(*np.quantile(during, _HALF)) - np.subtract(*np.quantile(before, _HALF))) / longer
    shortest = float(np.quantile(during, _SHORTEST) - np.quantile(before, _SHORTEST)) / longer
    measure = "how much further apart the middle half of the waits lies, over what they are longer by"
    yield said(measure, apart, first, float(np.clip(4 * np.log(max(apart, 0.01) / _UNEVEN), -4, 4)))
    measure = "what the shortest waits are longer by, over what all are"
    yield said(measure, shortest, first, float(np.clip(10 * (_AS_MUCH - shortest), -3, 3)), 1.0)


def _loader(incident: Incident) -> Iterator[Sign]:
    member = _slow(incident, "data")
    if member is None:
        return
    yield Sign(member.evidence[0], _weight(member) + 1)
    rank = member.ranks[0] if member.ranks else 0
    table = incident.rows.of_ranks.get(rank)
    if table is None or "read_ahead" not in table.columns or member.first_step is None:
        return
    ahead, at = as_numbers(table, "read_ahead"), int(np.searchsorted(table["step"].to_numpy(), member.first_step))
    before, now = ahead[max(0, at - 32) : at], ahead[at : at + 8]
    if np.isfinite(before).any() and np.isfinite(now).any():
        expected, observed = float(np.nanmedian(before)), float(np.nanmedian(now))
        score = 2.0 if observed < expected else 0.0
        yield said("batches that lay ready", observed, member.first_step, score, expected)


def _leak(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "memory_growth")


def _hung(incident: Incident) -> Iterator[Sign]:
    for member in incident.of_kind("hang"):
        yield recorded(member.evidence[0].measure, member.evidence[0].observed, member.first_step)
        return


MACHINE = (
    Cause(
        name="wrong_numbers",
        group="machine",
        kinds=("silent_corruption", "gradient_growth", "spike", "divergence", "nan"),
        shows=("silent_corruption",),
        signature="A rank computes something else than others do from the same bits; or the gradient of one part "
        "of the model is many times its usual in one row, while the loss of that row is usual.",
        evidence=_wrong_numbers,
        remedy="check_machine",
        false_friends="Hard documents raise loss and gradients of the same row, in all parts of the model. "
        "Attention logits that grow take many rows.",
        source="Dixit et al. 2021, Silent Data Corruptions at Scale (arXiv:2102.11245)",
    ),
    Cause(
        name="slow_compute",
        group="machine",
        kinds=_SLOW,
        signature="One rank's forward and backward passes and updates take longer than they did and than the "
        "others', at once; the others wait for it.",
        evidence=_compute,
        remedy="check_machine",
        false_friends="Documents of other lengths: a rank is held against its own past, in which they vary as "
        "well. A rank that becomes slower and slower may be throttled.",
        source="Jiang et al. 2024, MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs "
        "(arXiv:2402.15627)",
    ),
    Cause(
        name="throttled_rank",
        group="machine",
        kinds=_SLOW,
        signature="A rank's computing becomes slower over tens of steps and stays there; where the platform "
        "tells, its clock has fallen or it says that it is throttled.",
        evidence=_throttled,
        remedy="cool_machine",
        false_friends="Another process on the machine slows it down at once.",
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models (arXiv:2407.21783), section 3.3.4",
    ),
    Cause(
        name="communication_jitter",
        group="machine",
        kinds=("jitter", "throughput_drop", "slow_rank"),
        shows=("jitter",),
        signature="Waiting for other ranks takes now short and now long, though no rank's own work does.",
        evidence=_jitter,
        remedy="check_network",
        false_friends="Work that varies makes others wait: then that rank's own seconds vary too. A network that "
        "is slow all the time.",
        source="Hoefler, Schneider and Lumsdaine 2010, Characterizing the Influence of System Noise on "
        "Large-Scale Applications by Simulation (doi:10.1109/SC.2010.12)",
    ),
    Cause(
        name="slow_network",
        group="machine",
        kinds=("throughput_drop", "slow_rank", "jitter"),
        shows=("throughput_drop",),
        signature="All ranks wait longer for each other than before, always by about as much, and none of them "
        "works longer.",
        evidence=_network,
        remedy="check_network",
        false_friends="A slow rank: the others wait for it, and it does not wait. Another layout of the ranks.",
        source="Jiang et al. 2024, MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs "
        "(arXiv:2402.15627)",
    ),
    Cause(
        name="loader_starvation",
        group="machine",
        kinds=(*_SLOW, "stall"),
        signature="Steps begin with waiting for their batch; no batch lies ready where some did.",
        evidence=_loader,
        remedy="feed_faster",
        false_friends="The first steps after a start, before batches have been made ahead.",
        source="Mohan et al. 2021, Analyzing and Mitigating Data Stalls in DNN Training (arXiv:2007.06775)",
    ),
    Cause(
        name="memory_leak",
        group="machine",
        kinds=("memory_growth",),
        signature="Memory grows by about as much in every stretch of steps and does not stop.",
        evidence=_leak,
        remedy=None,
        false_friends="Caches that fill at the start, and longer sequences: these come at once and stop.",
        source="PyTorch documentation, Understanding CUDA Memory Usage (torch_cuda_memory)",
    ),
    Cause(
        name="hung_collective",
        group="machine",
        kinds=("hang", "stall"),
        shows=("hang",),
        signature="Ranks wait for each other in one collective and no step ends; the supervisor says which did "
        "not come.",
        evidence=_hung,
        remedy=None,
        false_friends="A step that takes long because it evaluates or saves.",
        source="PyTorch documentation, Flight Recorder for Debugging Stuck Jobs",
    ),
)
