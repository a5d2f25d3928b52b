"""Rules are data: every one has a measure, a name the recipe knows, and a threshold that can be changed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.decontamination import CONTAMINATED
from stoker.data.document import Document
from stoker.data.filters import MEASURES, RULE_SETS, Filters
from stoker.data.filters.line_edits import CITATIONS, LINE_EDITS
from stoker.data.filters.rule import OWN, Rule, adjusted, judge
from stoker.data.operators.filtering import Filter
from stoker.data.unsafe import UNSAFE
from stoker.recipe import Cleaning, Kind, Source, filter_names
from stoker.recipe.filter_names import EDITS, RULES

EVERY_RULE = [rule for rules in RULE_SETS.values() for rule in rules]
PAGE = Rule("page", "filter.x", "above", 2.0, ("prose",), ("zh",), OWN, "too much x")


def document(text: str, kind: Kind = "prose", language: str | None = None) -> Document:
    return Document("s", kind, language, "1", "f", "file", text)


def filter_of(kind: Kind = "prose", language: str | None = None, **cleaning: object) -> Filter:
    source = Source(name="s", kind=kind, language=language, paths=("x",))
    return Filter.of(source, Cleaning.model_validate(cleaning))


def test_the_recipe_knows_every_reason_and_no_other() -> None:
    assert {name: tuple(dict.fromkeys(rule.reason for rule in rules)) for name, rules in RULE_SETS.items()} == RULES
    assert set(EDITS) == {*LINE_EDITS, CITATIONS}
    assert (UNSAFE.reason, CONTAMINATED.reason) == (filter_names.UNSAFE, filter_names.CONTAMINATED)
    every = [*EDITS, *(name for names in RULES.values() for name in names)]
    assert len(every) == len(set(every))


def test_every_measure_is_asked_by_a_rule_and_every_rule_has_its_measure() -> None:
    assert {rule.measure for rule in EVERY_RULE} == set(MEASURES)


def test_a_reason_has_one_rule_for_each_kind_and_language() -> None:
    seen = set()
    for rule in EVERY_RULE:
        for place in [(rule.reason, kind, tag) for kind in rule.kinds for tag in rule.languages or ("",)]:
            assert place not in seen
            seen.add(place)


def test_a_rule_drops_beyond_its_threshold_and_keeps_at_it() -> None:
    assert judge({"filter.x": 2.1}, [PAGE]) == "page"
    assert judge({"filter.x": 2.0}, [PAGE]) is None
    assert judge({}, [PAGE]) is None


@pytest.mark.parametrize(("language", "asked"), [("zh", True), ("zh-TW", True), ("zh_Hant", True), ("en", False)])
def test_a_rule_for_a_language_covers_its_variants(language: str, asked: bool) -> None:
    assert PAGE.concerns("prose", language) is asked
    assert not PAGE.concerns("prose", None)
    assert not PAGE.concerns("code", language)


def test_thresholds_are_changed_and_rules_are_switched_off_by_reason() -> None:
    (changed,) = adjusted([PAGE], {"page": 3.0}, ())
    assert judge({"filter.x": 2.5}, [changed]) is None
    assert adjusted([PAGE], {}, ["page"]) == ()


MARKED_UP = "<p><b>Some</b> <i>text</i></p> and then words that follow, which are plain and many enough."


def test_a_changed_threshold_decides_otherwise_on_the_same_measure() -> None:
    usual = filter_of()(document(MARKED_UP))
    strict = filter_of(thresholds={"markup": 0.1})(document(MARKED_UP))
    without = filter_of(thresholds={"markup": 0.1}, off=["markup"])(document(MARKED_UP))
    assert (usual.reason, strict.reason, without.reason) == (None, "markup", None)
    assert usual.measures["filter.markup_share"] == strict.measures["filter.markup_share"] > 0.1
    assert "filter.markup_share" not in without.measures


@given(
    text=st.text(min_size=1, max_size=400).filter(lambda text: not text.isspace()),
    kind=st.sampled_from(["prose", "code", "mathematics", "dialogue"]),
    language=st.sampled_from([None, "en", "zh"]),
)
def test_measures_are_finite_declared_and_decide_alone(text: str, kind: Kind, language: str | None) -> None:
    own = filter_of(kind, language, rules=list(RULE_SETS))
    outcome = own(document(text, kind, language))
    assert set(outcome.measures) <= set(own.measures)
    assert all(math.isfinite(value) for value in outcome.measures.values())
    if outcome.document.text.strip():
        assert outcome.reason == judge(outcome.measures, own.rules_for(language)[0])
        assert outcome.reason is None or outcome.reason in own.reasons


def test_without_filters_nothing_is_measured_or_edited() -> None:
    own = Filters(Cleaning(filters=False, rules=("c4",)))
    assert (own.rules, own.edits) == ((), ())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"thresholds": {"markups": 0.5}}, "did you mean `markup`"),
        ({"off": ["no_function_word"]}, "did you mean `no_function_words`"),
        ({"off": ["qqqqqq"]}, "docs/filters.md"),
        ({"thresholds": {"c4_line_end": 0.5}, "rules": ["c4"]}, "no rule has the reason `c4_line_end`"),
        ({"thresholds": {"gopher_lines": 0.5}}, "no effect without `gopher` in data.cleaning.rules"),
        ({"off": ["c4_citations"]}, "no effect without `c4` in data.cleaning.rules"),
        ({"off": ["markup"], "filters": False}, "no effect without data.cleaning.filters: true"),
        ({"thresholds": {"unsafe": 0.5}}, "no effect without data.cleaning.unsafe: drop"),
        ({"thresholds": {"contaminated": 0.5}}, "no effect without data.cleaning.decontaminate.paths"),
        ({"thresholds": {"markup": math.inf}}, "finite"),
        ({"rules": ["stoker", "stoker"]}, "named twice"),
        ({"off": ["markup", "markup"]}, "named twice"),
    ],
)
def test_a_wrong_name_is_refused_with_the_one_that_was_meant(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cleaning.model_validate(wrong)
