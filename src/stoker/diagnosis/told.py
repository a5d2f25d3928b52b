"""What the run's own guard and supervisor have recorded about incidents, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stoker.diagnosis.course import COMMAND_ENDED, Event, detail_of
from stoker.diagnosis.finding import EVENT, Evidence, Finding, Kind, Remedy, Severity
from stoker.diagnosis.in_a_line import in_a_line
from stoker.diagnosis.recent_past import spelled
from stoker.diagnosis.remedies import remedy

_SURE = 1.0
"""An event says so."""
_INFERRED = 0.9
_SHOWN = 6
AGAIN = "loss, when the step was computed again from the same bits"
_OFTEN = 3
"""Times from which on what a run recovers from by itself is worth a look."""
_BEGINS_AND_ENDS = ("started", "resumed", "finished")
_IF_IT_REPEATS = {
    "killed": "see in the machine's log whether memory ran out, or who killed it",
    "out_of_memory": "let it need less: `stoker plan` says how",
    "hang": "look where the ranks waited for each other, and test the machine: `stoker bench collectives`",
    "node_lost": "test that node and its network",
}


def told(events: Iterable[Event], last_step: int | None) -> list[Finding]:
    """One finding for each event that tells of an incident; those that repeat (same kind, ranks, cause) are one.

    `last_step` is the last of the run's final history: what was followed by steps no longer stands in the way, nor
    what was followed by the run's own end.
    """
    events = list(events)
    ends = [event["event"] for event in events if event.get("event") in _BEGINS_AND_ENDS]
    if last_step is not None and ends[-1:] == ["finished"]:
        last_step += 1
    found: dict[tuple[Any, ...], list[Finding]] = {}
    wrong_since: int | None = None
    for event in _without_settled(events):
        tell = _TELLERS.get(str(event.get("event")))
        if tell is not None:
            finding = tell(event, _went_on(event, last_step))
            if finding.kind == "silent_corruption" and finding.last_step is not None:
                # A step that is wrong when it is done again, and was right before, is none in which it began.
                wrong_since = finding.first_step if wrong_since is None else wrong_since
                if wrong_since is not None and finding.last_step < wrong_since:
                    finding = finding.model_copy(update={"first_step": wrong_since, "last_step": wrong_since})
            key: tuple[Any, ...] = (finding.kind, finding.ranks, finding.cause)
            if finding.kind in _ONCE_EACH:
                key = (*key, finding.first_step)
            found.setdefault(key, []).append(finding)
    return [_together(same) for same in found.values()]


def _without_settled(events: Iterable[Event]) -> Iterator[Event]:
    """Without what left open which of two ranks was wrong, where doing the step again has told."""
    every = list(events)
    settled = {_step(event) for event in every if detail_of(event).get("settles")}
    for event in every:
        if _step(event) not in settled or _words(detail_of(event), "verdict") != "undecided":
            yield event


def _went_on(event: Event, last_step: int | None) -> bool:
    step = event.get("step")
    return last_step is not None and (not isinstance(step, int) or last_step > step)


def _together(same: Sequence[Finding]) -> Finding:
    """Several of one kind as one, which says how many they were."""
    if len(same) == 1:
        return same[0]
    last = max(same, key=lambda one: ("note", "warning", "alarm").index(one.severity))
    steps = [step for one in same for step in (one.first_step, one.last_step) if step is not None]
    evidence = [part for one in same for part in one.evidence]
    times = Evidence(measure="times", expected=None, observed=float(len(same)), step=None)
    often: dict[str, Any] = {}
    if len(same) >= _OFTEN and last.remedy.action == "recovered":
        often = {"severity": "warning", "remedy": remedy("recovered_often", then=last.remedy.arguments["then"])}
    return last.model_copy(
        update={
            **often,
            "first_step": min(steps, default=None),
            "last_step": max(steps, default=None),
            "evidence": (times, *evidence[-_SHOWN:]),
            "documents": tuple(dict.fromkeys(part for one in same for part in one.documents))[-_SHOWN:],
        }
    )


def _step(event: Event) -> int | None:
    step = event.get("step")
    return step if isinstance(step, int) else None


def _ranks(detail: dict[str, Any]) -> tuple[int, ...]:
    ranks = detail.get("ranks")
    return tuple(rank for rank in ranks if isinstance(rank, int)) if isinstance(ranks, list) else ()


def _words(detail: dict[str, Any], *keys: str) -> str | None:
    return next((str(detail[key]) for key in keys if detail.get(key)), None)


def _number(value: Any) -> float | str | None:
    return spelled(float(value)) if isinstance(value, int | float) else value if isinstance(value, str) else None


def _at(
    event: Event,
    kind: Kind,
    severity: Severity,
    todo: Remedy,
    *evidence: Evidence,
    confidence: float = _SURE,
    **others: Any,
) -> Finding:
    """A finding at the event's step, which the event records."""
    step = _step(event)
    shared: dict[str, Any] = {"first_step": step, "last_step": step, "confidence": confidence, **others}
    return Finding(kind=kind, severity=severity, evidence=evidence, remedy=todo, **shared)


