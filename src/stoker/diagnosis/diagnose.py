"""The whole of `stoker diagnose`: reads a run's record, asks every detector, and puts their findings together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from stoker.diagnosis.causes import CATALOGUE
from stoker.diagnosis.causes.incident import LOSS_KINDS
from stoker.diagnosis.document_spike import FAINT, LOOKED_AT, find_document_spikes, find_faint_spikes
from stoker.diagnosis.early_updates import find_early_updates
from stoker.diagnosis.excursion import Excursion
from stoker.diagnosis.finding import Evidence, Finding
from stoker.diagnosis.gradient_growth import find_gradient_growth
from stoker.diagnosis.gradient_shift import find_gradient_shifts
from stoker.diagnosis.incidents import together
from stoker.diagnosis.jitter import find_jitter
from stoker.diagnosis.learning_rate_jump import find_learning_rate_jumps
from stoker.diagnosis.logit_growth import find_logit_growth
from stoker.diagnosis.lone_gradient import find_lone_gradients
from stoker.diagnosis.loss_drop import find_loss_drops
from stoker.diagnosis.loss_scale import find_loss_scale_collapse, find_skipped_steps
from stoker.diagnosis.loss_spike import find_spikes, loss_excursions, without_spikes
from stoker.diagnosis.memory_growth import find_leak, find_memory_growth
from stoker.diagnosis.mixture_change import find_mixture_changes
from stoker.diagnosis.naming import NAMED, named
from stoker.diagnosis.non_finite import find_non_finite
from stoker.diagnosis.overfitting import find_overfitting
from stoker.diagnosis.planned_mixture import PlannedMixture, without_planned
from stoker.diagnosis.plateau import find_plateau
from stoker.diagnosis.recent_past import Curve, as_numbers, as_steps, window_of
from stoker.diagnosis.repeated_data import find_other_order, find_repeated_data, judged, overlap
from stoker.diagnosis.repeated_text import find_repeated_text
from stoker.diagnosis.replayed import Replay
from stoker.diagnosis.router_collapse import find_router_collapse
from stoker.diagnosis.run_rows import MEMORY, NOW, RunRows, curve_of
from stoker.diagnosis.sequence_length import find_sequence_length_changes
from stoker.diagnosis.slow_rank import find_slow_ranks
from stoker.diagnosis.slow_rise import find_slow_rise
from stoker.diagnosis.slowness import with_its_beginning
from stoker.diagnosis.source_drift import find_source_drift
from stoker.diagnosis.stall import find_stalls
from stoker.diagnosis.step_parts import find_longer_parts, within
from stoker.diagnosis.text_at import Text
from stoker.diagnosis.throughput import find_throughput_drops
from stoker.diagnosis.told import told
from stoker.diagnosis.update_jump import find_update_jumps
from stoker.errors import StokerError
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.record import Gap, Record, names_of
from stoker.run_directory import RunDirectory
from stoker.wording import figure

_ABOUT_DOCUMENTS = ("spike", "divergence", "nan", "step_rise", "step_drop", "source_drift", "gradient_growth")
_ROWS_OF_DOCUMENTS = 8


@dataclass(frozen=True)
class Diagnosis:
    """What stands out in a run's record, the most important first."""

    run: str
    rows: int
    first_step: int | None
    last_step: int | None
    under_way: bool
    findings: tuple[Finding, ...]
    times: dict[int, float]
    """Unix times of the findings' first and last steps, where they were recorded."""
    missing: tuple[str, ...]
    """What rows usually hold and no row of this run does."""
    gaps: tuple[Gap, ...]
    """What should be in the record and is not."""

    @property
    def alarm_stands(self) -> bool:
        """Whether something needs a person."""
        return any(finding.severity == "alarm" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "run": self.run,
            "rows": self.rows,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "under_way": self.under_way,
            "findings": [finding.model_dump(mode="json") for finding in self.findings],
            "missing": list(self.missing),
            "gaps": [{"kind": gap.kind, "rank": gap.rank, "detail": gap.detail} for gap in self.gaps],
        }


def diagnose(run: RunDirectory, since: int | None = None, replays: Mapping[int, Replay] | None = None) -> Diagnosis:
    """What stands out in the run's record; with `since` only what was still seen at that step or later.

    `replays` holds what computing steps once more has said. Raises `BadInput` when the folder is not a run.
    """
    run.require_run()
    record = Record(run.record)
    under_way = run.is_held
    recipe = _recipe(run)
    rows = RunRows.load(record, time.time() if under_way else None, recipe, Text.of(run, recipe))
    rows = replace(rows, replays=replays or {}, planned=PlannedMixture.of(run, recipe))
    findings = [one for one in find_all(rows) if since is None or one.last_step is None or one.last_step >= since]
    steps = rows.steps
    return Diagnosis(
        run=str(run.path),
        rows=rows.table.height,
        first_step=int(steps[0]) if steps.size else None,
        last_step=int(steps[-1]) if steps.size else None,
        under_way=under_way,
        findings=tuple(findings),
        times=_times(rows, findings),
        missing=tuple(rows.missing()),
        gaps=tuple(record.gaps()),
    )


