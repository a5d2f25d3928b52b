"""What does not belong together is refused, and nothing is changed by the attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stoker.checkpoint import latest, load, read_weights, save
from stoker.errors import BadInput, NonFinite, StokerError
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same


def _saved(folder: Path, optimizer: str = "adamw", precision: str = "fp32", **model: int) -> Path:
    training = TinyTraining.alone(optimizer, precision, **model)
    training.step(1)
    return save(folder, 1, training.model.held, training.optimizer, {"step": 1}, KEEP_ALL)


def _refusal(path: Path, reader: TinyTraining, kind: type[StokerError] = BadInput) -> str:
    before = reader.whole_state()
    with pytest.raises(kind) as refusal:
        load(path, reader.model.held, reader.optimizer)
    assert_same(reader.whole_state(), before)
    return str(refusal.value)


@pytest.mark.parametrize("trained_before", [False, True])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"vocabulary": 13}, "he vocabularies differ: 11 tokens there, 13 here"),
        ({"width": 8}, "another model"),
        ({"layers": 3}, "it lacks model.blocks.2.attention.key.bias"),
        ({"layers": 1}, "it has besides model.blocks.1.attention.key.bias"),
    ],
)
def test_another_model_is_refused(model: dict[str, int], said: str, trained_before: bool, tmp_path: Path) -> None:
    reader = TinyTraining.alone("adamw", seed=1, **model)
    if trained_before:
        reader.step(1)
    assert said in _refusal(_saved(tmp_path), reader)


@pytest.mark.parametrize("reader", ["adafactor", "lion", "muon"])
def test_another_optimizers_state_is_refused(reader: str, tmp_path: Path) -> None:
    message = _refusal(_saved(tmp_path), TinyTraining.alone(reader, seed=1))
    assert "AdamW saved it" in message


def test_another_number_format_is_refused(tmp_path: Path) -> None:
    message = _refusal(_saved(tmp_path), TinyTraining.alone("adamw", "pure_bf16"))
    assert "float32" in message
    assert "bfloat16" in message
    assert "training.precision" in message


def test_a_checkpoint_without_all_optimizer_state_is_refused(tmp_path: Path) -> None:
    trained = TinyTraining.alone("adamw")
    trained.step(1)
    for state in trained.optimizer.state.values():
        del state["exp_avg"]
    path = save(tmp_path, 1, trained.model.held, trained.optimizer, {}, KEEP_ALL)
    assert "it lacks optimizer." in _refusal(path, TinyTraining.alone("adamw", seed=1))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in _refusal(tmp_path / "step-00000007", TinyTraining.alone("adamw"))
    with pytest.raises(BadInput, match="no such folder"):
        read_weights(tmp_path / "step-00000007")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["weight", "moment"])
def test_a_state_that_is_not_finite_is_never_published(value: float, where: str, tmp_path: Path) -> None:
    training = TinyTraining.alone("adamw")
    training.step(1)
    good = save(tmp_path, 1, training.model.held, training.optimizer, {}, KEEP_ALL)
    weight = training.model.part.get_parameter("norm.bias")
    with torch.no_grad():
        (weight if where == "weight" else training.optimizer.state[weight]["exp_avg"])[2] = value
    with pytest.raises(NonFinite, match=r"norm\.bias"):
        save(tmp_path, 2, training.model.held, training.optimizer, {}, KEEP_ALL)
    assert list(tmp_path.iterdir()) == [good]
    assert latest(tmp_path) == good
