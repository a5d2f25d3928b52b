"""Figures of activations, attention and logits: what they are, the same in every layout, and never felt."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from stoker.layout import Layout
from stoker.parallel import (
    Inputs,
    ParallelModel,
    Settings,
    World,
    attention_figures,
    join_world,
    single_process_world,
)
from stoker.parallel.activations import Activations
from stoker.parallel.compilation import compile_block
from stoker.parallel.placement import local
from stoker.recipe.memory import OPERATIONS, Recomputation
from tests.distributed import run_ranks
from tests.parallel import parity

pytestmark = pytest.mark.slow

Found = dict[str, dict[str, float]]
DENSE = ["grouped queries", "one key head, odd width", "q/k norm of all heads", "gpt", "alibi, capped"]
OTHERS = ["latent attention", "experts, sigmoid, shared, full", "further tokens"]


def _batches(world: World, size: int) -> list[Inputs]:
    share = parity.SEQUENCES // world.layout.data_parallel_size
    first = world.data_parallel_rank * share
    return [
        Inputs(*(None if x is None else x[at : at + size] for x in parity.inputs()))  # type: ignore[arg-type]
        for at in range(first, first + share, size)
    ]


def _step(case: str, world: World, size: int, settings: Settings, look: bool) -> tuple[list[Tensor], Found]:
    model = parity.laid_out(case, world, torch.float64, settings)
    model.train()
    activations = Activations(model)
    if look:
        with activations.looking():
            _pass(model, world, size)
        found = activations.take()
    else:
        _pass(model, world, size)
        found = {}
    held = [one.tensor.grad for one in model.held if one.is_parameter]
    return [local(gradient).clone() for gradient in held if gradient is not None], found


def _pass(model: ParallelModel, world: World, size: int) -> None:
    model.forward_backward(_batches(world, size), step=3, seed=1, loss_scale=0.01)


def _whole(case: str) -> Found:
    """With all samples in one micro-batch, all of which are looked at."""
    attention_figures.SEQUENCES = parity.SEQUENCES
    world = single_process_world(parity.CPU)
    return _step(case, world, parity.SEQUENCES, Settings(), look=True)[1]


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    before = attention_figures.SEQUENCES
    yield
    attention_figures.SEQUENCES = before


@pytest.mark.parametrize("case", [*DENSE, *OTHERS])
def test_looking_changes_no_bit_whatever_is_recomputed(case: str) -> None:
    world = single_process_world(parity.CPU)
    expected, _ = _step(case, world, 2, Settings(), look=False)
    seen, figures = _step(case, world, 2, Settings(), look=True)
    assert all(map(torch.equal, seen, expected))
    layers = range(4 + 2)
    for recomputed in (frozenset(OPERATIONS), frozenset({"feed_forward", "experts"}), frozenset({"attention"})):
        settings = Settings(recompute=Recomputation(dict.fromkeys(layers, recomputed)))
        again, same = _step(case, world, 2, settings, look=True)
        assert all(map(torch.equal, again, expected)), recomputed
        assert same == figures, recomputed


def test_figures_are_those_of_a_plain_computation() -> None:
    case, world = "grouped queries", single_process_world(parity.CPU)
    attention_figures.SEQUENCES = parity.SEQUENCES
    model = parity.laid_out(case, world, torch.float64, Settings())
    part, whole = model.part, parity.inputs()
    with torch.no_grad():  # three units that nothing moves, and attention that is not even
        part.blocks["1"].get_submodule("feed_forward.up").weight[[0, 7, 39]] = 0.0
        part.blocks["2"].get_submodule("attention.query").weight.mul_(40.0)
        part.blocks["2"].get_submodule("attention.key").weight.mul_(40.0)
    kept: dict[str, Tensor] = {}
    handles = [
        part.get_submodule(name).register_forward_hook(
            lambda m, i, out, name=name: kept.__setitem__(name, out.detach())
        )
        for name in ("embedding", "norm", "blocks.2", "blocks.3.attention", "blocks.0.feed_forward")
    ]
    q, k = [], []
    attend = part.blocks["2"].get_submodule("attention").attend

    def keep(*args: Any) -> Tensor:
        q.append(args[0].detach())
        k.append(args[1].detach())
        return attend(*args)

    part.blocks["2"].get_submodule("attention").attend = keep
    activations = Activations(model)
    with activations.looking():
        _pass(model, world, parity.SEQUENCES)
    found = activations.take()
    for handle in handles:
        handle.remove()
    for name, output in kept.items():
        assert found[name]["output_rms"] == pytest.approx(float(output.square().mean().sqrt()), rel=1e-9), name
        assert found[name]["output_largest"] == pytest.approx(float(output.abs().max()), rel=1e-9), name
    logits = kept["norm"] @ part.head_weight.detach().T
    assert found["head"]["logit_rms"] == pytest.approx(float(logits.square().mean().sqrt()), rel=1e-9)
    assert found["head"]["logit_largest"] == pytest.approx(float(logits.max()), rel=1e-9)
    assert found["blocks.1.feed_forward"]["dead_units"] == pytest.approx(3 / 40)
    assert found["blocks.0.feed_forward"]["dead_units"] == 0.0
    largest, entropies = -torch.inf, []
    assert whole.documents is not None
    for sample in range(parity.SEQUENCES):
        for place in range(parity.LENGTH):
            alike = whole.documents[sample, : place + 1] == whole.documents[sample, place]
            for head in range(6):
                keys = k[0][sample, : place + 1, head // 3][alike]
                own = keys @ q[0][sample, place, head] / 4**0.5
                largest = max(largest, float(own.max()))
                if len(own) > 1:
                    shares = own.softmax(0)
                    entropies.append(float(-(shares * shares.log()).sum() / torch.tensor(float(len(own))).log()))
    assert found["blocks.2.attention"]["attention_logit"] == pytest.approx(largest, rel=1e-9)
    assert found["blocks.2.attention"]["attention_entropy"] == pytest.approx(
        sum(entropies) / len(entropies), rel=1e-6
    )
    assert found["blocks.2.attention"]["attention_entropy"] < found["blocks.3.attention"]["attention_entropy"]


def _on_rank(rank: int, ranks: int, store: Any, layout: Layout, cases: list[str]) -> list[tuple[bool, Found]]:
    torch.set_num_threads(1)
    found = []
    with join_world(layout, rank, parity.CPU, store, 60) as world:
        for case in cases:
            size = parity.SEQUENCES // layout.data_parallel_size
            attention_figures.SEQUENCES = parity.SEQUENCES
            if layout.pp > 1:  # as many micro-batches as the schedule wants
                expected, _ = _step(case, world, size // 4, Settings(), look=False)
                seen, _ = _step(case, world, size // 4, Settings(), look=True)
            else:
                expected, _ = _step(case, world, size, Settings(), look=False)
                seen, _ = _step(case, world, size, Settings(), look=True)
            _, figures = _step(case, world, size, Settings(), look=True)
            found.append((all(map(torch.equal, seen, expected)), figures))
    return found


@pytest.mark.parametrize(
    ("layout", "cases"),
    [
        (Layout(tp=2), [*DENSE, *OTHERS]),
        (Layout(cp=2), [*DENSE, OTHERS[0]]),
        (Layout(cp=2, cp_method="ulysses"), DENSE[:1]),
        (Layout(pp=2), [DENSE[0], *OTHERS]),
        (Layout(dp_shard=2), [DENSE[0], OTHERS[1]]),
        (Layout(dp_replicate=2), DENSE[:1]),
        (Layout(dp_shard=2, ep=2), OTHERS[1:2]),
    ],
    ids=str,
)
def test_every_layout_tells_the_figures_of_one_process_and_changes_no_bit(layout: Layout, cases: list[str]) -> None:
    expected = [_whole(case) for case in cases]
    for results in run_ranks(_on_rank, layout.world_size, layout, cases, timeout=200):
        for case, (same, figures), reference in zip(cases, results, expected, strict=True):
            assert same, case
            assert figures.keys() == reference.keys(), case
            for module, fields in reference.items():
                assert figures[module] == pytest.approx(fields, rel=1e-6), (case, module)


def test_of_compiled_blocks_the_outside_is_seen_and_no_bit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced_only(block: torch.nn.Module, share: float) -> None:
        compile_block(block, share, backend="aot_eager")

    monkeypatch.setattr(sys.modules["stoker.parallel.apply"], "compile_block", traced_only)
    world, settings = single_process_world(parity.CPU), Settings(compile_blocks=True)
    expected, _ = _step("grouped queries", world, 4, settings, look=False)
    seen, figures = _step("grouped queries", world, 4, settings, look=True)
    assert all(map(torch.equal, seen, expected))
    assert figures.keys() == {"embedding", "norm", "head", *(f"blocks.{layer}" for layer in range(4))}
    plain = _step("grouped queries", world, 4, Settings(), look=True)[1]
    for module, fields in figures.items():
        assert fields == pytest.approx(plain[module], rel=1e-9), module
