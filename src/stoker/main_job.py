"""The main job: prepare, plan, train, evaluate, report; each stage only where it is still to do. And its parts."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.checkpoint import Place
from stoker.data.corpus import Corpus
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.errors import BadInput
from stoker.model.huggingface import ExportReport, export_model
from stoker.planning import Machine, Plan
from stoker.plural import counted
from stoker.progress import Progress, Silent
from stoker.recipe.loading import LoadedRecipe
from stoker.record import Record
from stoker.recovery import Standby, train
from stoker.recovery.nodes import led, placed
from stoker.report import write_report
from stoker.run_directory import RunDirectory
from stoker.training.launching import plan_for, require_trainable
from stoker.training.run_evaluation import evaluate_run
from stoker.training.trained_model import load_trained_model


@dataclass(frozen=True)
class MainJobOutcome:
    """What the main job has made."""

    run: RunDirectory
    corpus: Path
    steps: int
    checkpoint: Place
    report: Path | None
    """None on a node that followed: the one that led writes it."""
    scores: tuple[dict[str, Any], ...]
    """Held-out loss, perplexity and bits per byte of each source after the last step."""
    trained_now: bool

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "run": str(self.run.path),
            "corpus": str(self.corpus),
            "steps": self.steps,
            "checkpoint": str(self.checkpoint),
            "report": None if self.report is None else str(self.report),
            "scores": list(self.scores),
            "trained_now": self.trained_now,
        }

    def as_text(self) -> str:
        """For people: what there is now, and what to try next."""
        run = shlex.quote(str(self.run.path))
        report = "written by the node that led" if self.report is None else self.report
        return (
            f"report      {report}\n"
            f"checkpoint  {self.checkpoint}\n"
            f"try next    stoker eval {run}\n"
            f"            stoker data show {run} --step {self.steps}\n"
            f"            stoker export {run}\n"
        )


def run_main_job(loaded: LoadedRecipe, progress: Progress, ready: Standby | None = None) -> MainJobOutcome:
    """Do what is still to do of the main job, saying which stage it is at; `ready` supervises the training.

    On several nodes the same is called on each: the one that leads prepares and writes the report.
    """
    run, place = loaded.run, placed()
    if "WORLD_SIZE" in os.environ:
        raise BadInput(
            "WORLD_SIZE is set, as a launcher such as torchrun does, but `stoker run` starts its ranks itself: "
            "start it once on each node, without a launcher of ranks, or prepare first and launch `stoker train`"
        )
    require_trainable(loaded, run)
    corpus = _prepared(loaded, progress) if place is None else None
    outcome = train(loaded, run, progress, ready)
    corpus = corpus or _prepared(loaded, Silent())
    if not outcome.trained_now:
        progress.say(f"train: done before, {counted(outcome.steps, 'steps')}")
    scores = _scores(run, outcome.steps, progress)
    for score in scores:
        progress.say(
            f"evaluate: {score['source']}: held-out loss {score['loss']:.3f}, perplexity "
            f"{score['perplexity']:.2f}, {score['bits_per_byte']:.3f} bits per byte"
        )
    scored = {score["source"] for score in scores}
    unscored = [source.name for source in loaded.recipe.data.sources if source.name not in scored]
    if unscored:
        progress.say(f"evaluate: nothing held out of {', '.join(unscored)} (data.held_out)")
    report = write_report([run]) if place is None or led(run, place) else None
    progress.say("report: written" if report is not None else "report: written by the node that led")
    recorded = Record(run.record).steps(["loss"]).height
    if recorded < outcome.steps:
        progress.say(
            f"record: only {recorded:,} of {counted(outcome.steps, 'steps')} could be recorded, and the report "
            "lacks the others; the weights do not depend on it"
        )
    return MainJobOutcome(
        run=run,
        corpus=corpus.folder,
        steps=outcome.steps,
        checkpoint=outcome.checkpoint,
        report=report,
        scores=tuple(scores),
        trained_now=outcome.trained_now,
    )


def plan_before_training(loaded: LoadedRecipe, progress: Progress, machine: Machine | None = None) -> Plan:
    """What a run of the recipe would need and take on `machine`, or on this one; prepares the text where needed."""
    return plan_for(loaded, _prepared(loaded, progress), machine)


def export_run(run: RunDirectory, folder: Path | None, step: int | None) -> ExportReport:
    """Export a run's checkpoint of `step` (default: the newest) to `folder` (default: `export` in the run)."""
    trained = load_trained_model(run, step)
    return export_model(
        trained.model,
        trained.recipe.model,
        trained.corpus.tokenizer_path,
        folder.absolute() if folder is not None else run.path / "export",
        bos_id=trained.corpus.bos_id,
        eos_id=trained.corpus.eos_id,
    )


def _prepared(loaded: LoadedRecipe, progress: Progress) -> Corpus:
    found = find_prepared(loaded, progress)
    if found is not None:
        progress.say(f"prepare: done before, in {found.folder}")
        return found
    progress.say("prepare: reading, cleaning, removing duplicates, tokenising")
    return prepare(loaded, progress)


def _scores(run: RunDirectory, step: int, progress: Progress) -> list[dict[str, Any]]:
    """Scores after the last step: training has recorded them, unless it had nothing to record them with."""
    recorded = Record(run.record).evaluations()
    found = recorded.filter(recorded["step"] == step).to_dicts() if recorded.height else []
    if found:
        return found
    evaluation = evaluate_run(run, progress, step)
    return [score.row(step) for score in evaluation.scores]
