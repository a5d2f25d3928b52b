"""What one rank computes another computes again: who is wrong is named, and asking changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker.data.corpus import Corpus
from stoker.errors import StokerError
from stoker.layout import Layout
from stoker.layout.ranks import expert_coordinate
from stoker.parallel import join_world
from stoker.parallel.alone import Seen, checksum_of
from stoker.parallel.placement import local
from stoker.recipe import Recipe
from stoker.record import Record
from stoker.training.rank import Job, build_trainer
from stoker.training.second_opinion import Votes, copies_apart, counterpart, judge
from stoker.training.signals import StopRequest
from stoker.training.trainer import Trainer
from tests.distributed import run_ranks
from tests.verification.this_commit import drawn

pytestmark = pytest.mark.slow

STEPS = 6
ALL = -1
MIXTURE = {
    "experts": 4,
    "experts_per_token": 2,
    "expert_ffn_hidden_size": 16,
    "auxiliary_loss": 0.1,
    "bias_update_rate": 0.01,
}


@dataclass(frozen=True)
class Wrong:
    """A rank that computes wrong numbers: its last norm's output, or the gradient of that."""

    rank: int
    steps: tuple[int, ...]
    backward: bool = False
    factor: float = 1.001
    times: int = 10**6
    """Passes at most; none after it has been named, unless it …"""
    keeps_on: bool = False


def _recipe(layout: Layout, **changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "name": "opinion",
        "data": {"sources": [{"name": "one", "paths": ["x"], "weight": 1}]},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32, "dropout": 0.1},
        "training": {
            "steps": STEPS,
            "sequence_length": 16,
            "global_batch_size": 12 if layout.data_parallel_size == 3 else 8,
            "micro_batch_size": 2 if layout.data_parallel_size < 4 else 1,
            "device": "cpu",
            "threads": 1,
        },
        "layout": layout.model_dump(),
        "checkpoint": {"every": 2, "keep_last": 4},
        "evaluation": {"every": 0},
        "recovery": {"spot_check_every": 2},
    }
    for dotted, value in changes.items():
        *path, leaf = dotted.split("__")
        target = content
        for part in path:
            target = target.setdefault(part, {})
        target[leaf] = value
    return Recipe.model_validate(content)


