"""False alarms over drawn runs without incident, and how often planted incidents are found."""

from __future__ import annotations

import pytest

from stoker.diagnosis import Finding, find_all
from tests.diagnosis.drawn_curves import PLANTED, draw_run

pytestmark = pytest.mark.slow
CLEAN = 120
ROWS = 1200
DRAWN = 4
STRONG = {
    "spike": 0.8,
    "divergence": 0.8,
    "step_drop": 0.4,
    "plateau": 1.0,
    "nan": 1,
    "gradient_growth": 100,
    "throughput_drop": 1.5,
    "stall": 200,
    "memory_growth": 0.3,
    "source_drift": 0.4,
}


def found_in(seed: int, kind: str, strength: float) -> tuple[list[Finding], int, int]:
    """The findings, the step at which the incident was planted, and the steps from row to row."""
    plant, kinds, _ = PLANTED[kind]
    run = draw_run(seed, ROWS)
    at = plant(run, strength)
    found = [finding for finding in find_all(run.as_rows()) if finding.kind in kinds]
    steps = run.columns["step"]
    return found, int(steps[at]), int(steps[1] - steps[0])


def test_at_most_two_of_a_hundred_runs_without_incident_have_anything_above_a_note() -> None:
    alarmed = {
        seed: [(finding.severity, finding.kind) for finding in find_all(draw_run(seed, ROWS).as_rows())
               if finding.severity != "note"]
        for seed in range(CLEAN)
    }  # fmt: skip
    alarmed = {seed: findings for seed, findings in alarmed.items() if findings}
    assert len(alarmed) <= 0.02 * CLEAN, alarmed


@pytest.mark.parametrize("kind", STRONG)
def test_a_strong_incident_is_found_in_every_drawn_run(kind: str) -> None:
    for seed in range(10_000, 10_000 + DRAWN):
        found, _, _ = found_in(seed, kind, STRONG[kind])
        assert found, seed


@pytest.mark.parametrize("kind", ["spike", "step_drop", "nan", "gradient_growth", "stall"])
def test_a_sudden_incident_is_found_within_three_rows(kind: str) -> None:
    for seed in range(10_000, 10_000 + DRAWN):
        found, step, spacing = found_in(seed, kind, STRONG[kind])
        assert any(abs((finding.first_step or 0) - step) <= 3 * spacing for finding in found), seed
