"""Mixtures that change over a run: nothing is lost or repeated at a boundary, and the past stays as it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.feeding.mixture import Mixture
from stoker.data.feeding.staged_mixture import StagedMixture
from stoker.data.feeding.stages import Segment, same_until, samples_in_run, segments_of
from stoker.errors import BadInput
from stoker.recipe import Recipe

NAMES = ("a", "b", "c")
TOKENS = {"a": 40_000, "b": 10_000, "c": 1_000}


def recipe_with(mixture: dict[str, Any], steps: int = 100, batch: int = 4, **training: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "small",
            "data": {"sources": [{"name": name, "paths": ["text"]} for name in NAMES], "mixture": mixture},
            "model": {"hidden_size": 8, "layers": 1, "heads": 2, "ffn_hidden_size": 16},
            "training": {"steps": steps, "sequence_length": 8, "global_batch_size": batch, **training},
        }
    )


def staged(mixture: dict[str, Any], **training: Any) -> StagedMixture:
    return StagedMixture(segments_of(recipe_with(mixture, **training), TOKENS))


tables = st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(0, 40).map(lambda n: n / 10))).filter(
    lambda table: any(table.values())
)
stages = st.lists(
    st.tuples(st.integers(1, 60), tables, st.sampled_from(["jump", "linear"])), min_size=1, max_size=4
)


def written(drawn: list[tuple[int, dict[str, float], str]]) -> dict[str, Any]:
    """Drawn stages as a recipe's."""
    ends = sorted(end for end, _, _ in drawn)[:-1]
    return {
        "stages": [
            {"weights": table, "change": change, **({"until": end} if end is not None else {})}
            for end, (_, table, change) in zip([*ends, None], drawn, strict=True)
        ]
    }


@given(stages)
def test_every_source_is_numbered_through_without_a_gap_over_all_stages(
    drawn: list[tuple[int, dict[str, float], str]],
) -> None:
    mixture = staged(written(drawn))
    sources, numbers = mixture.locate(np.arange(500))
    seen: Counter[int] = Counter()
    for place, (source, number) in enumerate(zip(sources.tolist(), numbers.tolist(), strict=True)):
        assert number == seen[source]
        seen[source] += 1
        if place % 37 == 0:
            assert mixture.count_before(place + 1).tolist() == [seen[i] for i in range(len(NAMES))]


@given(stages, st.integers(0, 400))
def test_any_sample_is_found_without_those_before_it(
    drawn: list[tuple[int, dict[str, float], str]], sample: int
) -> None:
    mixture = staged(written(drawn))
    whole = mixture.locate(np.arange(sample + 50))
    alone = mixture.locate(np.arange(sample, sample + 50))
    assert all((one[sample:] == other).all() for one, other in zip(whole, alone, strict=True))


@given(stages)
def test_shares_are_exact_over_whole_patterns_within_each_stage(
    drawn: list[tuple[int, dict[str, float], str]],
) -> None:
    jumps = [(end, table, "jump") for end, table, _ in drawn]
    mixture = staged(written(jumps))
    bounds = [segment.first_sample for segment in mixture.segments] + [10**6]
    for segment, first, after in zip(mixture.segments, bounds, bounds[1:], strict=False):
        length = sum(segment.counts)
        for begin in range(first, min(after, first + 5 * length) - length + 1, length):
            sources, _ = mixture.locate(np.arange(begin, begin + length))
            assert np.bincount(sources, minlength=3).tolist() == list(segment.counts)


@given(stages, stages, st.integers(1, 60))
def test_another_future_changes_no_sample_of_the_past(
    drawn: list[tuple[int, dict[str, float], str]],
    others: list[tuple[int, dict[str, float], str]],
    step: int,
) -> None:
    past = written([(min(end, step), *rest) for end, *rest in drawn])["stages"]
    past[-1]["until"] = step
    future = written([(end + step, *rest) for end, *rest in others])["stages"]
    one = segments_of(recipe_with({"stages": [*past, {"weights": {"a": 1.0}}]}), TOKENS)
    other = segments_of(recipe_with({"stages": [*past, *future]}), TOKENS)
    samples = 4 * step
    assert same_until(one, other, samples)
    places = np.arange(samples)
    found = [StagedMixture(parts).locate(places) for parts in (one, other)]
    assert all((left == right).all() for left, right in zip(*found, strict=True))


@given(tables, tables)
def test_whether_two_mixtures_have_the_same_past_is_told_right(
    table: dict[str, float], other: dict[str, float]
) -> None:
    parts = [
        segments_of(recipe_with({"stages": [{"until": 10, "weights": own}, {"weights": {"a": 1.0}}]}), TOKENS)
        for own in (table, other)
    ]
    sources = [StagedMixture(part).locate(np.arange(40))[0] for part in parts]
    if same_until(*parts, 40):
        assert (sources[0] == sources[1]).all()
    elif (sources[0] == sources[1]).all():  # the same so far, and not for ever
        assert any(sum(part[0].counts) > 40 for part in parts)


