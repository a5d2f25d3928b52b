"""Opens what a run has trained, in one process: for evaluation, export and a look at the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stoker.checkpoint import Place, checkpoints_of, latest, read_weights
from stoker.checkpoint.manifest import step_folders, step_of
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
    checkpoint: Place


def load_trained_model(run: RunDirectory, step: int | None = None) -> TrainedModel:
    """The model of `run` after `step` steps (default: the newest checkpoint), in fp32 on the CPU.

    Raises `BadInput` when the folder holds no run, or no complete checkpoint of that step.
    """
    run.require_run()
    recipe = load_recipe(run.recipe).recipe
    checkpoints = checkpoints_of(run, recipe.checkpoint)
    folders = {step_of(path): path for path in step_folders(checkpoints)}
    checkpoint = folders.get(step) if step is not None else latest(checkpoints)
    if checkpoint is None:
        saved = sorted(number for number in folders if number is not None)
        raise BadInput(
            f"{run.path} has no complete checkpoint{f' of step {step}' if step is not None else ''}; "
            + (f"it has steps {', '.join(map(str, saved))}" if saved else "train it first: stoker train RECIPE")
        )
    corpus = corpus_of(run)
    with torch.device("meta"):
        model = Decoder(recipe.model, corpus.vocabulary_size, recipe.training.sequence_length)
    model.to_empty(device="cpu")
    model.load_state_dict({name: tensor.float() for name, tensor in read_weights(checkpoint).items()})
    return TrainedModel(recipe, corpus, model.eval(), step_of(checkpoint) or 0, checkpoint)
