"""One event of a run in one line, wherever it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker import wording
from stoker.diagnosis.course import COMMAND_ENDED, RANKS_CHANGED, Event, detail_of
from stoker.plural import counted

COMMAND_ENDED_WORDS = (
    "the whole command ended and could record nothing of it: it was killed, or its machine went down"
)


def in_a_line(event: Event) -> str:
    """What the event says; its step and time are not repeated."""
    tell = _LINES.get(str(event.get("event")))
    said = tell(detail_of(event)) if tell is not None else ""
    return said or wording.detail(event.get("detail") or {})


def changed_ranks(before: Any, after: Any) -> str:
    """That the layout changed, and how."""
    return f"the layout changed: {_ranks(before)} before, {_ranks(after)} since"


def _ranks(number: Any) -> str:
    return counted(int(number), "ranks") if isinstance(number, int | float) else "another number of ranks"


def reason_of(detail: dict[str, Any]) -> str:
    """Why, as whoever recorded it put it."""
    found = next((str(detail[key]) for key in ("message", "reason", "kind") if detail.get(key)), "")
    return found.rstrip(".")


def _resumed(detail: dict[str, Any]) -> str:
    origins = {
        "checkpoint": "from this step's checkpoint, or its copies in memory",
        "memory": "from copies in memory (no checkpoint of this step is recorded)",
    }
    again = detail.get("steps_again")
    lost = "" if again is None else "; no step lost" if not again else f"; {counted(again, 'steps')} to do again"
    return origins.get(str(detail.get("origin")), "from what was saved") + lost


def _saved(detail: dict[str, Any]) -> str:
    size, seconds = detail.get("bytes"), detail.get("seconds")
    parts = [f"{wording.size(size)} of rank 0 alone" if isinstance(size, int | float) else ""]
    parts.append(f"in {wording.duration(seconds)}" if isinstance(seconds, int | float) else "")
    return ", ".join(part for part in parts if part)


def _failure(detail: dict[str, Any]) -> str:
    ranks, said, after = detail.get("ranks"), reason_of(detail), ""
    if "retried" in detail:
        after = "; the ranks are started again" if detail["retried"] else "; the run ended"
    at_fault = ""
    if isinstance(ranks, list) and ranks and "rank" not in said:
        at_fault = f"; at fault: rank {', '.join(map(str, ranks))}"
    return said + at_fault + after


def _gave_up(detail: dict[str, Any]) -> str:
    said = str(detail.get("message") or detail.get("kind") or "").rstrip(".")
    return "; ".join(part for part in (said, str(detail.get("reason") or "")) if part) + "; the run ended"


def _supervisor_died(detail: dict[str, Any]) -> str:
    return f"the supervisor {reason_of(detail)}, and its ranks with it; another was started"


def _resized(detail: dict[str, Any]) -> str:
    nodes = detail.get("nodes")
    on = f"; on {', '.join(map(str, nodes))}" if isinstance(nodes, list) and nodes else ""
    if detail.get("layout_before") and detail.get("layout"):
        return f"the layout changed: {detail['layout_before']} before, {detail['layout']} since{on}"
    layout = f" ({detail['layout']})" if detail.get("layout") else ""
    return changed_ranks(detail.get("before"), detail.get("ranks")) + layout + on


def _stood_out(detail: dict[str, Any]) -> str:
    observed, expected, samples = detail.get("observed"), detail.get("expected"), detail.get("samples")
    if not isinstance(observed, int | float | str) or "measure" not in detail:
        return ""
    said = f"{detail['measure']} {_figure(observed)}, its recent median {_figure(expected)}"
    known = isinstance(samples, list) and len(samples) == 2
    of = f"; samples {samples[0]:,} to {samples[1] - 1:,}" if known and samples else ""
    return f"{said}{of}; response: {wording.words(str(detail.get('response')))}"


def _replayed(detail: dict[str, Any]) -> str:
    verdict, ranks = detail.get("verdict"), detail.get("ranks")
    if verdict not in ("clear", "transient"):
        return ""
    came = "the same came out" if verdict == "clear" else "something else came out"
    at_fault = f"; at fault: rank {', '.join(map(str, ranks))}" if isinstance(ranks, list) and ranks else ""
    return f"computed again from the same bits: {came}{at_fault}; why: {detail.get('why')}"


def _slow_rank(detail: dict[str, Any]) -> str:
    ranks, ratio = detail.get("ranks"), detail.get("ratio")
    if not isinstance(ranks, list) or not isinstance(ratio, int | float):
        return ""
    return (
        f"timed alone, rank {', '.join(map(str, ranks))} takes {_figure(float(ratio))} times as long as the others"
    )


def _alert(detail: dict[str, Any]) -> str:
    if not {"rule", "state", "summary"} <= set(detail):
        return ""
    state = "still firing" if detail.get("again") else detail["state"]
    return f"{detail['rule']} {state} ({detail.get('severity')}): {detail['summary']}"


def _mixture(detail: dict[str, Any]) -> str:
    """Shares of the sources in each stage, and what they move to within it."""
    return "; ".join(
        f"{f'from step {first:,}: ' if number else ''}{shares_in_words(shares)}"
        + (f", moving to {shares_in_words(last)}" if last != shares else "")
        for number, (first, shares, last) in enumerate(stages_of(detail))
    )


def _mixture_changed(detail: dict[str, Any]) -> str:
    step, old, new = detail.get("from_step"), detail.get("old"), detail.get("new")
    if not isinstance(step, int) or not isinstance(old, dict) or not isinstance(new, dict):
        return ""
    return f"from step {step:,}: {shares_in_words(new)}; before: {shares_in_words(old)}"


def stages_of(detail: dict[str, Any]) -> list[tuple[int, dict[str, float], dict[str, float]]]:
    """First step, and shares in the first and the last step, of each stage that a `mixture` event tells of."""
    stages = detail.get("stages")
    return [
        (int(stage["first_step"]), stage["shares"], stage.get("last_shares", stage["shares"]))
        for stage in (stages if isinstance(stages, list) else [])
        if isinstance(stage, dict) and {"first_step", "shares"} <= set(stage) and isinstance(stage["shares"], dict)
    ]


def shares_in_words(shares: dict[str, float]) -> str:
    """`english 40.0%, chinese 30.0%`."""
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if isinstance(share, int | float))


def _figure(value: Any) -> str:
    return wording.figure(value) if isinstance(value, float) else str(value)


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "started": lambda detail: "from the beginning",
    "resumed": _resumed,
    "saved": _saved,
    "finished": lambda detail: "the last step is done",
    "terminated": lambda detail: reason_of(detail) or "asked to stop; saved after this step",
    "failure": _failure,
    "gave_up": _gave_up,
    "supervisor_died": _supervisor_died,
    "ranks_ended": lambda detail: "all ranks ended, to be started otherwise",
    "shrunk": _resized,
    "grown": _resized,
    "fault": lambda detail: f"made by a drill: {detail.get('fault')}",
    "alert": _alert,
    "spike": _stood_out,
    "divergence": _stood_out,
    "replayed": _replayed,
    "slow_rank": _slow_rank,
    "mixture": _mixture,
    "mixture_changed": _mixture_changed,
    COMMAND_ENDED: lambda detail: COMMAND_ENDED_WORDS,
    RANKS_CHANGED: _resized,
}
