"""Runs layouts and says whether, and where first, they compute anything else than one process."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.layout import Layout
from stoker.progress import Progress, Silent
from stoker.recipe import Model, Recipe
from stoker.verification.figures import BOUNDS, KINDS, Difference, worst
from stoker.verification.probes import ACTIVATION, GRADIENT
from stoker.verification.subject import Subject, VerifiedPrecision
from stoker.verification.work import Findings, LayoutWork, Plant, ReferenceWork, make_reference, run_rank
from stoker.verification.workers import Workers, WorkersFailed

_COMPUTED = ("loss", "routing", "gradient", "norm")
"""What forward and backward passes give: for these there is a first module."""


@dataclass
class Result:
    """What became of one layout."""

    layout: Layout
    recompute: str = "none"
    """What layers computed again in backward."""
    worst: dict[VerifiedPrecision, dict[str, Difference]] = field(default_factory=dict)
    """The largest difference of each kind, within its bound or not."""
    first: Difference | None = None
    """Where it differs first: a module or, where all modules agree, a parameter or a figure."""
    error: str | None = None
    """Why it did not come to an end."""
    seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether everything is within its bound."""
        return self.first is None and self.error is None


def verify(
    subject: Subject | Recipe | Model,
    layouts: Sequence[Layout],
    *,
    steps: int = 3,
    precision: VerifiedPrecision | None = None,
    plant: Plant | None = None,
    progress: Progress | None = None,
    timeout_seconds: float = 120.0,
) -> list[Result]:
    """Compare each of `layouts`, run as real processes, with one process: always in fp64, and in `precision`.

    `plant` is entered on every rank of a layout before the model is applied; it must be picklable. Raises
    `BadInput` when a layout is impossible for the model.
    """
    subject = subject_of(subject)
    for layout in layouts:
        subject.require_possible(layout)
    precisions: list[VerifiedPrecision] = ["fp64"]
    if precision not in (None, "fp64"):
        precisions.append(precision)
    progress = progress or Silent()
    ranks = max((layout.world_size for layout in layouts), default=1)
    with tempfile.TemporaryDirectory(prefix="stoker-verify-") as folder, Workers(timeout_seconds, ranks) as workers:
        verification = _Verification(subject, steps, Path(folder), workers, plant)
        results = []
        with progress.task(f"verify {subject.name}", len(layouts), "layouts") as task:
            for layout in layouts:
                task.describe(str(layout))
                results.append(verification.result(layout, precisions))
                task.advance()
    return results


def subject_of(given: Subject | Recipe | Model) -> Subject:
    """What is to be verified of a recipe or a model: as it is, however large."""
    match given:
        case Subject():
            return given
        case Model():
            return Subject(given)
        case Recipe():
            return Subject(given.model, given.training, given.tokenizer.vocabulary_size, given.seed, given.name)


@dataclass
class _Verification:
    subject: Subject
    steps: int
    folder: Path
    workers: Workers
    plant: Plant | None
    _references: dict[tuple[int, VerifiedPrecision, int | None], Path] = field(default_factory=dict)

    def result(self, layout: Layout, precisions: Sequence[VerifiedPrecision]) -> Result:
        begun, result = time.monotonic(), Result(layout, self.subject.recompute(layout).said)
        try:
            for precision in precisions:
                found = self._run(layout, precision, None)
                result.worst[precision] = worst(one for rank in found for one in rank.worst)
                result.first = self._first(layout, precision, found)
                if result.first is not None:
                    break
        except WorkersFailed as error:
            result.error = str(error)
            result.first = self._before_failure(layout)
        result.seconds = time.monotonic() - begun
        return result

    def _before_failure(self, layout: Layout) -> Difference | None:
        """What differs in a first step after which nothing is evaluated or saved, where that comes to an end."""
        try:
            return self._first(layout, "fp64", self._run(layout, "fp64", 1))
        except WorkersFailed:
            return None

    def _run(self, layout: Layout, precision: VerifiedPrecision, probed: int | None) -> list[Findings]:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            work = LayoutWork(
                subject=self.subject,
                layout=layout,
                precision=precision,
                steps=self.steps,
                reference=self._reference(layout, precision, probed),
                folder=folder,
                plant=self.plant,
                probed=probed,
                choices=self._choices(layout, precision),
            )
            return self.workers.run(run_rank, work, layout.world_size)
        finally:
            shutil.rmtree(folder)

    def _first(self, layout: Layout, precision: VerifiedPrecision, found: Sequence[Findings]) -> Difference | None:
        differing = [one for rank in found for one in rank.firsts]
        if not differing:
            return None
        step = min(one.step for one in differing)
        here = [one for one in differing if one.step == step]
        if not any(one.kind in _COMPUTED for one in here):
            return min(here, key=self._order)
        probed = self._run(layout, precision, step)
        seen = [pair for rank in probed for pair in rank.activations]
        for name, place in probed[0].not_passed.items():
            if all(name in rank.not_passed for rank in probed):
                seen.append((place, Difference(ACTIVATION, name, step, 0, math.inf, BOUNDS["fp64"], precision)))
        for kind in (ACTIVATION, GRADIENT):
            if of_kind := [(place, one) for place, one in seen if one.kind == kind]:
                return min(of_kind, key=lambda pair: (pair[0], pair[1].micro_batch or 0, pair[1].rank))[1]
        # No module differs: what was made of their gradients does, then what was made of those.
        return min(here, key=lambda one: (one.kind != "gradient", one.kind != "norm", self._order(one)))

    def _order(self, one: Difference) -> tuple[int, int, int]:
        names = self.subject.names
        owner = next((place for place, name in enumerate(names) if one.name.startswith(name)), len(names))
        return KINDS.index(one.kind), owner, one.rank

    def _choices(self, layout: Layout, precision: VerifiedPrecision) -> Path | None:
        mixed = self.subject.model.moe is not None and precision != "fp64"
        return self._reference(layout, "fp64", None) if mixed else None

    def _reference(self, layout: Layout, precision: VerifiedPrecision, probed: int | None) -> Path:
        key = (self.subject.sequences(layout), precision, probed)
        if key not in self._references:
            truth = None if precision in BOUNDS else self._reference(layout, "fp64", probed)
            path = self.folder / f"reference-{len(self._references)}.npy"
            work = ReferenceWork(
                self.subject,
                layout,
                precision,
                self.steps if probed is None else probed,
                path,
                truth,
                probed,
                self._choices(layout, precision),
            )
            self.workers.run(make_reference, work, 1)
            self._references[key] = path
        return self._references[key]


__all__ = ["Result", "subject_of", "verify"]
