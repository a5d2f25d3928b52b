"""Documents that repeat themselves are found by their tokens, whatever the loss does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.diagnosis.repeated_text import find_repeated_text, repetitions
from stoker.diagnosis.text_at import Stretch, evenly

STEPS, SAMPLES = 120, 12
Tokens = npt.NDArray[np.int64]


class _Drawn:
    """A run whose samples are drawn tokens; those in `bad` are one phrase over and over."""

    def __init__(
        self, bad: set[int], usual: float = 0.02, steps: int = STEPS, samples: int = SAMPLES, seed: int = 3
    ) -> None:
        draw = np.random.default_rng(seed)
        self._samples = samples
        self._ids = draw.integers(0, 400, (steps * samples, 60))
        for sample in [*bad, *np.flatnonzero(draw.random(steps * samples) < usual).tolist()]:
            self._ids[sample] = np.resize(self._ids[sample, :7], 60)

    def spans(self, step: int) -> list[Any]:
        first = (step - 1) * self._samples
        return [SimpleNamespace(sample=n, source="s", document=n) for n in range(first, first + self._samples)]

    def stretches(self, step: int, most: int) -> list[Stretch]:
        return [Stretch(span, self._ids[span.sample]) for span in evenly(self.spans(step), most)]

    def names(self, wanted: Any) -> list[str]:
        return [f"{source}/{document}" for source, document in wanted]


def _found(bad: set[int], steps: int = STEPS, **drawn: Any) -> list[Any]:
    return find_repeated_text(_Drawn(bad, steps=steps, **drawn), np.arange(1, steps + 1))  # type: ignore[arg-type]


def test_steps_whose_documents_repeat_themselves_are_named_with_their_documents() -> None:
    bad = {*range(70 * SAMPLES, 70 * SAMPLES + 6), *range(71 * SAMPLES, 71 * SAMPLES + 7)}
    (finding,) = _found(bad)
    assert (finding.kind, finding.cause, finding.severity) == ("repeated_data", "repeated_text", "warning")
    assert (finding.first_step, finding.last_step) == (71, 72)
    assert bad <= {sample for sample, _ in finding.documents}
    assert f"s/{min(bad)}" in finding.names


def test_sources_that_repeat_themselves_now_and_then_are_not() -> None:
    assert _found(set()) == []


def test_of_steps_with_thousands_of_stretches_enough_are_read_to_find_those_that_stand_out() -> None:
    """20 steps of 1,000: where 10,000 were all that is read there would be too few to compare."""
    first = 12 * 1000
    (finding,) = _found({*range(first, first + 300)}, steps=20, samples=1000)
    assert (finding.first_step, finding.last_step, finding.severity) == (13, 13, "warning")
    assert {sample for sample, _ in finding.documents} >= {*range(first, first + 300)}
    assert _found(set(), steps=20, samples=1000) == []


@given(st.integers(0, 3000), st.integers(1, 2000))
def test_of_many_stretches_a_part_lies_evenly_among_them(count: int, most: int) -> None:
    spans: Any = range(count)
    read: Any = evenly(spans, most)
    assert len(read) == min(count, most)
    assert read[:1] == [0][:count]
    apart = count / max(len(read), 1)
    assert {after - before for before, after in pairwise(read)} <= {math.floor(apart), math.ceil(apart)}


@pytest.mark.parametrize(("samples", "looked_at", "of_each"), [(50, 200, 500), (700, 64, 1562), (9000, 64, 1562)])
def test_how_much_is_read_has_a_bound_whatever_the_batch(samples: int, looked_at: int, of_each: int) -> None:
    asked: list[int] = []

    class Large(_Drawn):
        def stretches(self, step: int, most: int) -> list[Stretch]:
            asked.append(most)
            return []

    text = Large(set(), steps=1, samples=samples)
    assert find_repeated_text(text, np.arange(1, 1001)) == []  # type: ignore[arg-type]
    assert asked == [of_each] * looked_at
    assert looked_at * min(of_each, samples) <= 100_000


def _by_sets(ids: Sequence[int]) -> float:
    """The rule as it is said: how many 4-grams of tokens came before in the same stretch."""
    seen, again = set(), 0
    for place in range(len(ids) - 3):
        gram = tuple(ids[place : place + 4])
        again += gram in seen
        seen.add(gram)
    return again / max(len(ids) - 3, 1)


@given(
    st.lists(st.lists(st.integers(0, 3) | st.sampled_from([2**17, 2**20 - 1]), max_size=40), min_size=0, max_size=8)
)
def test_repetition_is_the_share_of_runs_of_four_that_came_before_in_the_same_stretch(
    drawn: list[list[int]],
) -> None:
    found = repetitions([np.array(ids, dtype=np.int64) for ids in drawn])
    assert found.tolist() == pytest.approx([_by_sets(ids) for ids in drawn])


def _plainly(text: _Drawn, steps: int) -> list[tuple[int, int]]:
    """The rule of `find_repeated_text` with everything read: the stretches of steps that stand out."""
    repetitive = [
        sum(_by_sets(one.ids.tolist()) > 0.4 for one in text.stretches(s + 1, 10**6)) for s in range(steps)
    ]

    def score(step: int, usual: float) -> float:
        share, size = repetitive[step] / SAMPLES, SAMPLES
        if share <= usual:
            return -math.inf
        rest = (1 - share) * math.log((1 - share) / (1 - usual)) if share < 1 else 0.0
        return size * (share * math.log(share / usual) + rest) - math.log(steps)

    def usual_of(counts: Sequence[int]) -> float:
        return (sum(counts) + 1) / (SAMPLES * len(counts) + 2)

    most = sorted(repetitive)[: math.ceil(0.9 * steps)]
    out = [step for step in range(steps) if score(step, usual_of(most)) >= 3]
    groups: list[list[int]] = []
    for step in out:
        if groups and groups[-1][-1] == step - 1:
            groups[-1].append(step)
        else:
            groups.append([step])
    others = [[one for step, one in enumerate(repetitive) if not group[0] <= step <= group[-1]] for group in groups]
    return [
        (group[0] + 1, group[-1] + 1)
        for group, rest in zip(groups, others, strict=True)
        if max(score(step, usual_of(rest)) for step in group) >= 3
    ]


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.1]), st.integers(0, 20), st.integers(1, 3), st.data())
@settings(max_examples=10, deadline=None)
def test_where_all_is_read_the_verdict_is_that_of_the_plain_rule(
    seed: int, usual: float, first: int, length: int, data: st.DataObject
) -> None:
    steps = 24
    bad = {
        step * SAMPLES + place
        for step in range(first, min(first + length, steps))
        for place in range(data.draw(st.integers(0, SAMPLES)))
    }
    text = _Drawn(bad, usual, steps, seed=seed)
    found = find_repeated_text(text, np.arange(1, steps + 1))  # type: ignore[arg-type]
    assert [(one.first_step, one.last_step) for one in found] == _plainly(text, steps)
