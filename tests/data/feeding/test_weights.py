"""Rules that give sources their weights, held against the papers' formulas and against what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.feeding.weights import difficulty, table_of, temperature, unimax
from stoker.errors import BadInput
from tests.data.feeding.test_staged_mixture import TOKENS, recipe_with

corpora = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 10**12), min_size=1)


def shares_of(weights: dict[str, float]) -> dict[str, float]:
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


@given(corpora)
def test_temperature_goes_from_the_same_share_for_all_to_shares_by_tokens(tokens: dict[str, int]) -> None:
    even, by_tokens = (shares_of(temperature(tokens, alpha)) for alpha in (0.0, 1.0))
    for name, own in tokens.items():
        assert even[name] == pytest.approx(1 / len(tokens))
        assert by_tokens[name] == pytest.approx(own / sum(tokens.values()), rel=1e-7)


def test_temperature_is_the_power_of_the_tokens() -> None:
    assert shares_of(temperature({"a": 16, "b": 1}, 0.5)) == pytest.approx({"a": 0.8, "b": 0.2})


@given(corpora, st.integers(1, 10**13), st.floats(0.1, 20))
def test_unimax_passes_over_no_source_too_often_and_is_as_even_as_that_allows(
    tokens: dict[str, int], budget: int, cap: float
) -> None:
    drawn = {
        name: share * budget
        for name, share in shares_of(unimax(tokens, budget, dict.fromkeys(tokens, cap))).items()
    }
    allowed = {name: cap * own for name, own in tokens.items()}
    if sum(allowed.values()) < budget:
        for name in tokens:
            assert drawn[name] == pytest.approx(budget * tokens[name] / sum(tokens.values()), rel=1e-6)
        return
    most = max(drawn.values())
    for name in tokens:
        assert drawn[name] <= allowed[name] * (1 + 1e-6)
        assert drawn[name] == pytest.approx(min(allowed[name], most), rel=1e-6)


@given(st.dictionaries(st.sampled_from("abcdefg"), st.floats(0, 12), min_size=2), st.floats(-2, 2))
def test_difficulty_weighs_by_a_power_of_the_perplexity(losses: dict[str, float], exponent: float) -> None:
    found = shares_of(difficulty(dict.fromkeys(losses, 1.0), losses, {}, exponent))
    perplexities = np.exp(np.array(list(losses.values()))) ** exponent
    assert list(found.values()) == pytest.approx((perplexities / perplexities.sum()).tolist(), rel=1e-6)


def test_only_loss_above_a_reference_counts_and_a_source_below_it_counts_as_there() -> None:
    losses, reference = {"a": 3.0, "b": 5.0, "c": 1.0}, {"a": 2.0, "b": 5.0, "c": 2.0}
    found = difficulty({"a": 1.0, "b": 1.0, "c": 2.0}, losses, reference, 1.0)
    assert shares_of(found) == pytest.approx({name: part / (math.e + 3) for name, part in
                                              {"a": math.e, "b": 1.0, "c": 2.0}.items()})  # fmt: skip


def test_a_source_of_weight_zero_is_left_out_by_every_rule() -> None:
    recipe = recipe_with({"most_epochs": 9, "weights": "unimax"})
    sources = [
        source.model_copy(update={"weight": 0.0 if source.name == "b" else 1.0}) for source in recipe.data.sources
    ]
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"sources": tuple(sources)})})
    for rule in ("given", "tokens", "temperature", "unimax"):
        found = table_of(recipe, TOKENS, rule)
        assert found[1] == 0
        assert found[0] > 0 < found[2]
    with pytest.raises(BadInput, match="no source with training tokens"):
        table_of(recipe, {"a": 0, "b": 10, "c": 0}, "tokens")
