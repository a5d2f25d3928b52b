"""A step that was cut short goes on from the gradients that were kept of it, to the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stoker.checkpoint import latest, read_weights
from stoker.checkpoint.unfinished import UnfinishedSteps
from stoker.data.corpus import Corpus
from stoker.parallel import single_process_world
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.data.corpora import build_corpus, byte_document

STEPS, MICRO_BATCHES = 4, 4
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"dropout": 0.1},
    "experts": {"moe": {"experts": 4, "experts_per_token": 2, "gate": "sigmoid", "bias_update_rate": 0.01}},
}


class _Killed(Exception):
    pass


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    lines = [byte_document(f"Line {i} of a text, {'again ' * (i % 5)}end.") for i in range(40)]
    content = {"text": {"train": lines[3:], "held_out": lines[:3]}}
    return build_corpus(tmp_path_factory.mktemp("corpus"), content)


def _recipe(model: str, precision: str = "fp32", **recovery: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "in-flight",
            "data": {"sources": [{"name": "text", "paths": ["x"]}]},
            "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32, **MODELS[model]},
            "training": {
                "steps": STEPS,
                "sequence_length": 32,
                "global_batch_size": 2 * MICRO_BATCHES,
                "micro_batch_size": 2,
                "device": "cpu",
                "threads": 1,
                "precision": precision,
            },
            "checkpoint": {"every": 1},
            "evaluation": {"every": 0},
            "recovery": {"copy_every": 1, "copy_gradients_every": 1, **recovery},
        }
    )


def _trainer(recipe: Recipe, corpus: Corpus, folder: Path, attempt: int) -> Trainer:
    job = Job(recipe, folder / "run", corpus.folder, attempt, snapshots=folder / "memory")
    return build_trainer(job, single_process_world(torch.device("cpu")), StopRequest(), lambda message: None)


def _fit(trainer: Trainer) -> int:
    """Train to the end, or to where it is killed; returns how many forward passes were begun."""
    passes = 0

    def heard(completed: int, phase: str) -> None:
        nonlocal passes
        passes += phase == "forward"

    trainer.clock.marks.heard = heard
    try:
        trainer.fit()
    except _Killed:
        pass
    finally:
        trainer.close()
    return passes


def _killed_before(trainer: Trainer, step: int, micro_batch: int) -> None:
    """The forward pass of this micro-batch (the first is 1) does not begin."""
    whole: Callable[..., list[Tensor]] = trainer.step.model.forward_backward

    def forward_backward(batches: Any, **given: Any) -> list[Tensor]:
        done, between = 0, given.pop("between")

        def count(sums: Tensor) -> None:
            nonlocal done
            between(sums)
            done += 1
            if given["step"] == step and done == micro_batch - 1:
                raise _Killed

        return whole(batches, between=count, **given)

    trainer.step.model.forward_backward = forward_backward  # type: ignore[method-assign]


def _end(folder: Path) -> tuple[dict[str, str], list[float], list[float]]:
    found = latest(folder / "run" / "checkpoints")
    assert found is not None
    weights = {n: hashlib.sha256(t.float().numpy().tobytes()).hexdigest() for n, t in read_weights(found).items()}
    steps = Record(folder / "run" / "record").steps()
    return weights, steps["loss"].to_list(), steps["gradient_norm"].to_list()


@pytest.mark.parametrize(("model", "precision"), [("dense", "fp16"), ("experts", "pure_bf16")])
def test_only_what_was_not_kept_is_computed_again_and_no_bit_changes(
    corpus: Corpus, tmp_path: Path, model: str, precision: str
) -> None:
    recipe = _recipe(model, precision)
    assert _fit(_trainer(recipe, corpus, tmp_path / "straight", 1)) == STEPS * MICRO_BATCHES
    first = _trainer(recipe, corpus, tmp_path / "cut", 1)
    _killed_before(first, step=2, micro_batch=4)
    second = _fit(first), _trainer(recipe, corpus, tmp_path / "cut", 2)
    _killed_before(second[1], step=3, micro_batch=2)
    passes = second[0] + _fit(second[1]) + _fit(_trainer(recipe, corpus, tmp_path / "cut", 3))
    assert passes == STEPS * MICRO_BATCHES
    assert _end(tmp_path / "cut") == _end(tmp_path / "straight")


def test_what_was_kept_by_another_recipe_is_not_taken_up(corpus: Corpus, tmp_path: Path) -> None:
    first = _trainer(_recipe("dense"), corpus, tmp_path, 1)
    _killed_before(first, step=2, micro_batch=3)
    _fit(first)
    other = _recipe("dense", deviations=9.0)
    assert _fit(_trainer(other, corpus, tmp_path, 2)) == (STEPS - 1) * MICRO_BATCHES


def test_a_damaged_copy_is_not_taken_up_and_the_one_before_it_is(tmp_path: Path) -> None:
    kept = UnfinishedSteps(tmp_path, "us")
    for done in (1, 2, 3):
        kept.keep(7, done, {"sums": torch.tensor([float(done)]), "empty": torch.zeros(0, 3)})
    found = UnfinishedSteps(tmp_path, "us").found(7)
    assert sorted(found) == [2, 3]
    content = bytearray(found[3].file.read_bytes())
    content[-1] ^= 1
    found[3].file.write_bytes(content)
    assert found[3].read() is None
    read = found[2].read()
    assert read is not None
    assert read["sums"].tolist() == [2.0]
    assert read["empty"].shape == (0, 3)
    assert UnfinishedSteps(tmp_path, "others").found(7) == {}
    assert UnfinishedSteps(tmp_path, "us").found(8) == {}
    UnfinishedSteps(tmp_path, "us").forget()
    assert kept.found(7) == {}


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({"recovery": {"copy_every": 2, "copy_gradients_every": 1}}, "recovery.copy_every=1"),
        ({"layout": {"pp": 2}}, "layout.pp=1"),
        ({"layout": {"dp_shard": 2, "dp_replicate": 2}}, "dp_replicate=1"),
        ({"layout": {"dp_shard": 2, "zero_stage": 1}}, "zero_stage 2 or 3"),
    ],
)
def test_where_gradients_cannot_be_kept_the_recipe_is_refused(changes: dict[str, Any], needs: str) -> None:
    content = _recipe("dense").model_dump(mode="json")
    with pytest.raises(ValueError, match=f"copy_gradients_every needs .*{needs}"):
        Recipe.model_validate({**content, **changes})
