"""The published rules measure what their papers define."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.filters import MEASURES, rejection
from stoker.data.filters.line_edits import edited_lines
from stoker.data.filters.text import Text
from stoker.recipe import Cleaning
from stoker.recipe.filter_names import EDITS, RuleSet

PAGE = "\n".join(
    f"The town number {i} has a market that people from {i * 3} villages visit to buy bread, and they have to "
    f"walk {i + 2} hours with their goods to the river and back."
    for i in range(6)
)
CHINESE = "\n".join(
    f"第{i}个镇子在河边，每年夏天都有很多人从附近的村子来这里赶集，买卖水果和鲜花。" for i in range(12)
)


def measure(name: str, text: str) -> float | None:
    return MEASURES[f"filter.{name}"](Text(text, "prose", None))


def reason(rules: RuleSet, text: str, language: str = "en", **more: object) -> str | None:
    return rejection(text, "prose", language, Cleaning.model_validate({"rules": [rules], **more}))


GOPHER = {
    "gopher_few_words": "The cat sat on the mat.",
    "gopher_short_words": "to be a b c d of the e f " * 6,
    "gopher_long_words": "the internationalization of misunderstandings " * 20,
    "gopher_hashes": " ".join(f"#tag{i} to the words" if i % 2 else f"and these # {i} words" for i in range(30)),
    "gopher_ellipses": " ".join(f"the waiting ... for number {i} and so on" for i in range(20)),
    "gopher_bullets": "\n".join(f"- the item of number {i} and its name" for i in range(20)),
    "gopher_ellipsis_lines": "\n".join(
        f"the item of number {i} and a long name that does not end…" for i in range(20)
    ),
    "gopher_without_letters": " ".join(f"the and {i} {i * 7} words" for i in range(1000, 1050)),
    "gopher_stop_words": " ".join(f"keyword{i} anders" for i in range(60)),
}


@pytest.mark.parametrize("name", GOPHER)
def test_gopher_drops_by_the_rule_that_is_broken(name: str) -> None:
    assert reason("gopher", GOPHER[name]) == name


STORY = """\
The town lies where two rivers meet, and for most of the year its people live from what the water brings. In spring
the boats come down from the hills with timber. By June the market has moved to the square behind the church, where
fruit is sold until late in the evening. Nobody remembers who built the bridge. An old woman told me that her
grandfather had helped to carry the stones, but the date over the arch is older than that. In winter, when ice
closes the harbour, the children skate to school and the ferryman mends nets beside his stove.
"""


def test_gopher_keeps_a_page_and_says_nothing_of_words_in_chinese() -> None:
    assert reason("gopher", STORY) is None
    assert measure("spaced_words", CHINESE) is None
    assert measure("repeated_5_words_share", CHINESE) is None


@given(st.lists(st.sampled_from(["aa", "b", "cc"]), min_size=1, max_size=30), st.integers(2, 4))
def test_the_commonest_run_of_words_covers_what_counting_says(words: list[str], size: int) -> None:
    text = " ".join(words)
    runs = Counter(" ".join(words[i : i + size]) for i in range(len(words) - size + 1))
    most = max(runs.values(), default=0)
    covered = {most * len(run) for run, count in runs.items() if count == most} if most > 1 else {0}
    found = measure(f"commonest_{size}_words_share", text)
    assert found is not None
    assert round(found * len(text)) in covered


@given(st.lists(st.sampled_from(["aa", "b", "cc"]), min_size=1, max_size=40), st.integers(5, 10))
def test_repeated_runs_cover_what_marking_each_word_says(words: list[str], size: int) -> None:
    text, seen, covered = " ".join(words), set(), [False] * len(words)
    for i in range(len(words) - size + 1):
        run = tuple(words[i : i + size])
        if run in seen:
            covered[i : i + size] = [True] * size
        seen.add(run)
    expected = sum(len(word) for word, mark in zip(words, covered, strict=True) if mark)
    assert measure(f"repeated_{size}_words_share", text) == pytest.approx(expected / len(text))


@given(st.text(st.sampled_from([*"thebowianv.…", " ", "\n", "\u2003"]), min_size=1).map(" the of {} And".format))
def test_stop_words_and_ellipses_are_counted_as_cutting_into_words_and_lines_says(text: str) -> None:
    words = {"the", "be", "to", "of", "and", "that", "have", "with"}
    assert measure("english_stop_words", text) == len(words & set(text.lower().split()))
    everything = text + " with that have to be and of the "
    assert measure("english_stop_words", everything) == len(words)
    ends = [line.rstrip().endswith(("...", "…")) for line in text.split("\n") if line.strip()]
    assert measure("ellipsis_line_share", text) == sum(ends) / len(ends)


@given(st.lists(st.sampled_from(["one", "two", " two ", "", "three。"]), min_size=1, max_size=20))
def test_repeated_lines_are_those_that_stood_before(lines: list[str]) -> None:
    own = [line.strip() for line in lines if line.strip()]
    if not own:
        return
    repeated = [line in own[:i] for i, line in enumerate(own)]
    assert measure("duplicate_line_share", "\n".join(lines)) == pytest.approx(sum(repeated) / len(own))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Lorem ipsum dolor sit amet. One. Two. Three. Four. Five words here are enough.", "c4_lorem_ipsum"),
        ("int main() { return 0; }. One two three. Two. Three. Four. Five ends here.", "c4_curly_bracket"),
        ("One sentence is here. Here is another one.", "c4_few_sentences"),
        ("One is here. Two is here. Three is here. Four is here. Five is here.", None),
        ("第一句。第二句！第三句？第四句。第五句。", None),
    ],
)
def test_c4_drops_pages_by_its_rules(text: str, expected: str | None) -> None:
    assert reason("c4", text) == expected


EDITED = {
    "c4_line_end": "A line without a full stop at its end",
    "c4_line_words": "Read more.",
    "c4_line_long_word": "A " + "x" * 1001 + " is no word.",
    "c4_line_javascript": "Please switch JavaScript on.",
    "c4_line_policy": "By going on you agree to the Privacy Policy.",
}


@pytest.mark.parametrize("name", EDITED)
def test_c4_cuts_lines_and_each_cut_can_be_switched_off(name: str) -> None:
    text = f"The first line is kept.\n{EDITED[name]}\nThe last line is kept."
    assert edited_lines(text, EDITS) == "The first line is kept.\nThe last line is kept."
    assert edited_lines(text, tuple(edit for edit in EDITS if edit != name)) == text


def test_c4_cuts_marks_of_citations() -> None:
    text = "It is old [1] and said to be haunted[citation needed]."
    assert edited_lines(text, EDITS) == "It is old  and said to be haunted."


def test_what_c4_cuts_is_out_of_the_document_and_an_empty_rest_is_dropped() -> None:
    assert reason("c4", "Home\nAbout us\nContact") == "empty"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n".join(f"menu entry {i} with a long name of its own" for i in range(20)), "fineweb_line_ends"),
        (PAGE + "\n" + PAGE, "fineweb_line_characters"),
        ("\n".join(f"Short line {i}." for i in range(20)), "fineweb_short_lines"),
        (PAGE, None),
    ],
)
def test_fineweb_drops_by_the_lines(text: str, expected: str | None) -> None:
    assert reason("fineweb", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("太短了。", "chinesewebtext_short"),
        ("\n".join(f"菜单{i}" for i in range(100)), "chinesewebtext_lines"),
        (PAGE, "chinesewebtext_han"),
        ("今天天气真好我们一起去公园里玩吧。" * 20, "chinesewebtext_repetition"),
        (CHINESE[:400] if len(CHINESE) > 400 else CHINESE, "chinesewebtext_repetition"),
    ],
)
def test_chinesewebtext_drops_by_its_figures(text: str, expected: str | None) -> None:
    assert reason("chinesewebtext", text, "zh") == expected


def test_fineweb2_drops_chinese_by_lines_and_stop_words() -> None:
    assert (
        reason("fineweb2_chinese", "\n".join(f"菜单第{i}项的名称" for i in range(20)), "zh") == "fineweb2_line_ends"
    )
    assert reason("fineweb2_chinese", (CHINESE + "\n") * 2, "zh") == "fineweb2_lines"
    assert reason("fineweb2_chinese", "苹果香蕉葡萄西瓜。", "zh") == "fineweb2_stop_words"
    assert reason("fineweb2_chinese", CHINESE, "zh") is None


def test_published_rules_are_for_prose_alone() -> None:
    for rules in ("gopher", "c4", "fineweb"):
        for kind in ("code", "mathematics", "dialogue"):
            assert rejection("x = {1: 2}", kind, "en", Cleaning(rules=(rules,))) is None  # type: ignore[arg-type]


def test_the_full_stop_of_chinese_mathematics_ends_a_line_and_a_sentence() -> None:
    text = "因而算法可以看作就是在计算这样一个稳定化子链．\n每一步都只用到前面的结果．"
    assert edited_lines(text, ("c4_line_end",)) == text
    assert MEASURES["filter.sentences"](Text(text, "prose")) == 2
    assert MEASURES["filter.sentence_line_share"](Text(text, "prose")) == 1
