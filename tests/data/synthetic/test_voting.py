"""Voting: which answers are the same, who wins, and what becomes of every row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.synthetic.voting import REASONS, Rules, normalised, vote
from stoker.errors import BadInput


def rows(*answers: str, prompt: str = "p") -> list[dict[str, Any]]:
    return [{"prompt": prompt, "text": text, "model": f"m{place % 2}"} for place, text in enumerate(answers)]


def reasons(texts: list[dict[str, Any]], **given: Any) -> list[str | None]:
    return [one.reason for one in vote(texts, Rules(**given))]


def test_the_answer_with_most_votes_is_kept_once() -> None:
    found = vote(rows("so #### 12", "#### 12.0", "#### 13", "I do not know"), Rules())
    assert [one.reason for one in found] == [None, "repeats_the_winner", "outvoted", "no_answer"]
    assert (found[0].answer, found[0].votes, found[0].of, found[0].models) == ("12", 2, 4, 2)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("#### 1", "#### 2"), "a tie"),
        (("#### 1", "#### 1", "#### 2", "#### 2"), "a tie of two"),
        (("#### 1",), "too few votes"),
        (("#### 1", "#### 1", "#### 2", "#### 3", "#### 4"), "too small a share"),
    ],
)
def test_without_enough_agreement_nothing_is_kept(texts: tuple[str, ...], why: str) -> None:
    assert set(reasons(rows(*texts))) == {"no_agreement"}, why


def test_prompts_are_judged_apart() -> None:
    mixed = rows("#### 1", "#### 1", prompt="a") + rows("#### 1", "#### 2", prompt="b")
    mixed = [mixed[0], mixed[2], mixed[3], mixed[1]]
    assert reasons(mixed) == [None, "no_agreement", "no_agreement", "repeats_the_winner"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First 3, then 4. #### 1,200", "1200"),
        (r"thus $x = \boxed{\frac{1}{2}}$ holds", r"\frac{1}{2}"),
        ("We get 7.\nThe answer is 42.", "42"),
        ("计算可得。\n答案是：１２", "12"),
        ("There are 5 apples and 6 pears, 11 in all.", "11"),
        ("The final answer is: $3.50", "3.5"),
        ("Answer: Paris.", "paris"),
    ],
)
def test_answers_are_found_where_they_are_marked(text: str, answer: str) -> None:
    assert vote(rows(text), Rules())[0].answer == answer


def test_an_own_pattern_says_what_the_answer_is() -> None:
    texts = rows("<a>yes</a> 1", "<a>Yes</a> 2", "<a>no</a> 3")
    assert reasons(texts, pattern="<a>(.*?)</a>") == [None, "repeats_the_winner", "outvoted"]


def test_texts_that_say_much_the_same_agree() -> None:
    same = "The river runs through the old town and under the stone bridge to the sea"
    texts = rows(
        same, f"{same} today", "Quite another story about mountains and the snow that lies on them all year"
    )
    assert reasons(texts, by="text") == [None, "repeats_the_winner", "outvoted"]
    assert reasons(texts, by="text", similarity=1.0) == ["no_agreement"] * 3
    assert reasons(rows("", ""), by="text") == ["no_answer"] * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [("1,200", "1200.00"), ("$5", "5"), ("１２", "12"), ("1e3", "1000"), ("Paris.", " paris"), ("**x  y**", "x y")],
)
def test_the_same_answer_in_other_words_is_the_same(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize("answer", ["1e999999999", "-1E+400000", "9" * 5000, "1e-99999999999999999999"])
def test_a_number_that_would_fill_the_memory_is_compared_as_text(answer: str) -> None:
    assert normalised(answer) == answer.casefold()
    assert vote(rows(f"#### {answer}", f"#### {answer}"), Rules())[0].votes == 2


def test_numbers_are_compared_in_all_their_digits() -> None:
    assert normalised("1234567890123456789012345678901") != normalised("1234567890123456789012345678902")


def test_a_text_of_nothing_but_digits_is_answered_in_time() -> None:
    assert vote(rows(f"{'1' * 200_000} and 7 more"), Rules())[0].answer == "7"


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="not a regular expression: missing"):
        vote(rows("x"), Rules(pattern="("))


@pytest.mark.parametrize(
    ("one", "other"), [("1.2", "12"), ("-3", "3"), ("1,2", "12"), ("0.5", "5"), ("x+1", "x-1")]
)
def test_another_answer_stays_another(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["#### 1", "#### 2", "none"])), max_size=20))
def test_of_a_prompt_one_row_at_most_is_kept_and_every_row_has_a_fate(pairs: list[tuple[str, str]]) -> None:
    texts = [{"prompt": prompt, "text": text} for prompt, text in pairs]
    found = vote(texts, Rules())
    assert [one.row for one in found] == texts
    for prompt in "ab":
        own = [one for one in found if one.row["prompt"] == prompt]
        assert sum(one.reason is None for one in own) <= 1
        assert all(one.reason is None or one.reason in REASONS for one in own)
        assert all(one.of == len(own) for one in own)