def _spoil(trainer: Trainer, wrong: Wrong) -> None:
    left = [wrong.times]
    at = {"step": 1}

    def now() -> bool:
        if at["step"] not in wrong.steps or not left[0]:
            return False
        left[0] -= 1
        return True

    def err(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        if not module.training:
            return output
        if wrong.backward:
            if output.requires_grad:
                output.register_hook(lambda gradient: gradient * wrong.factor if now() else gradient)
            return output
        return output * wrong.factor if now() else output

    def hear(message: dict[str, Any]) -> None:
        at["step"] = message["step"] + 1 if message["kind"] == "step" else at["step"]
        if message["kind"] == "wrong_rank" and not wrong.keeps_on:
            left[0] = 0

    trainer.report = hear
    part = list(trainer.step.model.stages.values())[-1].part
    part.norm.register_forward_hook(err)


def _fit(
    rank: int, ranks: int, store: Any, corpus: Path, runs: list[tuple[Recipe, Path, Wrong | None]]
) -> list[Any]:
    torch.set_num_threads(1)
    found = []
    with join_world(runs[0][0].layout, rank, torch.device("cpu"), store, 60) as world:
        for recipe, run, wrong in runs:
            trainer = build_trainer(Job(recipe, run, corpus, 1), world, StopRequest(), lambda message: None)
            if wrong is not None and wrong.rank in (rank, ALL):
                _spoil(trainer, wrong)
            said = ""
            try:
                trainer.fit()
            except StokerError as error:
                said = str(error)
            finally:
                trainer.close()
            optimizer = trainer.step.optimizer
            tensors = [local(one.tensor.detach()) for one in trainer.step.model.held]
            tensors += [local(value) for state in optimizer.state.values() for value in state.values()]
            scale = trainer.step.loss_scale
            found.append((said, [tensor.clone() for tensor in tensors], scale and scale.state_dict()))
    return found


def _trained(corpus: Corpus, runs: list[tuple[Recipe, Path, Wrong | None]]) -> list[list[Any]]:
    return run_ranks(_fit, runs[0][0].layout.world_size, corpus.folder, runs, timeout=120)


def _events(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in Record(run / "record").events(0) if event["event"] == kind]


def _assert_same(found: Any, expected: Any) -> None:
    assert found[2] == expected[2]
    assert len(found[1]) == len(expected[1])
    assert all(torch.equal(one, other) for one, other in zip(found[1], expected[1], strict=True))


CASES: list[tuple[Layout, dict[str, Any]]] = [
    (Layout(dp_replicate=2), {"training__precision": "fp16"}),
    (Layout(dp_replicate=2, dp_shard=2, zero_stage=1), {}),
    (Layout(dp_replicate=2, tp=2), {}),
    (Layout(dp_replicate=2, pp=2), {"model__tie_embeddings": True}),
    (Layout(dp_shard=2, pp=2, pipeline_schedule="zbv"), {"model__layers": 4}),
    (Layout(dp_shard=2, cp=2), {}),
    (Layout(dp_shard=4, ep=2), {"model__moe": MIXTURE}),
    (Layout(dp_shard=2), {"training__deterministic": "across_layouts", "training__precision": "bf16"}),
]


def _a_few_of(cases: list[tuple[Layout, dict[str, Any]]]) -> list[Any]:
    """All of them, of which every commit draws three that are no `thorough` test."""
    now = drawn([str(layout) for layout, _ in cases], 3)
    return [
        pytest.param(*case, id=str(case[0]), marks=[] if str(case[0]) in now else pytest.mark.thorough)
        for case in cases
    ]


@pytest.mark.parametrize(("layout", "changes"), _a_few_of(CASES))
def test_spot_checks_change_no_bit_of_a_run(
    corpus: Corpus, tmp_path: Path, layout: Layout, changes: dict[str, Any]
) -> None:
    runs = [
        (
            _recipe(layout, training__steps=3, recovery__spot_check_every=every, **changes),
            tmp_path / f"{every}",
            None,
        )
        for every in (0, 1)
    ]
    for without, with_checks in _trained(corpus, runs):
        assert without[0] == with_checks[0] == ""
        _assert_same(with_checks, without)
    rows = [Record(run / "record") for _, run, _ in runs]
    assert rows[0].steps()["loss"].to_list() == rows[1].steps()["loss"].to_list()
    assert not _events(runs[1][1], "silent_corruption")
    if "model__moe" in changes:
        routing = [row.rows("routing").drop("sequence", "time") for row in rows]
        assert routing[0].equals(routing[1])


@pytest.mark.parametrize(
    ("layout", "backward"),
    [(Layout(dp_replicate=3), False), (Layout(dp_shard=3), True), (Layout(dp_replicate=3, pp=2), True)],
    ids=str,
)
def test_a_rank_that_computes_a_little_wrong_is_named_and_what_it_spoilt_is_done_again(
    corpus: Corpus, tmp_path: Path, layout: Layout, backward: bool
) -> None:
    """Wrong from step 3 on, which nothing checks, until it is found at step 4."""
    rank = 4 if layout.pp == 2 else 1
    wrong = Wrong(rank, (3, 4), backward)
    runs = [
        (_recipe(layout), tmp_path / "right", None),
        (_recipe(layout), tmp_path / "wrong", wrong),
    ]
    for right, spoilt in _trained(corpus, runs):
        _assert_same(spoilt, right)
    (event,) = _events(tmp_path / "wrong", "silent_corruption")
    assert event["step"] == 4
    assert event["detail"]["agreed_until"] == 2
    assert event["detail"]["verdict"] == "persistent"
    # In a pipeline the whole copy of the model computes something else where the wrong numbers go on.
    assert rank in event["detail"]["ranks"]
    assert {layout.data_parallel_rank(one) for one in event["detail"]["ranks"]} == {1}


def test_of_two_ranks_the_one_that_is_wrong_once_is_named(corpus: Corpus, tmp_path: Path) -> None:
    layout = Layout(dp_replicate=2)
    runs = [
        (_recipe(layout), tmp_path / "right", None),
        (_recipe(layout), tmp_path / "once", Wrong(0, (4,), True, times=1)),
        (_recipe(layout, checkpoint__every=100), tmp_path / "always", Wrong(0, (4,), True)),
    ]
    for right, once, always in _trained(corpus, runs):
        _assert_same(once, right)
        assert "ranks 0, 1 compute different bits" in always[0]
        assert "There is no state to go back to" in always[0]
        assert "Take the machine of rank 0, 1 out" in always[0]
    (event,) = _events(tmp_path / "once", "silent_corruption")
    assert (event["detail"]["verdict"], event["detail"]["ranks"]) == ("transient", [0])


def test_a_rank_that_goes_on_computing_wrong_numbers_ends_the_run(corpus: Corpus, tmp_path: Path) -> None:
    layout = Layout(dp_replicate=3)
    runs = [(_recipe(layout), tmp_path, Wrong(2, (4,), keeps_on=True))]
    for (result,) in _trained(corpus, runs):
        assert "rank 2 computes other bits than two others do" in result[0]
        assert "It did so before" in result[0]
    assert len(_events(tmp_path, "silent_corruption")) == 2


def test_a_gradient_that_was_wrong_once_is_put_down_to_its_rank(corpus: Corpus, tmp_path: Path) -> None:
    """Losses are right, and the gradient norm stands out; the second time nothing is wrong."""
    changes: dict[str, Any] = {"recovery__window": 8, "recovery__spot_check_every": 0, "training__steps": 14}
    layout = Layout(dp_shard=2)
    runs = [
        (_recipe(layout, **changes), tmp_path / "right", None),
        (_recipe(layout, **changes), tmp_path / "once", Wrong(1, (13,), True, factor=1e4, times=1)),
    ]
    for right, once in _trained(corpus, runs):
        _assert_same(once, right)
    (replayed,) = _events(tmp_path / "once", "replayed")
    assert (replayed["step"], replayed["detail"]["verdict"], replayed["detail"]["ranks"]) == (13, "transient", [1])
    assert replayed["detail"]["losses"][0] == replayed["detail"]["losses"][1]


def test_a_step_that_stands_out_is_computed_by_another_rank_too(corpus: Corpus, tmp_path: Path) -> None:
    """Documents that are at fault are cleared by the other rank; a rank that is, is named and gone back from."""
    layout = Layout(dp_replicate=3)
    changes: dict[str, Any] = {"recovery__window": 8, "recovery__spot_check_every": 0, "training__steps": 14}
    runs = [
        (_recipe(layout, **changes), tmp_path / "right", None),
        (_recipe(layout, **changes), tmp_path / "rank", Wrong(1, (13,), factor=300.0)),
        (_recipe(layout, **changes), tmp_path / "documents", Wrong(ALL, (13,), factor=300.0)),
    ]
    for right, wrong, cleared in _trained(corpus, runs):
        _assert_same(wrong, right)
        assert cleared[0] == ""
    (replayed,) = _events(tmp_path / "rank", "replayed")
    assert (replayed["step"], replayed["detail"]["ranks"]) == (13, [1])
    assert replayed["detail"]["verdict"] == "persistent"
    assert len(_events(tmp_path / "rank", "silent_corruption")) == 1
    (replayed,) = _events(tmp_path / "documents", "replayed")
    assert (replayed["detail"]["verdict"], replayed["detail"]["by_another_rank"]) == ("clear", True)
    assert not _events(tmp_path / "documents", "silent_corruption")


RIGHT, OFF, OTHER = Seen(1, 1), Seen(1, 2), Seen(2, 2)


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ((RIGHT, RIGHT, RIGHT, RIGHT, RIGHT), None),
        ((OFF, RIGHT, RIGHT, RIGHT, RIGHT), ("transient", (0,))),
        ((OFF, RIGHT, RIGHT, RIGHT, None), ("transient", (0,))),
        ((RIGHT, RIGHT, OFF, RIGHT, RIGHT), ("transient", (1,))),
        ((RIGHT, RIGHT, OFF, RIGHT, None), ("transient", (1,))),
        ((OFF, OFF, RIGHT, RIGHT, RIGHT), ("persistent", (0,))),
        ((OFF, OTHER, RIGHT, RIGHT, RIGHT), ("persistent", (0,))),
        ((RIGHT, RIGHT, OFF, OFF, RIGHT), ("persistent", (1,))),
        ((RIGHT, RIGHT, OFF, OTHER, RIGHT), ("persistent", (1,))),
        ((OFF, OFF, RIGHT, RIGHT, None), ("undecided", (0, 1))),
        ((OFF, OFF, RIGHT, RIGHT, OTHER), ("undecided", (0, 1, 2))),
        ((RIGHT, RIGHT, RIGHT, RIGHT, OFF), ("persistent", (2,))),
    ],
)
def test_of_several_computations_the_one_that_stands_alone_is_wrong(votes: Any, verdict: Any) -> None:
    found = judge({0: Votes(*votes)}, Layout(dp_replicate=3))
    assert (None if found is None else (found.kind, found.ranks)) == verdict


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp_replicate=2, dp_shard=2, tp=2, cp=2, pp=2),
        Layout(dp_replicate=2, dp_shard=4, ep=4),
        Layout(dp_shard=4, tp=2, ep=4, expert_tp=False),
        Layout(dp_shard=4, cp=2, ep=2),
    ],
    ids=str,
)
def test_counterparts_hold_the_same_weights_and_see_other_samples(layout: Layout) -> None:
    for rank in range(layout.world_size):
        other, at = counterpart(layout, rank, 1), layout.coordinate(rank)
        there = layout.coordinate(other)
        assert (there.pp, there.cp, there.tp) == (at.pp, at.cp, at.tp)
        assert expert_coordinate(layout, other).ep == expert_coordinate(layout, rank).ep
        assert layout.data_parallel_rank(other) != layout.data_parallel_rank(rank)
        assert counterpart(layout, other, -1) == rank
    assert layout.data_parallel_size % copies_apart(layout) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(3,), (3, 5), (2, 4), (2, 1, 2), ()], ids=str)
def test_every_bit_counts_in_a_checksum(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = int(checksum_of(tensor))
    numbers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    for place in range(tensor.numel()):
        for bit in range(8 * dtype.itemsize):
            changed = tensor.clone()
            bits = changed.view(-1)[place : place + 1].view(numbers)
            bits ^= torch.tensor(1).to(numbers) << bit
            if not changed.isnan().any():
                assert int(checksum_of(changed)) != before
    assert int(checksum_of(torch.stack([tensor] * 2))) != int(checksum_of(torch.stack([tensor, tensor + 1])))
