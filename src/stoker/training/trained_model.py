"""Opens what a run has trained, in one process: for evaluation, export and a look at the weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from stoker.checkpoint import latest, read_weights
from stoker.data.corpus import Corpus
from stoker.errors import BadInput
from stoker.model import Decoder
from stoker.recipe import Recipe
from stoker.recipe.loading import load_recipe
from stoker.run_directory import RunDirectory
from stoker.training.origin import corpus_of


@dataclass(frozen=True)
class TrainedModel:
    """A run's weights at one step, with what is needed to use them."""

    recipe: Recipe
    corpus: Corpus
    model: Decoder
    step: int
    checkpoint: Path


def load_trained_model(run: RunDirectory, step: int | None = None) -> TrainedModel:
    """The model of `run` after `step` steps (default: the newest checkpoint), in fp32 on the CPU.

    Raises `BadInput` when the folder holds no run, or no complete checkpoint of that step.
    """
    run.require_run()
    recipe = load_recipe(run.recipe).recipe
    checkpoint = run.checkpoints / f"step-{step:08d}" if step is not None else latest(run.checkpoints)
    if checkpoint is None or not checkpoint.is_dir():
        saved = sorted(int(path.name.removeprefix("step-")) for path in run.checkpoints.glob("step-*"))
        raise BadInput(
            f"{run.path} has no complete checkpoint{f' of step {step}' if step is not None else ''}; "
            + (f"it has steps {', '.join(map(str, saved))}" if saved else "train it first: stoker train RECIPE")
        )
    corpus = corpus_of(run)
    with torch.device("meta"):
        model = Decoder(recipe.model, corpus.vocabulary_size, recipe.training.sequence_length)
    model.to_empty(device="cpu")
    model.load_state_dict({name: tensor.float() for name, tensor in read_weights(checkpoint).items()})
    return TrainedModel(recipe, corpus, model.eval(), int(checkpoint.name.removeprefix("step-")), checkpoint)
