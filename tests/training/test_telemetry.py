"""What a run records of itself: complete, the same whatever is recorded, and never felt in the training."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.layout import Layout
from stoker.parallel import World, join_world, single_process_world
from stoker.parallel.placement import local
from stoker.recipe import Recipe
from stoker.record import Record, rows_of
from stoker.record.rows import KINDS
from stoker.training.clock import PhaseClock
from stoker.training.clock_offset import _compared
from stoker.training.machine import MachineWatch, host_figures
from stoker.training.rank import Job, build_trainer
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.distributed import run_ranks

STEPS = 6
EVERYTHING = {"modules_every": 1, "worst_documents": 3, "timeline_every": 1, "machine_seconds": 0}
NOTHING = {"modules_every": 1000, "worst_documents": 0, "timeline_every": 0, "machine_seconds": 0}
CPU = torch.device("cpu")


def _recipe(layout: Layout, telemetry: dict[str, Any], **training: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "telemetry",
            "data": {"sources": [{"name": "one", "paths": ["x"], "weight": 1}]},
            "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32},
            "training": {
                "steps": STEPS,
                "sequence_length": 32,
                "global_batch_size": 8,
                "micro_batch_size": 2,
                "schedule": {"name": "cosine", "warmup_steps": 2},
                "device": "cpu",
                "threads": 1,
                **training,
            },
            "layout": layout.model_dump(),
            "checkpoint": {"every": 3},
            "telemetry": telemetry,
        }
    )


def _fit(trainer: Trainer) -> str:
    """Train to the end; a checksum of this rank's weights and moments."""
    trainer.fit()
    trainer.close()
    digest = hashlib.sha256()
    for one in trainer.step.model.held:
        digest.update(local(one.tensor.detach()).numpy().tobytes())
    for state in trainer.step.optimizer.state.values():
        for value in state.values():
            digest.update(local(value).numpy().tobytes() if isinstance(value, torch.Tensor) else b"")
    return digest.hexdigest()


def _train(world: World, recipe: Recipe, corpus: Path, run: Path) -> str:
    return _fit(build_trainer(Job(recipe, run, corpus, 1), world, StopRequest(), lambda message: None))


def _train_rank(rank: int, ranks: int, store: Any, recipes: list[Recipe], corpus: Path, run: Path) -> list[str]:
    torch.set_num_threads(1)
    with join_world(recipes[0].layout, rank, CPU, store, 60) as world:
        return [_train(world, recipe, corpus, run / str(number)) for number, recipe in enumerate(recipes)]


