"""One step from all sides: its figures beside their recent past, its ranks, its documents, its timeline."""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.dashboard.lines import Line, Window, buckets_in, line_of
from stoker.dashboard.watched import WatchedRun
from stoker.diagnosis.recent_past import as_numbers
from stoker.errors import BadInput, StokerError
from stoker.recipe.loading import load_recipe
from stoker.record.rows import rows_of

if TYPE_CHECKING:
    from stoker.data.showing import ShownStep

_PAST = 32
_MOST_DOCUMENTS = 60
_MOST_RANKS = 1024
_EXCERPT = 600
_ORDER = ("data", "forward", "backward", "communication", "optimizer", "evaluation", "checkpoint")


def step_near(run: WatchedRun, unit: str, at: float, reach: float, name: str) -> int | None:
    """The step within `reach` of the place `at` whose value of the curve `name` stands out most; None when there is
    no step."""
    axis = run.axis(unit)
    steps = run.history().steps
    if axis is None or not steps.size:
        return None
    line = line_of(run, name)
    if line is None or not line.steps.size:
        line = Line(steps, axis)
    x = run.places(line.steps, unit)
    if x is None:
        return None
    inside = np.flatnonzero(np.abs(x - at) <= reach)
    if inside.size < 2:
        return int(line.steps[int(np.abs(x - at).argmin())])
    values = line.values[inside]
    if np.isinf(values).any():
        return int(line.steps[inside[int(np.isinf(values).argmax())]])
    wide = buckets_in(x, Window(unit, at - 20 * reach, at + 20 * reach, 4096))
    around = line.values[wide.first : wide.last]
    usual = np.nanmedian(np.where(np.isfinite(around), around, np.nan)) if np.isfinite(around).any() else 0.0
    return int(line.steps[inside[int(np.nan_to_num(np.abs(values - usual), nan=-1.0).argmax())]])


def moment_of(run: WatchedRun, step: int) -> dict[str, Any]:
    """The figures of a step, each with the median of the steps before it; what its ranks did; where it stands.

    Raises `BadInput` when the record has no such step.
    """
    history = run.history()
    place = int(np.searchsorted(history.steps, step))
    if place >= history.steps.size or history.steps[place] != step:
        raise BadInput(f"step {step} has no row in the record")
    figures = _figures_of(run, step)
    past = slice(max(0, place - _PAST), place)
    usual = {}
    for name in ("loss", "gradient_norm", "update_norm", "weight_norm", "learning_rate"):
        if isinstance(figures.get(name), float):
            usual[name] = _median(run.numbers(name)[past])
    for name in _by_name(figures, "loss_by_source"):
        usual[f"loss_by_source.{name}"] = _median(run.numbers(f"loss_by_source.{name}")[past])
    shift = first = None
    if "first_sample" in figures and "last_sample" in figures:
        first, shift = figures["first_sample"], figures["last_sample"] - 1
    return {
        "step": step,
        "figures": spelled(figures),
        "usual": spelled(usual),
        "past_rows": place - past.start,
        "samples": [first, shift],
        "documents": worst_documents(run, step),
        "events": [event for event in map(spelled, run.events()) if event.get("step") == step][:40],
        "units": {
            unit: float(axis[place])
            for unit in ("tokens", "hours", "flops")
            if (axis := run.axis(unit)) is not None
        },
    }


def _figures_of(run: WatchedRun, step: int, rank: int = 0) -> dict[str, Any]:
    """The row of a step; an empty one where there is none, or it cannot be read."""
    history = run.history(rank)
    place = int(np.searchsorted(history.steps, step))
    if place >= history.steps.size or history.steps[place] != step:
        return {}
    row = place if history.rows is None else int(history.rows[place])
    found = rows_of("step", run.rank(rank).row("step", row))
    return found[0] if found else {}


def worst_documents(run: WatchedRun, step: int) -> list[dict[str, Any]]:
    """The stretches of documents with the highest loss that ranks recorded of this step, the worst first."""
    found = []
    for rank in run.ranks[:_MOST_RANKS]:
        columns = run.rank(rank)
        if not columns.height("document"):
            continue
        steps = columns.numbers("document", "step")
        for place in np.flatnonzero(steps == step)[-_MOST_DOCUMENTS:].tolist():
            found += [{**row, "rank": rank} for row in rows_of("document", columns.row("document", place))]
    latest = max((_sortable(row.get("attempt")) for row in found), default=0.0)
    standing = [row for row in found if _sortable(row.get("attempt")) == latest]
    standing.sort(key=lambda row: -_sortable(row.get("loss")))
    return [spelled(row) for row in standing[:_MOST_DOCUMENTS]]


def documents_of(run: WatchedRun, step: int) -> dict[str, Any]:
    """The text of a step's documents from the corpus, those with the worst recorded loss first.

    What stands in the way (no corpus here, another one) is said in `missing`; `others` says that the step was given
    other text than what the recipe gives it, which is shown.
    """
    from stoker.training.origin import corpus_of

    try:
        corpus = corpus_of(run.directory)
        from stoker.data.showing import show_step  # takes seconds to load: only who reads text waits for it

        shown = show_step(corpus, load_recipe(run.directory.recipe).recipe, step, _EXCERPT)
    except (StokerError, OSError, ValueError, KeyError) as error:
        return {"step": step, "missing": str(error), "documents": []}
    worst = worst_documents(run, step)
    documents = _spans(shown)
    for document in documents:
        losses = [
            one.get("loss") for one in worst if one.get("sample") == document["sample"] and _touches(one, document)
        ]
        document["loss"] = losses[0] if losses else None
    documents.sort(key=lambda one: -_sortable(one["loss"]))
    left_out = max(0, len(documents) - _MOST_DOCUMENTS)
    recorded = _figures_of(run, step).get("batch_digest")
    return {
        "step": step, "digest": shown.digest, "others": recorded not in (None, shown.digest),
        "tokens": shown.tokens, "missing": None, "documents": documents[:_MOST_DOCUMENTS], "left_out": left_out,
        "losses": bool(worst),
    }  # fmt: skip


