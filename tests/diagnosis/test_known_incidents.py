"""Incidents of public runs are found, with the right kind and within three rows of where they began."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stoker.diagnosis import Finding, RunRows, find_all

CURVES = Path(__file__).parent / "curves"
HEALTHY = ("slow-fp32", "mixtral-8x7b")


def rows_of_curve(name: str) -> RunRows:
    return RunRows(table=pl.read_csv(CURVES / f"{name}.csv", infer_schema_length=None))


def found_above_note(name: str) -> list[Finding]:
    return [finding for finding in find_all(rows_of_curve(name)) if finding.severity != "note"]


@pytest.mark.parametrize(
    ("name", "kind", "severity", "first_step", "spacing"),
    [
        ("tr1-13B", "spike", "warning", 29050, 10),
        ("tr11-176B", "spike", "warning", 31215, 1),
        ("blowup-bf16", "divergence", "alarm", 2600, 200),
        ("blowup-fp16", "loss_scale_collapse", "alarm", 1600, 200),
    ],
)
def test_a_known_incident_is_the_only_finding_above_a_note(
    name: str, kind: str, severity: str, first_step: int, spacing: int
) -> None:
    (finding,) = found_above_note(name)
    assert (finding.kind, finding.severity) == (kind, severity)
    assert finding.first_step is not None
    assert abs(finding.first_step - first_step) <= 3 * spacing


def test_the_evidence_of_the_176b_spike_begins_with_the_gradients() -> None:
    (finding,) = found_above_note("tr11-176B")
    measures = [evidence.measure for evidence in finding.evidence]
    assert measures[0] == "gradient norm"
    assert measures.index("gradient norm") < measures.index("loss")
    peak = finding.evidence[measures.index("largest gradient norm")]
    assert (peak.observed, peak.step) == (960.351, 31219)


def test_a_spike_says_when_it_had_recovered() -> None:
    (finding,) = found_above_note("tr11-176B")
    (recovered,) = [one for one in finding.evidence if one.measure == "loss when it had recovered"]
    assert recovered.step == 31250


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_curve_has_nothing_above_a_note(name: str) -> None:
    assert found_above_note(name) == []


def test_short_spikes_of_a_healthy_curve_are_notes_with_their_steps() -> None:
    spikes = {finding.first_step for finding in find_all(rows_of_curve("mixtral-8x7b")) if finding.kind == "spike"}
    assert {3800, 3850, 4260} <= spikes