def _rows(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    record = Record(run / "record")
    return rows_of(kind, record.rows(kind, rank=rank))


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"precision": "fp16"},
        {"memory": {"recompute": {"name": "full"}}},
        {"memory": {"release_gradients": True}},
    ],
    ids=["plain", "fp16", "recompute", "release_gradients"],
)
def test_no_bit_of_the_training_depends_on_what_is_recorded(
    corpus: Corpus, tmp_path: Path, training: dict[str, Any]
) -> None:
    released = "release_gradients" in str(training)
    if released:
        training = {**training, "micro_batch_size": 8, "gradient_clip": None}
    world = single_process_world(CPU)
    on, off = (
        _train(world, _recipe(Layout(), telemetry, **training), corpus.folder, tmp_path / name)
        for name, telemetry in (("on", EVERYTHING), ("off", NOTHING))
    )
    assert on == off
    assert len(_rows(tmp_path / "on", "module")) == STEPS * 9
    assert not _rows(tmp_path / "off", "module")
    assert not _rows(tmp_path / "off", "document")
    assert not _rows(tmp_path / "off", "timeline")
    measured = [row for row in _rows(tmp_path / "on", "module") if "update_rms" in row]
    assert bool(measured) == (not released)  # released gradients move weights unseen
    assert [row.get("update_norm") is None for row in _rows(tmp_path / "on", "step")] == [released] * STEPS


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [Layout(dp_replicate=2), Layout(dp_shard=2), Layout(tp=2), Layout(pp=2), Layout(cp=2)],
    ids=str,
)
def test_layouts_train_the_same_bits_and_every_rank_records_its_own(
    corpus: Corpus, tmp_path: Path, layout: Layout
) -> None:
    recipes = [_recipe(layout, telemetry) for telemetry in (EVERYTHING, NOTHING)]
    for on, off in run_ranks(_train_rank, 2, recipes, corpus.folder, tmp_path):
        assert on == off
    run = tmp_path / "0"
    for rank in range(2):
        steps = _rows(run, "step", rank)
        assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
        for row in steps:
            assert row["arrived"].keys() == row["waited"].keys() >= {"count", "gradients", "loss"}
            assert 0 < row["arrived"]["count"] < row["arrived"]["loss"] < row["seconds"]["total"]
            assert 0 < row["work_seconds"] < row["seconds"]["total"] - row["waited"]["loss"]
            assert row["read_ahead"] in range(3)
        timelines = _rows(run, "timeline", rank)
        assert len(timelines) == STEPS
        spans = timelines[-1]["spans"]
        assert spans == sorted(spans, key=lambda span: span[1])
        for phase, seconds in steps[-1]["seconds"].items():
            if phase in ("forward", "backward", "communication"):
                assert sum(span[2] for span in spans if span[0] == phase) == pytest.approx(seconds)
        clock = [event for event in Record(run / "record").events(rank=rank) if event["event"] == "clock"]
        assert len(clock) == 1
        offset = clock[0]["detail"]
        assert abs(offset["ahead_seconds"]) <= offset["uncertain_seconds"]  # one machine has one clock
        assert rank == 1 or offset["ahead_seconds"] == 0.0
    assert not _rows(run, "module", rank=1)
    with_documents = [rank for rank in range(2) if _rows(run, "document", rank)]
    assert with_documents == {"tp": [0], "cp": [0], "pp": [1]}.get(str(layout).partition("=")[0], [0, 1])


def test_figures_of_modules_are_those_of_their_parameters(corpus: Corpus, tmp_path: Path) -> None:
    recipe = _recipe(Layout(), EVERYTHING, gradient_clip=None)
    trainer = build_trainer(
        Job(recipe, tmp_path, corpus.folder, 1), single_process_world(CPU), StopRequest(), print
    )
    before: dict[str, torch.Tensor] = {}
    gradients: dict[str, torch.Tensor] = {}
    held = {one.name: one.parameter for one in trainer.step.model.held if one.is_parameter}

    def note(*_: Any) -> None:
        before.update({name: parameter.detach().clone() for name, parameter in held.items()})
        gradients.update({name: p.grad.clone() for name, p in held.items() if p.grad is not None})

    trainer.step.optimizer.register_step_pre_hook(note)
    _fit(trainer)
    rows = {row["module"]: row for row in _rows(tmp_path, "module") if row["step"] == STEPS}
    own = {
        "embedding": ["embedding"],
        "blocks.1": ["blocks.1."],
        "blocks.0.attention": ["blocks.0.attention."],
        "blocks.0.feed_forward": ["blocks.0.feed_forward."],
        "head": ["head"],
    }
    for module, prefixes in own.items():
        names = [name for name in held if name.replace("_norm", "").startswith(tuple(prefixes))]
        assert names
        weights, grads, moved = (
            torch.cat([tensor(name).double().flatten() for name in names])
            for tensor in (
                lambda name: held[name].detach(),
                lambda name: gradients[name],
                lambda name: held[name].detach() - before[name],
            )
        )
        row = rows[module]
        assert row["parameters"] == len(weights)
        assert row["weight_rms"] == pytest.approx(float(weights.square().mean().sqrt()), rel=1e-5)
        assert row["gradient_norm"] == pytest.approx(float(grads.norm()), rel=1e-5)
        assert row["gradient_rms"] == pytest.approx(float(grads.square().mean().sqrt()), rel=1e-5)
        update = float(moved.square().mean().sqrt())
        assert row["update_rms"] == pytest.approx(update, rel=0.1)  # of a sample of large matrices
        assert row["update_to_weight"] == pytest.approx(row["update_rms"] / row["weight_rms"], rel=1e-6)
    last = _rows(tmp_path, "step")[-1]
    norm = torch.stack([parameter.detach().double().norm() for parameter in held.values()]).norm()
    assert last["weight_norm"] == pytest.approx(float(norm), rel=1e-5)
    assert last["gradient_norm_by_module"]["blocks.1"] == pytest.approx(rows["blocks.1"]["gradient_norm"], rel=1e-9)