@given(tables, tables, st.integers(1, 300), st.integers(1, 9))
def test_a_linear_change_takes_what_lies_under_the_line(
    begin: dict[str, float], end: dict[str, float], steps: int, batch: int
) -> None:
    mixture = staged(
        {"stages": [{"until": 20, "weights": begin}, {"weights": end, "change": "linear"}]},
        steps=20 + steps,
        batch=batch,
    )
    first = 20 * batch
    shares = [np.array([table[name] for name in NAMES]) / sum(table.values()) for table in (begin, end)]
    taken = mixture.count_before(first + steps * batch) - mixture.count_before(first)
    # What the last piece cannot make up for: half a thousandth of its samples, and a pattern cut short.
    piece = batch * -(-steps // 100)
    assert np.abs(taken - steps * batch * (shares[0] + shares[1]) / 2).max() < 3 + piece / 1000
    half = steps // 2
    middle = mixture.count_before(first + half * batch) - mixture.count_before(first)
    passed = half / steps
    line = half * batch * ((1 - passed / 2) * shares[0] + passed / 2 * shares[1])
    assert np.abs(middle - line).max() < 3 + piece


def test_a_stage_without_weights_goes_on_as_if_there_were_no_boundary() -> None:
    one = segments_of(recipe_with({}), TOKENS)
    two = segments_of(recipe_with({"stages": [{"until": 0.5}, {"weights": "tokens"}]}), TOKENS)
    assert [part.counts for part in two] == [part.counts for part in one]
    assert len(two) == 1


def test_boundaries_follow_a_batch_that_grows() -> None:
    ramp = [{"step": 5, "global_batch_size": 16}]
    mixture = staged({"stages": [{"until": 6, "weights": {"a": 1.0}}, {"weights": {"b": 1.0}}]}, batch_ramp=ramp)
    assert [segment.first_sample for segment in mixture.segments] == [0, 4 * 4 + 2 * 16]


@pytest.mark.parametrize("until", [40, 0.4])
def test_a_share_of_the_steps_is_the_step_it_comes_to(until: float) -> None:
    parts = segments_of(
        recipe_with({"stages": [{"until": until, "weights": {"a": 1}}, {"weights": {"b": 1}}]}), TOKENS
    )
    assert [part.first_step for part in parts] == [1, 41]


def test_a_stage_that_a_short_run_does_not_reach_changes_nothing() -> None:
    mixture = {"stages": [{"until": 50, "weights": {"a": 1}}, {"weights": {"b": 1}}]}
    short = StagedMixture(segments_of(recipe_with(mixture, steps=20), TOKENS))
    assert short.count_before(20 * 4).tolist() == [80, 0, 0]


def test_samples_after_the_run_are_told_by_source_and_number() -> None:
    mixture = staged({"stages": [{"until": 10, "weights": {"a": 3, "b": 1}}, {"weights": {"a": 1, "b": 2}}]})
    samples = np.arange(400, 700)
    sources, numbers = mixture.locate(samples)
    for source in (0, 1):
        assert (mixture.samples_of(source, numbers[sources == source]) == samples[sources == source]).all()
    with pytest.raises(ValueError, match="outside the last segment"):
        mixture.samples_of(2, np.array([0]))


# most_epochs


def test_more_repeats_than_allowed_are_refused_with_their_price() -> None:
    mixture = {"stages": [{"weights": {"a": 0.5, "c": 0.5}}], "most_epochs": 1.5}
    with pytest.raises(BadInput) as caught:
        segments_of(recipe_with(mixture, steps=200, batch=4), TOKENS)
    # 400 sequences of 8 tokens from 1,000: R = 2.2, and 1,000 (1 + R* (1 - exp(-R / R*))) = 3,050 tokens
    assert (
        "c: 3.20 epochs, but most_epochs is 1.5; 3,200 tokens drawn from 1,000 are worth 3,050, 4.7% less"
        in str(caught.value)
    )
    assert "train fewer steps" in str(caught.value)
    assert "a:" not in str(caught.value)


@given(tables, st.floats(0.1, 3), st.integers(1, 5))
def test_what_is_over_is_shared_and_no_source_exceeds_its_epochs(
    table: dict[str, float], cap: float, batch: int
) -> None:
    recipe = recipe_with(
        {"stages": [{"until": 60, "weights": table}, {"weights": "tokens"}], "most_epochs": cap,
         "when_exceeded": "share"},
        steps=120, batch=batch,
    )  # fmt: skip
    allowed = [cap * own / 8 for own in TOKENS.values()]
    try:
        mixture = StagedMixture(segments_of(recipe, TOKENS))
    except BadInput:
        in_first = sum(own for own, weight in zip(allowed, table.values(), strict=True) if weight)
        assert in_first < 60 * batch + 3 or sum(allowed) < 120 * batch + 6
        return
    taken = mixture.count_before(samples_in_run(recipe))
    # A pattern that is cut short has its shares to within a sample; and so in each of two stages.
    assert (taken <= np.array(allowed) + 2).all()


def test_what_is_over_goes_to_the_others_in_their_proportion() -> None:
    mixture = {
        "stages": [{"weights": {"a": 0.2, "b": 0.2, "c": 0.6}}],
        "most_epochs": {"c": 1},
        "when_exceeded": "share",
    }
    taken = staged(mixture, steps=250).count_before(1000)
    assert taken.tolist() == [437, 438, 125] or taken.tolist() == [438, 437, 125]


def test_sources_that_are_used_up_altogether_are_refused() -> None:
    mixture = {"stages": [{"weights": {"c": 1}}], "most_epochs": 1, "when_exceeded": "share"}
    with pytest.raises(BadInput, match="from step 1 on, most_epochs leaves 125 of the 400 sequences"):
        staged(mixture)


def test_a_recipe_with_stages_has_a_hash() -> None:
    mixture = {"stages": [{"until": 10, "weights": {"a": 1}}, {}], "most_epochs": {"a": 90}}
    assert hash(recipe_with(mixture)) == hash(recipe_with(mixture)) != hash(recipe_with({}))


def test_without_stages_the_pattern_is_that_of_the_weights() -> None:
    recipe = recipe_with({})
    (segment,) = segments_of(recipe, TOKENS)
    assert isinstance(segment, Segment)
    assert segment.counts == Mixture([40, 10, 1]).counts
