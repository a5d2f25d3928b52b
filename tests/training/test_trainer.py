"""The loop in one process: resume, evaluation, non-finite steps, epochs."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.checkpoint import latest, read_weights
from stoker.data.corpus import Corpus
from stoker.errors import NonFinite, Terminated
from stoker.parallel import single_process_world
from stoker.recipe import Recipe
from stoker.record import Record, samples_seen
from stoker.training.interventions import Interventions
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.data.corpora import corpus_of_lines

pytestmark = pytest.mark.slow

STEPS = 12


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    texts = {
        "one": [f"The {i}th line of a first source, {'again ' * (i % 5)}end." for i in range(40)],
        "two": [f"{i} 第二个来源的一行。" for i in range(30)],
    }
    return corpus_of_lines(tmp_path_factory.mktemp("corpus"), texts)


def _recipe(corpus: Corpus, **changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "name": "loop",
        "data": {"sources": [{"name": name, "paths": ["x"], "weight": 1} for name in corpus.source_names]},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32},
        "training": {
            "steps": STEPS,
            "sequence_length": 32,
            "global_batch_size": 4,
            "micro_batch_size": 2,
            "device": "cpu",
            "threads": 1,
        },
        "checkpoint": {"every": 4, "keep_last": 2},
        "evaluation": {"every": 6, "sequences": 2},
    }
    for dotted, value in changes.items():
        *path, leaf = dotted.split("__")
        target = content
        for part in path:
            target = target.setdefault(part, {})
        target[leaf] = value
    return Recipe.model_validate(content)


def _trainer(
    recipe: Recipe, corpus: Corpus, run: Path, attempt: int = 1, stop: StopRequest | None = None
) -> Trainer:
    job = Job(recipe, run, corpus.folder, attempt)
    world = single_process_world(torch.device("cpu"))
    return build_trainer(job, world, stop or StopRequest(), lambda message: None)


def _fit(recipe: Recipe, corpus: Corpus, run: Path, attempt: int = 1) -> None:
    trainer = _trainer(recipe, corpus, run, attempt)
    try:
        trainer.fit()
    finally:
        trainer.close()


def _state(run: Path) -> dict[str, str]:
    checkpoint = latest(run / "checkpoints")
    assert checkpoint is not None
    return {n: hashlib.sha256(t.float().numpy().tobytes()).hexdigest() for n, t in read_weights(checkpoint).items()}


def _losses(run: Path) -> list[float]:
    return Record(run / "record").steps()["loss"].to_list()


class _Crash(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "adafactor", "lion"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "pure_bf16"])
def test_a_run_that_crashed_ends_bit_identical_to_one_that_did_not(
    corpus: Corpus, tmp_path: Path, optimizer: str, precision: str
) -> None:
    """Ten steps, a crash two steps after a checkpoint, and on again: losses, weights and samples are the same."""
    recipe = _recipe(
        corpus,
        training__optimizer={"name": optimizer},
        training__precision=precision,
        training__loss_scale={"growth_interval": 3},
        model__dropout=0.1,
        model__layer_drop=0.1,
    )
    _fit(recipe, corpus, tmp_path / "straight")
    trainer = _trainer(recipe, corpus, tmp_path / "crashed")

    def crash_after_ten(message: dict[str, Any]) -> None:
        if message["step"] == 10:
            raise _Crash

    trainer.report = crash_after_ten
    with pytest.raises(_Crash):
        trainer.fit()
    trainer.close()
    _fit(recipe, corpus, tmp_path / "crashed", attempt=2)
    assert _losses(tmp_path / "crashed") == _losses(tmp_path / "straight")
    assert _state(tmp_path / "crashed") == _state(tmp_path / "straight")
    report = samples_seen(Record(tmp_path / "crashed" / "record"))
    assert report.exact
    assert report.replayed_steps == 2


@pytest.mark.parametrize("every", [0, 1, 7])
def test_how_often_is_evaluated_changes_no_bit_of_the_training(corpus: Corpus, tmp_path: Path, every: int) -> None:
    changes = {"model__dropout": 0.2, "evaluation__prompts": ["The "], "evaluation__sample_tokens": 3}
    _fit(_recipe(corpus, evaluation__every=5, **changes), corpus, tmp_path / "five")
    _fit(_recipe(corpus, evaluation__every=every, **changes), corpus, tmp_path / "other")
    assert _losses(tmp_path / "five") == _losses(tmp_path / "other")
    assert _state(tmp_path / "five") == _state(tmp_path / "other")


def test_a_checkpoint_on_an_epoch_boundary_goes_on_with_the_next_epoch(corpus: Corpus, tmp_path: Path) -> None:
    """The whole corpus is a few steps: many epochs pass, and resume after each step loses and repeats nothing."""
    recipe = _recipe(corpus, training__steps=40, checkpoint__every=1)
    for attempt, steps in enumerate(range(5, 41, 5), start=1):
        short = recipe.model_copy(update={"training": recipe.training.model_copy(update={"steps": steps})})
        _fit(short, corpus, tmp_path / "run", attempt)
    record = Record(tmp_path / "run" / "record")
    assert record.steps()["step"].to_list() == list(range(1, 41))
    assert samples_seen(record).exact


def test_a_nan_stops_before_the_update_keeps_the_checkpoint_and_names_the_batch(
    corpus: Corpus, tmp_path: Path
) -> None:
    asking = _recipe(corpus, checkpoint__every=1, checkpoint__keep_last=3, recovery__on_non_finite="ask")
    trainer = _trainer(asking, corpus, tmp_path)
    embedding = trainer.step.model.part.embedding

    def poison(message: dict[str, Any]) -> None:
        if message["step"] == 5:
            embedding.register_forward_hook(lambda module, inputs, output: output * float("nan"))

    trainer.report = poison
    with pytest.raises(NonFinite, match=r"step 6.*samples 20 to 23"):
        trainer.fit()
    trainer.close()
    record = Record(tmp_path / "record")
    assert record.steps()["loss"].is_nan().to_list() == [False] * 5 + [True]
    (event,) = [event for event in record.events() if event["event"] == "non_finite"]
    assert event["detail"]["samples"] == [20, 24]
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*"))
    assert kept == ["step-00000003", "step-00000004", "step-00000005"]
    assert all(
        torch.isfinite(tensor).all() for tensor in read_weights(tmp_path / "checkpoints" / kept[-1]).values()
    )


def _poisoned(trainer: Trainer, steps: set[int], value: float) -> None:
    """Multiply what the head reads by `value`, in `steps` alone."""
    at = {"step": trainer.position.step + 1}

    def count(message: dict[str, Any]) -> None:
        if message["kind"] == "step":
            at["step"] = message["step"] + 1

    def poison(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * value if at["step"] in steps and module.training else output

    trainer.report = count
    trainer.step.model.part.norm.register_forward_hook(poison)


def _events(run: Path, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in Record(run / "record").events() if event["event"] in kinds]


def test_a_step_that_is_not_finite_is_left_out_recorded_and_the_run_goes_on(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe(corpus), corpus, tmp_path)
    _poisoned(trainer, {6}, math.nan)
    trainer.fit()
    trainer.close()
    (event,) = _events(tmp_path, "non_finite")
    assert event["step"] == 6
    assert event["detail"]["response"] == "skip_step"
    assert event["detail"]["samples"] == [20, 24]
    steps = Record(tmp_path / "record").steps()
    assert steps["step"].to_list() == list(range(1, STEPS + 1))
    assert [step for step, skipped in zip(steps["step"], steps["skipped"], strict=True) if skipped] == [6]
    assert Interventions.read(tmp_path / "interventions.json").skips(6)
    assert samples_seen(Record(tmp_path / "record")).exact


def test_a_run_killed_after_a_step_was_left_out_leaves_it_out_again(corpus: Corpus, tmp_path: Path) -> None:
    """The second start does not see the NaN any more: what was decided counts."""
    recipe = _recipe(corpus, checkpoint__every=4)
    for run, crashes in ((tmp_path / "straight", False), (tmp_path / "crashed", True)):
        trainer = _trainer(recipe, corpus, run)
        _poisoned(trainer, {6}, math.nan)
        if crashes:
            trainer.recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"steps": 7})})
            trainer.saver.stage = lambda step, *_, stage=trainer.saver.stage, **durable: (  # type: ignore[method-assign]
                stage(step, *_, **durable) if step < 7 else None
            )
        trainer.fit()
        trainer.close()
    _fit(recipe, corpus, tmp_path / "crashed", attempt=2)
    assert _state(tmp_path / "crashed") == _state(tmp_path / "straight")


def test_a_divergence_goes_back_before_its_first_step_and_leaves_its_steps_out(
    corpus: Corpus, tmp_path: Path
) -> None:
    recipe = _recipe(
        corpus,
        training__steps=40,
        checkpoint__every=5,
        recovery__window=8,
        recovery__divergence_steps=3,
        recovery__lower_learning_rate=0.5,
        recovery__lowered_steps=10,
    )
    trainer = _trainer(recipe, corpus, tmp_path)
    _poisoned(trainer, {23, 24, 25}, 200.0)
    trainer.fit()
    trainer.close()
    (back,) = _events(tmp_path, "went_back")
    assert back["step"] == 20
    decided = Interventions.read(tmp_path / "interventions.json")
    assert [step for step in range(41) if decided.skips(step)] == [23, 24, 25]
    assert decided.learning_rate_factor(21) == decided.learning_rate_factor(30) == 0.5
    steps = Record(tmp_path / "record").steps()
    assert steps["step"].to_list() == list(range(1, 41))
    assert [step for step, skipped in zip(steps["step"], steps["skipped"], strict=True) if skipped] == [23, 24, 25]
    assert not _events(tmp_path, "divergence")[1:], "it diverged once"
    assert samples_seen(Record(tmp_path / "record")).exact


def test_a_spike_is_waited_for_left_out_or_asked_about_as_the_recipe_says(corpus: Corpus, tmp_path: Path) -> None:
    for response, skipped in (("wait", []), ("skip_step", [30])):
        recipe = _recipe(corpus, training__steps=32, recovery__window=8, recovery__on_spike=response)
        run = tmp_path / response
        trainer = _trainer(recipe, corpus, run)
        _poisoned(trainer, {30}, 200.0)
        trainer.fit()
        trainer.close()
        (event,) = _events(run, "spike")
        assert event["detail"]["measure"] in ("loss", "gradient norm")
        assert event["detail"]["observed"] > event["detail"]["limit"] > event["detail"]["expected"]
        steps = Record(run / "record").steps()
        assert [step for step, out in zip(steps["step"], steps["skipped"], strict=True) if out] == skipped
    trainer = _trainer(
        _recipe(corpus, training__steps=32, recovery__window=8, recovery__on_spike="ask"), corpus, tmp_path / "ask"
    )
    _poisoned(trainer, {30}, 200.0)
    with pytest.raises(NonFinite, match=r"step 30: the (loss|gradient norm) is .* its recent median"):
        trainer.fit()
    trainer.close()


def test_a_spike_that_was_held_back_is_gone_back_from_without_a_step_done_again(
    corpus: Corpus, tmp_path: Path
) -> None:
    for response in ("skip_step", "rollback"):
        recipe = _recipe(
            corpus, training__steps=32, checkpoint__every=10, recovery__window=8, recovery__on_spike=response
        )
        trainer = _trainer(recipe, corpus, tmp_path / response)
        _poisoned(trainer, {26, 27}, 200.0)
        trainer.fit()
        trainer.close()
    steps = Record(tmp_path / "rollback" / "record").steps()
    assert [step for step, out in zip(steps["step"], steps["skipped"], strict=True) if out] == [26, 27]
    assert not _events(tmp_path / "rollback", "went_back")
    assert _state(tmp_path / "rollback") == _state(tmp_path / "skip_step")


@pytest.mark.parametrize("response", ["wait", "skip_step"])
def test_what_does_not_come_out_again_was_no_fault_of_the_documents_and_changes_nothing(
    corpus: Corpus, tmp_path: Path, response: str
) -> None:
    """A figure that is wrong once, as of a processor that errs: the run ends as the undisturbed one, to the bit."""
    recipe = _recipe(corpus, training__steps=24, recovery__window=8, recovery__on_spike=response)
    _fit(recipe, corpus, tmp_path / "straight")
    trainer = _trainer(recipe, corpus, tmp_path / "wrong once")
    wrong = {5: math.nan, 20: 200.0}
    at = {"step": 1}
    trainer.report = lambda message: at.update(step=message["step"] + 1) if message["kind"] == "step" else None

    def err(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * wrong.pop(at["step"], 1.0) if module.training else output

    trainer.step.model.part.norm.register_forward_hook(err)
    trainer.fit()
    trainer.close()
    assert not wrong
    replays = _events(tmp_path / "wrong once", "replayed")
    assert [(event["step"], event["detail"]["agrees"], event["detail"]["ranks"]) for event in replays] == [
        (5, False, [0]),
        (20, False, [0]),
    ]
    assert _state(tmp_path / "wrong once") == _state(tmp_path / "straight")


def test_a_spike_of_the_documents_comes_out_again(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe(corpus, training__steps=24, recovery__window=8), corpus, tmp_path)
    _poisoned(trainer, {20}, 200.0)
    trainer.fit()
    trainer.close()
    (event,) = _events(tmp_path, "replayed")
    assert (event["detail"]["agrees"], event["detail"]["ranks"]) == (True, [])


def test_what_a_run_decides_by_itself_is_limited(corpus: Corpus, tmp_path: Path) -> None:
    trainer = _trainer(_recipe(corpus, recovery__most_interventions=2), corpus, tmp_path)
    _poisoned(trainer, {3, 5, 7}, math.nan)
    with pytest.raises(NonFinite, match="step 7"):
        trainer.fit()
    trainer.close()


def test_a_request_to_stop_saves_after_the_step_and_the_rest_is_the_same(corpus: Corpus, tmp_path: Path) -> None:
    recipe = _recipe(corpus, checkpoint__every=100)
    _fit(recipe, corpus, tmp_path / "straight")
    stop = StopRequest()
    trainer = _trainer(recipe, corpus, tmp_path / "stopped", stop=stop)

    def ask(message: dict[str, Any]) -> None:
        stop.asked = stop.asked or message["step"] == 3

    trainer.report = ask
    with pytest.raises(Terminated, match="step 4"):
        trainer.fit()
    trainer.close()
    _fit(recipe, corpus, tmp_path / "stopped", attempt=2)
    assert _state(tmp_path / "stopped") == _state(tmp_path / "straight")


def test_the_number_of_steps_can_grow_afterwards(corpus: Corpus, tmp_path: Path) -> None:
    constant = {"training__schedule": {"name": "constant"}}
    _fit(_recipe(corpus, **constant), corpus, tmp_path / "straight")
    _fit(_recipe(corpus, training__steps=7, **constant), corpus, tmp_path / "grown")
    _fit(_recipe(corpus, **constant), corpus, tmp_path / "grown", attempt=2)
    assert _state(tmp_path / "grown") == _state(tmp_path / "straight")


def test_pure_bf16_records_the_share_of_weights_that_did_not_move(corpus: Corpus, tmp_path: Path) -> None:
    _fit(_recipe(corpus, training__precision="pure_bf16"), corpus, tmp_path)
    ratios = Record(tmp_path / "record").steps()["dead_updates"].to_list()
    assert all(0 < ratio < 1 for ratio in ratios)


def test_a_batch_ramp_changes_the_batch_where_it_says(corpus: Corpus, tmp_path: Path) -> None:
    ramp = [{"step": 4, "global_batch_size": 8}, {"step": 7, "global_batch_size": 16}]
    _fit(_recipe(corpus, training__batch_ramp=ramp), corpus, tmp_path)
    steps = Record(tmp_path / "record").steps()
    sizes = (steps["last_sample"] - steps["first_sample"]).to_list()
    assert sizes == [4] * 3 + [8] * 3 + [16] * 6
    assert samples_seen(Record(tmp_path / "record")).exact


def test_a_grace_too_short_for_a_step_and_a_save_is_said_once(
    corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = _trainer(_recipe(corpus, recovery__grace_seconds=1e-6), corpus, tmp_path)
    trainer.fit()
    trainer.close()
    (event,) = _events(tmp_path, "grace_too_short")
    assert event["detail"]["needed_seconds"] > event["detail"]["grace_seconds"] == 1e-6
    assert caplog.text.count("recovery.grace_seconds is") == 1