def test_everything_recorded_has_a_column_of_its_own(corpus: Corpus, tmp_path: Path) -> None:
    _train(single_process_world(CPU), _recipe(Layout(), EVERYTHING), corpus.folder, tmp_path)
    record = Record(tmp_path / "record")
    for kind in ("step", "module", "document", "timeline"):
        table = record.rows(kind)
        assert table.height, kind
        assert "other" not in table.columns, kind
    assert {column.partition(".")[0] for column in record.rows("step").columns} <= {"sequence", *KINDS["step"]}


def test_the_machine_is_read_while_a_run_goes_on_and_not_afterwards() -> None:
    rows: list[dict[str, Any]] = []
    watch = MachineWatch(CPU, 0.01, rows.append, of_host=True)
    deadline = time.monotonic() + 10
    while len(rows) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.close()
    count = len(rows)
    assert count >= 2
    assert rows[0].keys() <= KINDS["machine"].keys()
    assert 0 <= rows[1]["processor_share"] <= 1
    assert 0 < rows[1]["host_memory_used_bytes"] < rows[1]["host_memory_total_bytes"]
    time.sleep(0.05)
    assert len(rows) == count
    quiet = MachineWatch(CPU, 0.01, rows.append, of_host=False)  # another rank of the machine
    time.sleep(0.05)
    quiet.close()
    assert len(rows) == count
    assert host_figures().keys() <= KINDS["machine"].keys()


def test_a_clock_that_is_set_while_it_is_compared_spoils_nothing() -> None:
    first = [[100.0 + number, 1e-3] for number in range(8)]
    own = [[102.5 + number + 1e-4, 1e-3 + 1e-5 * number] for number in range(8)]
    own[1][0] += 3600.0
    found = _compared(own, first)
    assert found.ahead_seconds == pytest.approx(2.5, abs=1e-3)
    assert found.uncertain_seconds >= 1e-3
    assert _compared(first, first).ahead_seconds == 0.0


def test_waits_in_the_middle_of_a_pass_are_no_work() -> None:
    clock = PhaseClock(CPU)
    with clock.phase("communication", "count"):
        time.sleep(0.01)
    with clock.phase("forward"):
        time.sleep(0.01)
        with clock.waiting("weights"):
            time.sleep(0.03)
    with clock.waiting("layers"):
        time.sleep(0.01)
    times = clock.read_and_restart()
    assert times.seconds["forward"] >= 0.04
    assert times.work == pytest.approx(times.seconds["forward"] - times.waited["weights"])
    assert 0.01 <= times.arrived["weights"] - times.waited["count"] <= times.seconds["total"]
    assert times.waited.keys() == {"count", "weights", "layers"}
    assert [span.name for span in times.spans] == ["communication", "forward"]
    again = clock.read_and_restart()
    assert (again.spans, again.waited) == ((), {})
    assert again.began >= times.began + times.seconds["total"] - 1e-3


def test_what_is_done_aside_is_of_no_other_phase() -> None:
    clock = PhaseClock(CPU)
    with clock.phase("forward"):
        time.sleep(0.01)
    with clock.aside("evaluation"), clock.phase("forward"), clock.waiting("others"):
        time.sleep(0.05)
    times = clock.read_and_restart()
    assert times.seconds["evaluation"] >= 0.05 > times.seconds["forward"] >= 0.01
    assert times.waited == {}
    assert times.without("evaluation") < 0.05
