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
    COMMAND_ENDED: lambda detail: COMMAND_ENDED_WORDS,
    RANKS_CHANGED: _resized,
}