def _seen(event: Event, measure: str, expected: float | str | None, observed: float | str | None) -> Evidence:
    """One figure, at the event's step."""
    return Evidence(measure=measure, expected=expected, observed=observed, step=_step(event))


def _guarded(event: Event, went_on: bool) -> Finding:
    """A step that the guard held back or let pass."""
    detail, name = detail_of(event), str(event["event"])
    kind: Kind = "nan" if name == "non_finite" else "divergence" if name == "divergence" else "spike"
    first = detail.get("first_step")
    step = first if isinstance(first, int) else _step(event)
    samples = detail.get("samples")
    pair = isinstance(samples, list) and len(samples) == 2 and all(isinstance(one, int) for one in samples)
    severity: Severity = "note" if kind == "spike" and went_on else "warning" if went_on else "alarm"
    observed = _number(detail.get("observed"))
    return _at(
        event,
        kind,
        severity,
        remedy("skip_samples", step=step),
        _seen(
            event,
            str(detail.get("measure") or "loss or gradient norm, as the guard saw it"),
            _number(detail.get("expected")),
            observed if observed is not None else _words(detail, "reason"),
        ),
        first_step=step,
        documents=((samples[0], samples[1] - 1),) if pair and samples else (),
    )


def _slow_rank(event: Event, went_on: bool) -> Finding:
    """Ranks that were slow when each was timed alone."""
    detail = detail_of(event)
    ranks, seconds = _ranks(detail), detail.get("seconds")
    times = [float(one) for one in seconds] if isinstance(seconds, list) else []
    slow = [times[rank] for rank in ranks if rank < len(times)]
    rest = sorted(own for rank, own in enumerate(times) if rank not in ranks)
    usual = rest[len(rest) // 2] if rest else None
    measured = _seen(event, "seconds of the same matrix products, each rank alone", usual, max(slow, default=None))
    return _at(
        event, "slow_rank", "warning", remedy("check_machine", ranks=list(ranks)), measured,
        ranks=ranks, part="compute",
    )  # fmt: skip


def _corruption(event: Event, went_on: bool) -> Finding:
    """Ranks that computed something else from the same bits, or hold other bits."""
    detail = detail_of(event)
    verdict, ranks = _words(detail, "verdict"), _ranks(detail)
    passing = went_on and verdict not in ("persistent", "undecided")
    since = {"first_step": first} if isinstance(first := detail.get("first_step"), int) else {}
    return _at(
        event,
        "silent_corruption",
        "warning" if passing else "alarm",
        remedy("check_machine", ranks=list(ranks)),
        _seen(event, "bits of ranks that should agree", "the same", verdict or "different"),
        *_arbitrated(event),
        cause="wrong_numbers",
        ranks=ranks,
        **since,
    )


def _arbitrated(event: Event) -> Iterator[Evidence]:
    """What the loss said of two gradients that differed: the one that foretells how it changes is right."""
    asked = detail_of(event).get("arbiter")
    if _words(detail_of(event), "verdict") == "undecided" or not isinstance(asked, dict):
        return
    if not isinstance(measured := asked.get("derivative"), float):
        return
    foretold = asked.get("by_gradients")
    if isinstance(foretold, list) and foretold and all(isinstance(one, float) for one in foretold):
        worst = max(foretold, key=lambda one: abs(one - measured))
        yield _seen(event, "derivative of the loss where the gradients differ, by the wrong one", measured, worst)


def _failure(event: Event, went_on: bool) -> Finding:
    """An attempt that ended short."""
    detail = detail_of(event)
    what = _words(detail, "kind") or ("killed" if event["event"] == "supervisor_died" else "error")
    gave_up = event.get("event") == "gave_up" or detail.get("retried") is False
    severity: Severity = "note" if went_on else "alarm" if gave_up else "warning"
    how = "when it was started again" if gave_up else "by itself"
    then = _IF_IT_REPEATS.get(what, "read what failed")
    return _at(
        event,
        "hang" if what == "hang" else "failure",
        severity,
        remedy("recovered", how=how, then=then) if went_on else remedy("read_failure"),
        _recorded(event),
        cause="hung_collective" if what == "hang" else what,
        ranks=_ranks(detail),
    )


def _command_ended(event: Event, went_on: bool) -> Finding:
    """The end of an attempt that nobody could record."""
    then = _IF_IT_REPEATS["killed"]
    return _at(
        event,
        "failure",
        "note" if went_on else "warning",
        remedy("recovered", how="when it was started again", then=then) if went_on else remedy("go_on"),
        _recorded(event),
        cause="command_killed",
        confidence=_INFERRED,
    )


def _stop_requested(event: Event, went_on: bool) -> Finding:
    """Somebody asked the run to stop, and it did."""
    todo = remedy("none") if went_on else remedy("go_on")
    return _at(event, "stop_requested", "note", todo, _recorded(event))


def _recorded(event: Event) -> Evidence:
    """The event in the words that the report has for it."""
    return _seen(event, EVENT, None, in_a_line(event))


def _save_failed(event: Event, went_on: bool) -> Finding:
    """A checkpoint that could not be written."""
    seen = _seen(event, "checkpoint", "saved", _words(detail_of(event), "reason"))
    return _at(event, "save_failed", "warning", remedy("check_storage"), seen, cause="storage")


def _record_incomplete(event: Event, went_on: bool) -> Finding:
    """Rows that could not be written."""
    detail = detail_of(event)
    lost = detail.get("rows")
    seen = _seen(event, "rows of the record", "written", f"{lost} lost" if lost else _words(detail, "reason"))
    severity: Severity = "warning" if lost else "note"
    return _at(event, "record_incomplete", severity, remedy("check_storage"), seen, cause="storage")


def _replayed(event: Event, went_on: bool) -> Finding:
    """A step that was computed a second time."""
    detail = detail_of(event)
    if not detail.get("agrees") and detail.get("agrees") is not None:
        return _corruption(event, went_on)
    losses = detail.get("losses")
    known = [_number(one) for one in losses] if isinstance(losses, list) else []
    same = len(known) > 1 and known[0] == known[-1]
    seen = _seen(
        event,
        AGAIN,
        known[0] if known and not same else None,
        "the same" if same else known[-1] if known else None,
    )
    return _at(event, "spike", "note", remedy("look_at_samples", step=_step(event)), seen)


_ONCE_EACH = ("spike", "divergence", "nan", "silent_corruption")
"""They have a step and documents of their own."""
_TELLERS: dict[str, Callable[[Event, bool], Finding]] = {
    "non_finite": _guarded,
    "spike": _guarded,
    "divergence": _guarded,
    "slow_rank": _slow_rank,
    "silent_corruption": _corruption,
    "replicas_differ": _corruption,
    "replayed": _replayed,
    "save_failed": _save_failed,
    "failure": _failure,
    "gave_up": _failure,
    "supervisor_died": _failure,
    "terminated": _stop_requested,
    COMMAND_ENDED: _command_ended,
    "record_rows_lost": _record_incomplete,
    "record_write_failed": _record_incomplete,
}