def _recipe(run: RunDirectory) -> Recipe | None:
    """As it was trained; None where the run does not hold one that can be read."""
    try:
        return load_recipe(run.recipe).recipe
    except (StokerError, OSError, ValueError):
        return None


@np.errstate(all="ignore")  # rows may hold any figure, and those that overflow find nothing
def find_all(rows: RunRows) -> list[Finding]:
    """Every detector's findings, those of one incident together, with their documents, the most important first."""
    steps = rows.steps
    last = int(steps[-1]) if steps.size else None
    found: list[Finding] = [with_its_beginning(rows.parts, one) for one in told(rows.events, last)]
    stand_out = loss_excursions(rows.curve("loss"))
    found += [*_of_loss(rows, stand_out), *_of_figures(rows, stand_out)]
    for detect in (_of_recipe, _of_time, _of_ranks, _of_routing, _of_evaluations):
        found += detect(rows)
    found += find_document_spikes(rows.documents)
    near = max(8, window_of(steps.size) // 4) * rows.spacing
    faint = find_faint_spikes(rows.curve("loss"), rows.curve("gradient_norm"), found, near)
    found += [one for one in faint if rows.text is not None or one.confidence > FAINT]
    found = without_planned(found, rows.planned, steps, rows.loss_by_source)
    found += _of_batches(rows, found)
    incidents = together(found, near)
    read = sum(any(one.kind in LOSS_KINDS and one.confidence > FAINT for one in own) for _, own in incidents)
    merged = [
        named(rows, _with_documents(rows, without_sameness(finding)), members, max(read, 1))
        # The latest first: whoever reads the text within limits is to know of these.
        for finding, members in sorted(incidents, key=lambda one: -(one[0].first_step or 0))
    ]
    kept = [one for one in merged if one.confidence > FAINT or _of_text(one)]
    return sorted(kept, key=lambda finding: finding.rank_of_importance)


def _of_text(finding: Finding) -> bool:
    """Whether the text of a faint spike says more than one of so many would by chance."""
    enough = (finding.score or 0.0) >= NAMED + LOOKED_AT
    return enough and any(cause.name == finding.cause and cause.features for cause in CATALOGUE)


def _of_loss(rows: RunRows, stand_out: Sequence[Excursion]) -> Iterator[Finding]:
    loss, rate = rows.curve("loss"), rows.curve("learning_rate")
    yield from find_spikes(loss, stand_out)
    calm = without_spikes(loss, stand_out)
    yield from find_slow_rise(calm)
    yield from find_loss_drops(calm, rate)
    yield from find_plateau(calm, rate)
    yield from find_source_drift(Curve(rows.steps, rows.numbers("loss")), rows.loss_by_source)


def _of_figures(rows: RunRows, stand_out: Sequence[Excursion]) -> Iterator[Finding]:
    for column, measure in (("loss", "loss"), ("gradient_norm", "gradient norm")):
        yield from find_non_finite(rows.curve(column), measure)
    norm = rows.curve("gradient_norm")
    known = rows.curve("loss").positive.steps
    yield from find_gradient_growth(norm, [(int(known[one.first]), int(known[one.last])) for one in stand_out])
    yield from find_lone_gradients(Curve(rows.steps, rows.numbers("gradient_norm")), rows.numbers("loss"))
    by_module = {name: rows.curve(f"gradient_norm_by_module.{name}") for name in rows.gradient_modules}
    yield from find_gradient_shifts(norm, by_module)
    scale = rows.curve("loss_scale")
    yield from find_loss_scale_collapse(scale)
    if scale.steps.size:  # without one, updates are left out by decisions, which events tell of
        yield from find_skipped_steps(rows.curve("skipped"))


def _of_recipe(rows: RunRows) -> Iterator[Finding]:
    decided = 1.0 if rows.recipe is None else rows.recipe.recovery.lower_learning_rate
    yield from find_learning_rate_jumps(rows.curve("learning_rate"), decided)
    update = Curve(rows.steps, rows.numbers("update_norm"))
    yield from find_update_jumps(
        update, rows.numbers("learning_rate"), rows.numbers("gradient_norm"), rows.resumed()
    )
    yield from find_early_updates(update, rows.curve("weight_norm"))
    yield from find_logit_growth(rows.by_module("attention_logit"), rows.by_module("attention_entropy"))


def _of_batches(rows: RunRows, found: list[Finding]) -> list[Finding]:
    """What steps were trained on; where the corpus is at hand, also whether it is what the recipe gives them."""
    samples = rows.numbers("last_sample") - rows.numbers("first_sample")
    changed = find_sequence_length_changes(rows.steps, rows.numbers("tokens"), samples)
    names = names_of(rows.table, "tokens_by_source")
    tokens = {name: rows.numbers(f"tokens_by_source.{name}") for name in names}
    planned = None if rows.planned is None else rows.planned.shares(rows.steps)
    changed += find_mixture_changes(rows.steps, tokens, planned, samples)
    changed += find_repeated_data(rows.table)
    if rows.text is None:
        return changed
    suspected = [one.first_step for one in found if one.kind in _ABOUT_DOCUMENTS and one.first_step is not None]
    suspected += [step + 1 for step in rows.resumed()] + [one.first_step or 0 for one in changed]
    other = find_other_order(rows.table, rows.text.digest, suspected)
    for one in other:
        if any(overlap(one, known) for known in changed if known.kind == "repeated_data"):
            continue
        found_out = judged(one, rows.table, rows.documents, changed)
        if found_out is not None:  # its mixture follows from it
            mixed = [known for known in changed if known.kind == "mixture_shift" and overlap(one, known)]
            changed = [known for known in changed if known not in mixed] + [found_out]
    return [*changed, *find_repeated_text(rows.text, rows.steps)]


def _of_time(rows: RunRows) -> Iterator[Finding]:
    if not rows.table.height:
        return
    drops = find_throughput_drops(rows.step_seconds(), rows.phases(), rows.step_tokens(), rows.numbers("ranks"))
    yield from (with_its_beginning(rows.parts, one) if one.part == "communication" else one for one in drops)
    times = Curve(rows.steps, rows.numbers("time"))
    yield from find_stalls(times, rows.aside(), rows.numbers("attempt"), rows.now)


def _of_ranks(rows: RunRows) -> Iterator[Finding]:
    yield from (with_its_beginning(rows.parts, one) for one in find_slow_ranks(rows.work_by_rank()))
    for first, last in rows.layouts():
        own = within(rows.parts, first, last)
        yield from (with_its_beginning(own, one) for one in find_longer_parts(own))
        yield from find_jitter(own)
    leaks = [
        one
        for column, measure in NOW.items()
        for rank, memory in rows.memory_by_rank(column).items()
        for one in find_leak(memory, rank, measure)
    ]
    yield from leaks
    known = {rank for one in leaks for rank in one.ranks}  # since when, and not only how much
    for column, measure in MEMORY.items():
        for rank, memory in rows.memory_by_rank(column).items():
            yield from () if rank in known else find_memory_growth(memory, rank, measure)


def _of_routing(rows: RunRows) -> Iterator[Finding]:
    if "module" not in rows.routing.columns or not rows.routing.height:
        return
    for (module,), own in rows.routing.drop_nulls("step").group_by("module", maintain_order=True):
        table = own.unique("step", keep="last", maintain_order=True).sort("step")
        largest = Curve(as_steps(table["step"].to_numpy()), as_numbers(table, "largest_load"))
        yield from find_router_collapse(largest, as_numbers(table, "smallest_load"), str(module))


def _of_evaluations(rows: RunRows) -> Iterator[Finding]:
    if not {"step", "source", "loss"} <= set(rows.evaluations.columns) or not rows.evaluations.height:
        return
    training = rows.curve("loss")
    trained_on = {name for name in names_of(rows.table, "tokens_by_source") if rows.trains_on(name)}
    for (source,), own in rows.evaluations.drop_nulls("step").group_by("source", maintain_order=True):
        if not trained_on or source in trained_on:  # of other text a model knows less and less
            yield from find_overfitting(curve_of(own.sort("step"), "loss"), training, str(source))


def without_sameness(finding: Finding) -> Finding:
    """Without evidence that is, as it is spelled, what was expected; unless there is no other."""
    telling = [one for one in finding.evidence if not _is_as_expected(one)]
    return finding.model_copy(update={"evidence": tuple(telling)}) if telling else finding


def _is_as_expected(evidence: Evidence) -> bool:
    expected, observed = evidence.expected, evidence.observed
    if isinstance(expected, float) and isinstance(observed, float):
        return figure(expected) == figure(observed)
    return expected is not None and expected == observed


def _with_documents(rows: RunRows, finding: Finding) -> Finding:
    """The samples of the first rows of a finding that documents may have to do with."""
    if finding.kind not in _ABOUT_DOCUMENTS or finding.documents or finding.first_step is None:
        return finding
    begin = int(np.searchsorted(rows.steps, finding.first_step))
    last = finding.first_step if finding.last_step is None else finding.last_step
    end = min(int(np.searchsorted(rows.steps, last, side="right")), begin + _ROWS_OF_DOCUMENTS)
    first, after = rows.numbers("first_sample")[begin:end], rows.numbers("last_sample")[begin:end]
    known = np.isfinite(first) & np.isfinite(after)
    if not known.any():
        return finding
    if others := rows.given_samples(begin, end):
        return finding.model_copy(update={"documents": others})
    return finding.model_copy(update={"documents": ((int(first[known].min()), int(after[known].max()) - 1),)})


def _times(rows: RunRows, findings: list[Finding]) -> dict[int, float]:
    wanted = {step for one in findings for step in (one.first_step, one.last_step) if step is not None}
    if "time" not in rows.table.columns or not wanted:
        return {}
    known = rows.table.select("step", "time").filter(pl.col("step").is_in(list(wanted))).drop_nulls()
    return dict(zip(known["step"].to_list(), known["time"].to_list(), strict=True))
