"""Whether the verifier finds planted bugs, names them rightly, and takes nothing else for one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.verification.catalogue import harmless, judged, summary, table
from tests.verification.harness import differences
from tests.verification.mutation import Edit, Plant, SourceHasChanged
from tests.verification.planted.bug import PlantedBug
from tests.verification.planted_bugs import BUGS, CLEAN, TWINS
from tests.verification.this_commit import drawn

_MADE_ANEW = "python -m tests.verification.catalogue"
_CHANGED = 1e-9
"""Relative difference in fp64 that no order of additions makes."""
QUICK = (
    "gradients are averaged over copies",
    "sums start before gradients are complete",
    "gradient is clipped by a rank's own norm",
    "embedding is not summed over tp",
    "gathered tokens' gradients are not summed over tp",
    "partial gradients of norms are not summed over tp",
    "largest logit is not that of all ranks",
    "initial values by place in a rank's part",
    "rotary positions of the first tokens on every cp rank",
    "ring loses the gradients that came with the keys",
)


@pytest.mark.parametrize("planted", [*BUGS, *TWINS], ids=lambda one: one.name)
def test_every_change_fits_the_source_and_is_undone(planted: PlantedBug) -> None:
    plant = pickle.loads(pickle.dumps(planted.plant))
    with plant():
        # What is changed cannot be changed in the same way again only if the file itself had been.
        pass
    with plant():
        pass


def test_a_change_that_does_not_fit_says_so() -> None:
    plant = Plant((Edit("parallel.gradients:Gradients.scale", "what is not there", ""),))
    with pytest.raises(SourceHasChanged, match="0 times 'what is not there'"), plant():
        pass


def test_the_catalogue_is_large_and_in_the_documentation() -> None:
    names = [one.name for one in (*BUGS, *TWINS)]
    assert len(set(names)) == len(names)
    assert len(BUGS) >= 66
    assert len(TWINS) >= 8
    documented = Path("docs/numerics.md").read_text().partition("The verifier verified")[2]
    missing = [one.name for one in BUGS if f"| {one.name} | {one.layout} |" not in documented]
    assert not missing, f"write the table of `{_MADE_ANEW}` into docs/numerics.md"


@pytest.mark.slow
def test_a_sample_is_caught_and_named() -> None:
    sample = [one for one in BUGS if one.name in QUICK]
    assert len(sample) == len(QUICK)
    others = drawn([one for one in BUGS if one.name not in QUICK], 8)
    verdicts = [*judged(sample, steps=1), *judged(others)]
    assert all(one.named for one in verdicts), "\n".join(table(verdicts))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_every_planted_bug_changes_what_is_trained() -> None:
    trained = [one for one in BUGS if not any("checkpoint" in change.target for change in one.changes)]
    worst = {one.name: max(differences(one.layout, one.model, one.plant).values()) for one in trained}
    assert {name: error for name, error in worst.items() if error < _CHANGED} == {}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_planted_bugs_are_caught_and_named_at_a_right_place() -> None:
    verdicts = list(judged(BUGS))
    report = "\n".join([*table(verdicts), summary(verdicts)])
    print(report)
    assert sum(one.caught for one in verdicts) >= 0.98 * len(verdicts), report
    assert sum(one.named for one in verdicts) >= 0.95 * len(verdicts), report


@pytest.mark.slow
@pytest.mark.parametrize(
    "how_many", [8, pytest.param(None, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)])]
)
def test_nothing_harmless_is_reported(how_many: int | None) -> None:
    asked = list(harmless())
    assert len(asked) == len(CLEAN) + len(TWINS)
    verdicts = list(judged(asked if how_many is None else drawn(asked, how_many)))
    alarms = [f"{one.bug.name} ({one.bug.layout}): {one.first or one.error}" for one in verdicts if one.caught]
    assert alarms == []
