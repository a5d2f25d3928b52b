"""A run in a line of the list, and what its page begins with."""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.dashboard.chinese_events import in_a_chinese_line
from stoker.dashboard.moment import absent_ranks, spelled
from stoker.dashboard.watched import UNITS, WatchedRun, time_of
from stoker.diagnosis.in_a_line import in_a_line
from stoker.diagnosis.recent_past import as_numbers
from stoker.errors import StokerError
from stoker.recipe.differences import differences
from stoker.recipe.loading import load_recipe
from stoker.record.rows import rows_of

_RECENT = 64
_MOST_EVENTS = 3000
_ROUTINE = ("saved", "clock", "finding")


@np.errstate(over="ignore")  # a record may hold any figure
def summary_of(run: WatchedRun) -> dict[str, Any]:
    """Name, folder, state and last figures; reads only the newest rows, and those once."""
    # A list of many runs is asked for every few seconds, and few of them have written anything since.
    return run.made("summary", (run.version, run.name, run.setting("training", "steps")), lambda: _summary(run))


def _summary(run: WatchedRun) -> dict[str, Any]:
    recent = run.columns.recent("step", _RECENT).tail(_RECENT)
    last = (rows_of("step", recent.tail(1)) or [{}])[0] if recent.height else {}
    losses = as_numbers(recent, "loss")
    finite = losses[np.isfinite(losses)]
    seconds = as_numbers(recent, "seconds.total")
    tokens = as_numbers(recent, "tokens")
    known = np.isfinite(seconds) & np.isfinite(tokens) & (seconds > 0)
    planned = run.setting("training", "steps")
    return _as_json({
        "id": run.id,
        "name": run.name,
        "path": str(run.directory.path),
        "state": run.state,
        "step": last.get("step"),
        "planned": planned if isinstance(planned, int) else None,
        "loss": float(finite[-1]) if finite.size else None,
        "tokens_seen": last.get("tokens_seen"),
        "tokens_per_second": float(np.median(tokens[known] / seconds[known])) if known.any() else None,
        "step_seconds": float(np.median(seconds[known])) if known.any() else None,
        "ranks": last.get("ranks"),
        "time": last.get("time"),
        "version": run.version,
    })  # fmt: skip


def page_of(run: WatchedRun) -> dict[str, Any]:
    """Everything a run's page begins with: the summary, what there is to draw, axes, and what is missing."""
    columns = run.columns
    ranks = run.ranks
    return {
        **summary_of(run),
        "columns": {kind: columns.names(kind) for kind in columns.kinds},
        "keys": {
            kind: list(run.sparse(kind, key))
            for kind, key in (("module", "module"), ("routing", "module"), ("evaluation", "source"))
        },
        "units": run.units,
        "rank_numbers": ranks,
        "machine": ranks if columns.height("machine") else [],
        "timelines": bool(columns.height("timeline")),
        "documents": bool(columns.height("document")),
        "parameters": run.parameters,
        "redone": run.history().redone,
        "gradient_clip": run.setting("training", "gradient_clip"),
        "missing": _missing(run),
    }


def _missing(run: WatchedRun) -> list[dict[str, Any]]:
    """What the record lacks, as a kind of gap and its figures; the page has the words."""
    found: list[dict[str, Any]] = []
    first, count = absent_ranks(run, set(run.ranks), most=32)
    if count:
        found.append({"kind": "ranks", "ranks": first, "count": count})
    if run.columns.tail.unfinished_bytes and not run.under_way:
        found.append({"kind": "tail", "bytes": run.columns.tail.unfinished_bytes})
    if run.columns.damaged:
        found.append(
            {"kind": "damaged", "files": sorted(run.columns.damaged)[:8], "count": len(run.columns.damaged)}
        )
    steps = run.history().steps
    if steps.size > 1:
        holes = np.diff(steps)
        usual = int(np.median(holes))
        wide = np.flatnonzero(holes > usual)
        if wide.size and usual == 1:
            spans = [[int(steps[i]) + 1, int(steps[i + 1]) - 1] for i in wide[:8].tolist()]
            found.append({"kind": "steps", "spans": spans, "count": int(wide.size)})
    return found


