"""What each rule says of a picture: a value, the limit it is held against, and whether it is beyond."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker.diagnosis import Finding
from stoker.monitoring.picture import Picture, extreme, figures_of, number, share, slowest
from stoker.recipe.monitoring import Alerts, OwnRule, Rule
from stoker.wording import count, duration, figure, one_line, percent

_WINDOW_COVERED = 0.9
"""How much of a window must have been seen before its mean is judged."""
_DOCUMENTS_NAMED, _LONGEST_NAME = 4, 100
_RANKED = {"warning": 1, "alarm": 2}


@dataclass(frozen=True)
class Judgement:
    """What one rule says now."""

    rule: str
    severity: str
    for_seconds: float
    value: float | None
    """None where there is nothing to judge."""
    limit: float
    beyond: bool
    summary: str
    news: bool = False
    """There is more to tell of than by the judgement before."""


def judge(
    alerts: Alerts, picture: Picture, findings: Sequence[Finding], now: float, news: Sequence[Finding] = ()
) -> list[Judgement]:
    """What every rule that is enabled says at the time `now`. `news`: those of `findings` not judged before."""
    found: list[Judgement] = []
    for name, function in _BUILT_IN.items():
        rule: Rule = getattr(alerts.rules, name)
        if rule.enabled:
            value, limit, beyond, summary = function(alerts, picture, now)
            held = 0.0 if name in _OVER_A_WINDOW else rule.for_seconds
            found.append(Judgement(name, rule.severity, held, value, limit, beyond, summary))
    if alerts.rules.finding.enabled:
        found.append(_findings(alerts, findings, news))
    found += [_own(rule, picture) for rule in alerts.own if rule.enabled]
    return found


_Said = tuple[float | None, float, bool, str]


def _utilisation(alerts: Alerts, picture: Picture, now: float) -> _Said:
    rule = alerts.rules.accelerator_utilisation
    means = [
        (rank, _mean_since(own.utilisation, now - rule.for_seconds, rule.for_seconds))
        for rank, own in picture.ranks.items()
    ]
    worst = extreme(means, largest=False)
    if worst is None:
        return None, rule.limit, False, ""
    rank, value = worst
    words = f"rank {rank}'s accelerator was busy {percent(value)} of the last {duration(rule.for_seconds)}"
    return value, rule.limit, value < rule.limit, f"{words}; less than {percent(rule.limit)}"


def _mean_since(values: Sequence[tuple[float, float]], begin: float, length: float) -> float | None:
    """The mean of those since `begin`; None where too little of the time was seen."""
    if not values or values[0][0] > begin + (1 - _WINDOW_COVERED) * length:
        return None
    recent = [value for when, value in values if when >= begin]
    return statistics.fmean(recent) if recent else None


def _memory(used: str, total: str, name: str, what: str) -> Callable[[Alerts, Picture, float], _Said]:
    def said(alerts: Alerts, picture: Picture, now: float) -> _Said:
        limit = getattr(alerts.rules, name).limit
        worst = extreme(
            ((rank, share(own.machine, used, total)) for rank, own in picture.ranks.items()), largest=True
        )
        if worst is None:
            return None, limit, False, ""
        rank, value = worst
        return value, limit, not value <= limit, f"{what} of rank {rank} is {percent(value)} full"

    return said


def _network_rate(alerts: Alerts, picture: Picture, now: float) -> _Said:
    rule = alerts.rules.network_rate
    if not picture.several_nodes:
        return None, rule.limit, False, ""
    peaks = []
    for rank, own in picture.ranks.items():
        if _mean_since(own.network, now - rule.for_seconds, rule.for_seconds) is not None:
            peaks.append((rank, max(rate for when, rate in own.network if when >= now - rule.for_seconds)))
    worst = extreme(peaks, largest=False)
    if worst is None:
        return None, rule.limit, False, ""
    rank, value = worst
    words = f"rank {rank}'s machine sent and received at most {count(value)}b/s in {duration(rule.for_seconds)}"
    return value, rule.limit, value < rule.limit, words


def _network_latency(alerts: Alerts, picture: Picture, now: float) -> _Said:
    limit = alerts.rules.network_latency.limit
    worst = extreme(
        ((rank, number(own.machine, "network_latency_seconds")) for rank, own in picture.ranks.items()),
        largest=True,
    )
    if worst is None:
        return None, limit, False, ""
    rank, value = worst
    return (
        value,
        limit,
        not value <= limit,
        f"a round trip from rank {rank}'s machine takes {duration(value)}",
    )


def _loss_moves(alerts: Alerts, picture: Picture, now: float) -> _Said:
    rule = alerts.rules.loss_moves
    times = picture.worst_moves
    words = f"the loss moved by more than {percent(rule.limit)} in {times} steps in a row"
    return float(times), float(rule.times), times >= rule.times, f"{words}, to step {picture.step}"


def _gradient_norm(alerts: Alerts, picture: Picture, now: float) -> _Said:
    limit, worst = alerts.rules.gradient_norm.limit, picture.worst_norm
    if worst is None:
        return None, limit, False, ""
    return worst, limit, not worst <= limit, f"the gradient norm reached {figure(worst)} by step {picture.step}"


def _no_progress(alerts: Alerts, picture: Picture, now: float) -> _Said:
    rule, since = alerts.rules.no_progress, picture.last_progress
    if since is None or picture.finished:
        return None, rule.limit, False, ""
    usual = statistics.median(picture.seconds_per_step) if picture.seconds_per_step else 0.0
    limit, waited = max(rule.limit, rule.steps * usual), now - since
    after = "before the first step" if picture.step is None else f"since step {picture.step}"
    return waited, limit, waited > limit, f"no step for {duration(waited)} ({after})"


def _slow_rank(alerts: Alerts, picture: Picture, now: float) -> _Said:
    rule = alerts.rules.slow_rank
    found = slowest(picture.ranks, rule.steps)
    if found is None:
        return None, rule.limit, False, ""
    rank, value = found
    words = f"rank {rank} works {percent(value)} longer than the others, over {rule.steps} steps"
    return value, rule.limit, value > rule.limit, words


def _checkpoint_age(alerts: Alerts, picture: Picture, now: float) -> _Said:
    limit = alerts.rules.checkpoint_age.limit
    value = checkpoint_age(picture)
    if value is None:
        return None, limit, False, ""
    saved = picture.saved_step or 0
    since = f"of step {saved}" if saved else "none yet"
    words = f"step {picture.step} is done, and the newest checkpoint is {since}"
    return value, limit, value > limit, f"{words}; one is due every {picture.recipe.checkpoint.every} steps"


def checkpoint_age(picture: Picture) -> float | None:
    """Steps since the newest checkpoint over those from one to the next."""
    if picture.step is None:
        return None
    return max(0, picture.step - (picture.saved_step or 0)) / picture.recipe.checkpoint.every


_BUILT_IN: dict[str, Callable[[Alerts, Picture, float], _Said]] = {
    "accelerator_utilisation": _utilisation,
    "accelerator_memory": _memory(
        "memory_used_bytes", "memory_total_bytes", "accelerator_memory", "the accelerator's memory"
    ),
    "host_memory": _memory(
        "host_memory_used_bytes", "host_memory_total_bytes", "host_memory", "the machine's memory"
    ),
    "network_rate": _network_rate,
    "network_latency": _network_latency,
    "loss_moves": _loss_moves,
    "gradient_norm": _gradient_norm,
    "no_progress": _no_progress,
    "slow_rank": _slow_rank,
    "checkpoint_age": _checkpoint_age,
}
_MOST_IN_WORDS = 3
"""Findings that a notice tells of; it counts the others."""
_OVER_A_WINDOW = ("accelerator_utilisation", "network_rate")
"""Their `for_seconds` is the window itself."""


def _findings(alerts: Alerts, findings: Sequence[Finding], news: Sequence[Finding]) -> Judgement:
    rule = alerts.rules.finding
    told = [one for one in findings if tells_of(alerts, one)]
    new = [one for one in told if one in news]
    words = "; ".join(in_brief(one) for one in [*new, *(one for one in told if one not in new)][:_MOST_IN_WORDS])
    if len(told) > _MOST_IN_WORDS:
        words += f"; {len(told) - _MOST_IN_WORDS} more"
    return Judgement(
        "finding", rule.severity, rule.for_seconds, float(len(told)), 0.0, bool(told), words, bool(new)
    )


def tells_of(alerts: Alerts, finding: Finding) -> bool:
    """Whether the rule `finding` fires because of it."""
    rule = alerts.rules.finding
    return rule.enabled and _RANKED.get(finding.severity, 0) >= _RANKED[rule.limit]


def in_brief(finding: Finding) -> str:
    """A finding in one line: what, since when, why, with which documents."""
    since = "" if finding.first_step is None else f" since step {finding.first_step}"
    why = "" if finding.cause == "unknown" else f" ({finding.cause})"
    told = [one for one in finding.evidence if one.observed is not None]
    first = next((one for one in told if one.step is not None), told[0] if told else None)
    seen = "" if first is None or first.observed is None else f": {first.measure} {_spelled(first.observed)}"
    return f"{finding.severity} {finding.kind}{since}{why}{seen}{_documents(finding)}"


def _documents(finding: Finding) -> str:
    """Names and sample numbers of those at fault, the first of each; empty where it is not known which are."""
    if finding.cause == "unknown":
        return ""
    names = [one_line(name, _LONGEST_NAME) for name in finding.names[:_DOCUMENTS_NAMED]]
    more = f" and {len(finding.names) - len(names)} more" if len(finding.names) > len(names) else ""
    ranges = [f"{first}" if first == last else f"{first}–{last}" for first, last in finding.documents]
    samples = ", ".join(ranges[:_DOCUMENTS_NAMED]) + (", …" if len(ranges) > _DOCUMENTS_NAMED else "")
    return (f"; documents {', '.join(names)}{more}" if names else "") + (f"; samples {samples}" if ranges else "")


def _spelled(value: float | str) -> str:
    return figure(value) if isinstance(value, float) else value


def _own(rule: OwnRule, picture: Picture) -> Judgement:
    limit = rule.above if rule.above is not None else rule.below
    assert limit is not None
    values = list(figures_of(picture, rule.figure))
    sign = 1 if rule.above is not None else -1
    worst = max(values, key=lambda one: math.inf if math.isnan(one[1]) else sign * one[1], default=None)
    if worst is None:
        return Judgement(rule.name, rule.severity, rule.for_seconds, None, limit, False, "")
    whose, value = worst
    beyond = not value <= limit if rule.above is not None else not value >= limit
    side = "above" if rule.above is not None else "below"
    # What all ranks record alike is the run's own, and no rank's.
    shared = whose.startswith("rank ") and len({one for _, one in values}) == 1
    words = f"{rule.figure} is {figure(value)}{'' if shared else f' ({whose})'}, {side} {figure(limit)}"
    return Judgement(rule.name, rule.severity, rule.for_seconds, value, limit, beyond, words)
