"""`stoker eval`: scores a run's checkpoint on every source's held-out documents."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.data.feeding import Feed
from stoker.parallel import apply, single_process_world
from stoker.parallel.world import choose_device
from stoker.progress import Progress
from stoker.run_directory import RunDirectory
from stoker.training.evaluation import SourceScore, evaluate
from stoker.training.rank import use_processors
from stoker.training.trained_model import load_trained_model


@dataclass(frozen=True)
class RunEvaluation:
    """Scores of one checkpoint, and the sources that had nothing held out."""

    step: int
    scores: list[SourceScore]
    without_held_out: list[str]


def evaluate_run(
    run: RunDirectory, progress: Progress, step: int | None = None, sequences: int | None = None
) -> RunEvaluation:
    """Score the checkpoint of `step` (default: the newest) on at most `sequences` sequences per source.

    By default all held-out text is read.
    """
    trained = load_trained_model(run, step)
    device = choose_device(trained.recipe.training.device, 0)
    use_processors(trained.recipe.training.threads, 1, device)
    model = apply(trained.model.to(device), single_process_world(device))
    feed = Feed(trained.corpus, trained.recipe)
    names = [source.name for source in trained.recipe.data.sources]
    scores: list[SourceScore] = []
    with progress.task("evaluate", len(names), "sources") as task:
        for name in names:
            held_out = feed.held_out(name, sequences)
            if held_out.batches:
                scores += evaluate(model, trained.recipe, [held_out])
            task.advance()
    scored = {score.source for score in scores}
    return RunEvaluation(trained.step, scores, [name for name in names if name not in scored])
