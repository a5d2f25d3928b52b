"""One incident of a run as the causes look at it: what was found, when, and what the record says around it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from stoker.diagnosis.finding import Evidence, Finding, Kind
from stoker.diagnosis.recent_past import Curve, Numbers, deviation, window_of
from stoker.diagnosis.run_rows import RunRows
from stoker.diagnosis.step_parts import Parts
from stoker.diagnosis.text_at import Passage
from stoker.diagnosis.text_features import Contrast, contrasts

LOSS_KINDS: tuple[Kind, ...] = ("spike", "divergence", "step_rise", "step_drop", "nan")
_ROWS_AT_ONSET = 8
_STEPS_READ, _MOST_STEPS_READ = 4, 16
_FEWEST_WORST = 2
_PASSAGES_READ = 48
_OTHER_STEPS = 16
_OF_OTHER_STEPS = 192


@dataclass(frozen=True)
class Departure:
    """How far a measure is from its recent past at the onset of an incident."""

    expected: float
    observed: float
    step: int
    deviations: float
    """Signed; of the measure's logarithm."""
    factor: float

    def evidence(self, measure: str) -> Evidence:
        """As evidence."""
        return Evidence(measure=measure, expected=self.expected, observed=self.observed, step=self.step)


@dataclass(frozen=True)
class Incident:
    """A finding, those that were put together to make it, and the run they are of."""

    rows: RunRows
    finding: Finding
    members: tuple[Finding, ...]

    @property
    def first(self) -> int:
        """The first step of it."""
        return self.finding.first_step or 0

    def of_kind(self, *kinds: Kind) -> list[Finding]:
        """The members of these kinds, the earlier first."""
        return sorted((one for one in self.members if one.kind in kinds), key=lambda one: one.first_step or 0)

    @cached_property
    def loss_moved(self) -> int | None:
        """The first step at which the loss stood out; None where it did not."""
        moved = [one.first_step for one in self.of_kind(*LOSS_KINDS) if one.first_step is not None]
        return min(moved, default=None)

    @cached_property
    def loss_peaked(self) -> int | None:
        """The step at which it stood out most; None where it did not."""
        loss = self.rows.curve("loss").positive
        peaks = []
        for member in self.of_kind(*LOSS_KINDS):
            begin = int(np.searchsorted(loss.steps, member.first_step or 0))
            end = int(np.searchsorted(loss.steps, member.last_step or member.first_step or 0, side="right"))
            before, during = loss.values[max(0, begin - 32) : begin], loss.values[begin : max(end, begin + 1)]
            if before.size and during.size:
                top = int(np.argmax(during))
                peaks.append((float(during[top] / np.median(before)), int(loss.steps[begin + top])))
        return max(peaks)[1] if peaks else self.loss_moved

    @property
    def near(self) -> int:
        """Steps that count as the same moment."""
        return 2 * self.rows.spacing

    def departure(self, curve: Curve, at: int | None = None, rows: int = 1) -> Departure | None:
        """The furthest value of `rows` rows from step `at` on (the incident's first) from the 32 rows before it."""
        positive = curve.positive
        begin = int(np.searchsorted(positive.steps, self.first if at is None else at))
        before, during = positive.values[max(0, begin - 32) : begin], positive.values[begin : begin + rows]
        if before.size < 4 or not during.size:
            return None
        logs = np.log(before)
        middle, spread = float(np.median(logs)), max(deviation(logs), 0.02)
        away = np.log(during) - middle
        row = int(np.argmax(np.abs(away)))
        return Departure(
            expected=float(np.exp(middle)),
            observed=float(during[row]),
            step=int(positive.steps[begin + row]),
            deviations=float(away[row]) / spread,
            factor=float(np.exp(away[row])),
        )

    def modules_at(self, step: int) -> dict[str, float]:
        """By which factor each module's gradient norm differs at `step` from the rows before."""
        found = {}
        for name in self.rows.gradient_modules:
            departure = self.departure(self.rows.curve(f"gradient_norm_by_module.{name}"), step)
            if departure is not None and departure.step == step:
                found[name] = departure.factor
        return found

    @property
    def parts(self) -> dict[int, Parts]:
        """What of each rank's steps took how long."""
        return self.rows.parts

    @cached_property
    def text(self) -> dict[str, Contrast]:
        """How the text of its first steps differs from other steps', by feature; empty where it cannot be read."""
        text = self.rows.text
        if text is None or self.loss_moved is None:
            return {}
        steps = self._steps_at_onset()
        each = max(1, _PASSAGES_READ // max(len(steps), _STEPS_READ))
        suspected = [one for step in steps for one in self._suspected(step, each)]
        return contrasts(suspected, self._usual(steps)) if suspected else {}

    @cached_property
    def worst_documents(self) -> tuple[float, float] | None:
        """The worst loss of a stretch of a document at its first steps, and what it usually is; None if unknown."""
        table = self.rows.documents
        if self.loss_moved is None or not {"step", "loss"} <= set(table.columns) or not table.height:
            return None
        worst = table.drop_nulls(["step", "loss"]).group_by("step").agg(pl.col("loss").max()).sort("step")
        now = worst.filter(pl.col("step").is_between(self.loss_moved, self.loss_moved + self.near))
        before = worst.filter(pl.col("step") < self.loss_moved).tail(32)
        if not now.height or not before.height:
            return None
        return float(now["loss"].to_numpy().max()), float(np.median(before["loss"].to_numpy()))

    @cached_property
    def _usual_worst(self) -> float:
        """What nine tenths of the documents that were recorded of the steps before are below."""
        assert self.loss_moved is not None
        step, table = pl.col("step"), self.rows.documents
        before = table.filter(step.is_between(self.loss_moved - 32 * self.rows.spacing, self.loss_moved - 1))
        losses = before["loss"].drop_nulls().to_numpy() if before.height else np.zeros(0)
        return float(np.quantile(losses, 0.9)) if losses.size else -np.inf

    def _steps_at_onset(self) -> list[int]:
        """The first rows of each of its excursions of the loss: one that came by itself may lie just before."""
        steps, found = self.rows.steps, set()
        for member in self.of_kind(*LOSS_KINDS):
            if member.first_step is None:
                continue
            begin = int(np.searchsorted(steps, member.first_step))
            last = member.last_step if member.last_step is not None else member.first_step
            own = steps[begin : begin + _STEPS_READ]
            found |= {int(step) for step in own if step <= max(last, member.first_step)}
        return sorted(found)[:_MOST_STEPS_READ]

    def _suspected(self, step: int, most: int) -> list[Passage]:
        """The stretches with the worst loss where these are known, else all of the step; at most `most`."""
        text = self.rows.text
        assert text is not None
        spans = text.spans(step)
        table = self.rows.documents
        if {"step", "sample", "first_token"} <= set(table.columns):
            own = table.filter(pl.col("step") == step).drop_nulls(["sample"])
            high = own.filter(pl.col("loss") > self._usual_worst) if "loss" in own.columns else own
            own = high if high.height >= _FEWEST_WORST else own
            worst = {(row[0], row[1]) for row in own.select("sample", "first_token").iter_rows()}
            chosen = [span for span in spans if (span.sample, span.place) in worst]
            spans = chosen or spans
        return text.read(step, spans[:: -(-len(spans) // most) or 1])

    def _usual(self, suspected: list[int]) -> list[Passage]:
        """Passages of steps far from the incident, a few of each."""
        text, steps = self.rows.text, self.rows.steps
        assert text is not None
        apart = window_of(steps.size) * self.rows.spacing // 2
        others = steps[(steps < min(suspected) - apart) | (steps > max(suspected) + apart)]
        if others.size < 4:
            others = steps[~np.isin(steps, suspected)]
        if not others.size:
            return []
        chosen = others[np.linspace(0, others.size - 1, min(_OTHER_STEPS, others.size)).astype(int)]
        found: list[Passage] = []
        for step in chosen.tolist():
            spans = text.spans(step)
            found += text.read(step, spans[:: max(1, len(spans) * _OTHER_STEPS // _OF_OTHER_STEPS)])
        return found

    def numbers(self, column: str) -> Numbers:
        """A column of rank 0's step rows."""
        return self.rows.numbers(column)
