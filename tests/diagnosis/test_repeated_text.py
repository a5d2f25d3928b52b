"""Documents that repeat themselves are found by their tokens, whatever the loss does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stoker.diagnosis.repeated_text import find_repeated_text, repetition
from stoker.diagnosis.text_at import Stretch

STEPS, SAMPLES = 120, 12


class _Drawn:
    """A run whose samples are drawn tokens; those in `bad` are one phrase over and over."""

    def __init__(self, bad: set[int], usual: float = 0.02) -> None:
        draw = np.random.default_rng(3)
        self._ids = draw.integers(0, 400, (STEPS * SAMPLES, 60))
        for sample in range(STEPS * SAMPLES):
            if sample in bad or draw.random() < usual:
                self._ids[sample] = np.resize(self._ids[sample, :7], 60)

    def spans(self, step: int) -> list[Any]:
        first = (step - 1) * SAMPLES
        return [SimpleNamespace(sample=n, source="s", document=n) for n in range(first, first + SAMPLES)]

    def stretches(self, step: int) -> list[Stretch]:
        return [Stretch(span, self._ids[span.sample]) for span in self.spans(step)]

    def names(self, wanted: Any) -> list[str]:
        return [f"{source}/{document}" for source, document in wanted]


def _found(bad: set[int]) -> list[Any]:
    return find_repeated_text(_Drawn(bad), np.arange(1, STEPS + 1))  # type: ignore[arg-type]


def test_steps_whose_documents_repeat_themselves_are_named_with_their_documents() -> None:
    bad = {*range(70 * SAMPLES, 70 * SAMPLES + 6), *range(71 * SAMPLES, 71 * SAMPLES + 7)}
    (finding,) = _found(bad)
    assert (finding.kind, finding.cause, finding.severity) == ("repeated_data", "repeated_text", "warning")
    assert (finding.first_step, finding.last_step) == (71, 72)
    assert bad <= {sample for sample, _ in finding.documents}
    assert f"s/{min(bad)}" in finding.names


def test_sources_that_repeat_themselves_now_and_then_are_not() -> None:
    assert _found(set()) == []


@pytest.mark.parametrize(("ids", "share"), [([1, 2, 3], 0.0), ([1, 2, 3, 4] * 10, 33 / 37), (list(range(40)), 0.0)])
def test_repetition_is_the_share_of_runs_of_four_that_came_before(ids: list[int], share: float) -> None:
    assert repetition(np.array(ids)) == pytest.approx(share)
