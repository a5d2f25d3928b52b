"""Broken nodes against the queues whose steady states are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stoker.planning.reliability.description import RunDescription
from stoker.planning.reliability.process import process_of
from stoker.planning.reliability.spares import broken_nodes, share_in_use


def _run(**fields: object) -> RunDescription:
    return RunDescription.model_validate({"accelerators": 80000, **fields})


def test_the_number_broken_is_a_poisson_variable_while_nodes_abound() -> None:
    process = process_of(_run(spares={"count": 200, "repair_hours": 24}))
    chain = broken_nodes(process, breaking=5 / 86400)
    expected = [math.exp(-5) * 5**k / math.factorial(k) for k in range(15)]
    assert chain.probability[:15] == pytest.approx(expected, rel=1e-6)
    assert chain.waiting == 0
    assert chain.running_speed == 1


def test_a_run_without_spares_waits_as_long_as_a_replacement_takes() -> None:
    process = process_of(_run(spares={"count": 0, "repair_hours": 8784, "replace_hours": 1}))
    chain = broken_nodes(process, breaking=1 / 86400)
    assert chain.waiting == pytest.approx(1 - math.exp(-1 / 24), rel=0.01)


def test_waiting_ends_sooner_when_it_is_noticed_late() -> None:
    process = process_of(_run(spares={"count": 3, "repair_hours": 24}))
    chain = broken_nodes(process, breaking=5 / 86400)
    assert chain.waiting_after(0) == chain.waiting
    assert chain.waiting_after(3600) < chain.waiting


@pytest.mark.parametrize(
    ("mode", "missing", "share"),
    [
        ("fixed", 0, 1),
        ("fixed", 1, 0),
        ("shrink", 1, 7 / 8),
        ("shrink", 4, 7 / 8),
        ("shrink", 5, 6 / 8),
        ("shrink", 20, 3 / 8),
        ("shrink", 21, 0),
        ("per_step", 1, 7 / 8),
        ("per_step", 5, 3 / 8),
        ("per_step", 6, 0),
    ],
)
def test_groups_that_train_with_nodes_missing(mode: str, missing: int, share: float) -> None:
    run = RunDescription.model_validate(
        {"accelerators": 256, "replicas": {"count": 8, "mode": mode, "minimum": 3}, "spares": {"count": 1}}
    )
    assert share_in_use(process_of(run), np.array([missing])) == [share]
