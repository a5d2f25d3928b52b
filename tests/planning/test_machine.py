"""Looking at this machine, and the table of published figures."""

from __future__ import annotations

import math

import psutil
import pytest
import torch

import stoker.planning.machine
from stoker.planning import accelerators, look_at_machine, make_plan, measure_machine
from tests.planning.machines import RATES
from tests.planning.test_memory import recipe_of


def test_measuring_changes_nothing_and_gives_possible_rates() -> None:
    recipe = recipe_of(
        {"hidden_size": 64, "layers": 2, "heads": 4, "ffn_hidden_size": 160, "dropout": 0.1, "layer_drop": 0.1},
        threads=1,
        device="cpu",
    )
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    machine = measure_machine(recipe, 300)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert machine.device == "cpu"
    assert machine.threads == 1
    assert 0 < machine.available_bytes <= machine.memory_bytes <= psutil.virtual_memory().total
    assert 0 < machine.runtime_bytes < machine.memory_bytes
    rates = machine.rates
    for name, value in rates.model_dump(exclude={"matmuls"}).items():
        assert math.isfinite(value), name
        assert value > 1e6, name
    assert rates.matmul_flops_per_second >= max(known.flops_per_second for known in rates.matmuls)
    plan = make_plan(recipe, 300, machine)
    assert plan.mfu is not None
    assert 0 < plan.mfu <= 1


def test_large_models_are_measured_on_a_small_likeness() -> None:
    recipe = recipe_of(
        {"hidden_size": 4096, "layers": 2, "heads": 32, "kv_heads": 8, "ffn_hidden_size": 14336},
        threads=1,
        device="cpu",
        sequence_length=4096,
    )
    machine = measure_machine(recipe, 32000)
    plan = make_plan(recipe, 32000, machine)
    assert 0 < plan.step_seconds.total < math.inf


def test_every_accelerator_in_the_table_has_a_source() -> None:
    table = accelerators()
    assert len(table) >= 15
    for name, entry in table.items():
        assert name == entry.device_name.casefold()
        assert entry.source
        assert entry.fp16_tflops is not None
        assert entry.peak_flops_per_second("fp32") is None
    assert table["tesla v100-sxm2-16gb"].peak_flops_per_second("bf16") is None
    assert table["nvidia h200"].peak_flops_per_second("pure_bf16") == 989e12


def test_looking_measures_nothing_and_measuring_keeps_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(
        {"hidden_size": 64, "layers": 2, "heads": 4, "ffn_hidden_size": 160}, threads=1, device="cpu"
    )
    monkeypatch.setattr(stoker.planning.machine, "measure_rates", lambda *_: RATES)
    hardware = look_at_machine(recipe)
    assert not hasattr(hardware, "rates")
    machine = measure_machine(recipe, 300, hardware)
    assert machine == machine.model_copy(update=dict(hardware))