def events_of(run: WatchedRun) -> dict[str, Any]:
    """What happened, by time; of routine events the last ones where they are too many."""
    events = run.events()
    rare = [event for event in events if event.get("event") not in _ROUTINE]
    routine = [event for event in events if event.get("event") == "saved"]
    room = max(0, _MOST_EVENTS - len(rare))
    chosen = rare[-_MOST_EVENTS:] + (routine[-room:] if room else [])
    chosen.sort(key=time_of)
    told = [
        {
            "event": str(event.get("event")), "step": event.get("step"), "time": event.get("time"),
            "attempt": event.get("attempt"), "words": in_a_line(event), "chinese": in_a_chinese_line(event),
        }
        for event in chosen
    ]  # fmt: skip
    table = run.rows_about_steps("evaluation")
    evaluations = sorted(set(table["step"].to_list())) if "step" in table.columns else []
    places = _placed(run, [event["step"] for event in told if isinstance(event["step"], int)] + evaluations)
    return _as_json({
        "events": told,
        "left_out": len(rare) + len(routine) - len(told),
        "evaluations": evaluations[-_MOST_EVENTS:],
        "stages": _stages(run),
        "places": places,
    })  # fmt: skip


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    return {key: spelled(value) for key, value in content.items()}


def _placed(run: WatchedRun, steps: list[int]) -> dict[str, dict[str, float]]:
    """Where steps stand on the axes other than that of steps."""
    numbers = np.unique(np.array(steps, dtype=np.int64))
    found: dict[str, dict[str, float]] = {}
    for unit in UNITS[1:]:
        at = run.places(numbers, unit) if numbers.size else None
        if at is not None:
            found[unit] = dict(zip(map(str, numbers.tolist()), at.tolist(), strict=True))
    return found


def _stages(run: WatchedRun) -> list[dict[str, Any]]:
    """First steps of the recipe's data stages and batch sizes."""
    found = []
    for section, key in (("data", "stages"), ("training", "batch_ramp")):
        for stage in run.setting(section, key) or []:
            step = stage.get("step", stage.get("from_step")) if isinstance(stage, dict) else None
            if isinstance(step, int):
                label = stage.get("name") or stage.get("global_batch_size") or ""
                found.append({"step": step, "kind": key, "label": str(label)})
    return found


def funnel_of(run: WatchedRun) -> list[dict[str, Any]]:
    """The corpus's funnel: rows of source, stage, reason, documents and bytes, as its manifest has them."""
    rows = run.corpus.get("funnel")
    wanted = ("source", "stage", "reason", "documents", "bytes")
    return [
        {key: row.get(key) for key in wanted}
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    ]


_COMPARED = ("batch_digest", "first_sample", "learning_rate", "loss", "gradient_norm")


def comparison_of(first: WatchedRun, second: WatchedRun) -> dict[str, Any]:
    """What is not the same in two runs: recipe values, and for each measure the first step at which it differs."""
    steps, mine, theirs = np.intersect1d(first.history().steps, second.history().steps, return_indices=True)
    measures = []
    for name in _COMPARED:
        one, other = (_values(run, name, at) for run, at in ((first, mine), (second, theirs)))
        if one is None or other is None:
            continue
        unequal = np.flatnonzero(one != other)
        place = int(unequal[0]) if unequal.size else None
        measures.append({
            "measure": name,
            "first_step": None if place is None else int(steps[place]),
            "values": None if place is None else [spelled(one[place]), spelled(other[place])],
            "differing": int(unequal.size),
        })  # fmt: skip
    return {
        "runs": [first.id, second.id],
        "steps": int(steps.size),
        "measures": measures,
        **_recipes(first, second),
    }


def _values(run: WatchedRun, name: str, places: Any) -> Any:
    """A column at some places, as what can be compared: NaN equals NaN."""
    if name not in run.columns.names("step"):
        return None
    if name != "batch_digest":
        return np.nan_to_num(run.numbers(name)[places], nan=-1e300)
    column = run.columns.table("step", [name])[name].fill_null("").to_numpy()
    return run.history().of(column)[places]


def _recipes(first: WatchedRun, second: WatchedRun) -> dict[str, Any]:
    try:
        old, new = (load_recipe(run.directory.recipe).recipe for run in (first, second))
    except (StokerError, OSError) as error:
        return {"recipe": [], "recipe_missing": str(error)}
    found = [
        {"field": one.field, "old": _short(one.old), "new": _short(one.new)}
        for one in differences(old, new)
        if one.field not in ("name", "run")
    ]
    return {"recipe": found, "recipe_missing": None}


def _short(value: Any) -> str:
    text = "–" if type(value) is object else str(value)
    return text if len(text) <= 200 else text[:197] + "…"