def _spans(shown: ShownStep) -> list[dict[str, Any]]:
    found = []
    for sample in shown.samples:
        place = 0
        for span in sample.spans:
            found.append({"sample": sample.sample, "rank": sample.rank, "place": place, **vars(span)})
            place += span.stop - span.start
    return found


def _touches(worst: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether a recorded stretch of a sample and a document's stretch of it have a token in common."""
    first, tokens = worst.get("first_token"), worst.get("tokens")
    if not isinstance(first, int) or not isinstance(tokens, int):
        return True
    place, length = document["place"], document["stop"] - document["start"]
    return bool(first < place + length and place < first + tokens)


def timeline_of(run: WatchedRun, step: int) -> dict[str, Any]:
    """What every rank did in a step, one after the other: as recorded, or its phases where no timeline was."""
    ahead = clocks(run)
    ranks: list[dict[str, Any]] = []
    begins = []
    for rank in run.ranks[:_MOST_RANKS]:
        history, columns = run.history(rank), run.rank(rank)
        place = int(np.searchsorted(history.steps, step))
        if place >= history.steps.size or history.steps[place] != step:
            continue
        row = place if history.rows is None else int(history.rows[place])
        figures = (rows_of("step", columns.row("step", row)) or [{}])[0]
        spans, recorded, began = _spans_of(run, rank, step, figures)
        begins.append(began - ahead.get(rank, (0.0, 0.0))[0] if began is not None else None)
        told = {"rank": rank, "recorded": recorded, "spans": spans, "uncertain": ahead.get(rank, (0.0, None))[1]}
        ranks.append({**told, "arrived": _by_name(figures, "arrived"), "waited": _by_name(figures, "waited")})
    known = [begin for begin in begins if begin is not None]
    for told, begin in zip(ranks, begins, strict=True):
        told["began"] = None if begin is None else begin - min(known)
    missing, _ = absent_ranks(run, {told["rank"] for told in ranks}, most=64)
    return {"step": step, "ranks": [spelled(told) for told in ranks], "missing": missing}


def _spans_of(
    run: WatchedRun, rank: int, step: int, figures: dict[str, Any]
) -> tuple[list[Any], bool, float | None]:
    columns = run.rank(rank)
    began = figures.get("began")
    if columns.height("timeline"):
        places = np.flatnonzero(columns.numbers("timeline", "step") == step)
        for found in rows_of("timeline", columns.row("timeline", int(places[-1]))) if places.size else []:
            spans = found.get("spans")
            spans = json.loads(spans) if isinstance(spans, str) else spans
            if isinstance(spans, list):
                return (
                    [span for span in spans if isinstance(span, list) and len(span) == 3],
                    True,
                    found.get("began", began),
                )
    seconds = _by_name(figures, "seconds")
    spans, at = [], 0.0
    for phase in sorted(seconds, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)):
        if phase != "total" and _sortable(seconds[phase]) > 0:
            spans.append([phase, at, seconds[phase]])
            at += seconds[phase]
    return spans, False, began


def _by_name(figures: dict[str, Any], field: str) -> dict[str, Any]:
    """Figures that a row holds by name; none where it holds something else there."""
    found = figures.get(field)
    return found if isinstance(found, dict) else {}


def clocks(run: WatchedRun) -> dict[int, tuple[float, float | None]]:
    """By how many seconds each rank's clock is ahead of rank 0's, and how sure that is."""
    found: dict[int, tuple[float, float | None]] = {}
    for rank in run.ranks[:_MOST_RANKS]:
        for event in rows_of("event", run.rank(rank).table("event")):
            detail = event.get("detail")
            if event.get("event") == "clock" and isinstance(detail, dict):
                ahead = detail.get("ahead_seconds")
                if isinstance(ahead, int | float) and math.isfinite(ahead):
                    found[rank] = (float(ahead), detail.get("uncertain_seconds"))
    return found


def absent_ranks(run: WatchedRun, present: set[int], most: int) -> tuple[list[int], int]:
    """The first ranks of the run that are not `present`, and how many there are. No list of all is made: what a row
    says of their number may be anything."""
    recorded = as_numbers(run.columns.recent("step", 1), "ranks")
    known = recorded[np.isfinite(recorded)]
    expected = range(max(0, int(known[-1])) if known.size else 1)
    first = list(islice((rank for rank in expected if rank not in present), most))
    return first, len(expected) - sum(rank in expected for rank in present)


def _median(values: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else None


def _sortable(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else -math.inf


def spelled(value: Any) -> Any:
    """The value as JSON knows it: what is not finite becomes the text `NaN`, `Infinity`, `-Infinity`."""
    if isinstance(value, dict):
        return {str(key): spelled(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
