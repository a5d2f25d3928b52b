"""Two texts side by side: shown is what differs, and nothing that does not count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.data.minhash import token_hashes
from stoker.data.side_by_side import Place, differences

TEXTS = st.text(st.sampled_from("ab cdé天氣气,.-+ \u200bＡß\n"), max_size=40)


@given(TEXTS, TEXTS)
def test_texts_differ_where_the_search_for_duplicates_sees_other_tokens(first: str, second: str) -> None:
    equal = token_hashes(first).tolist() == token_hashes(second).tolist()
    simplified = first.replace("氣", "气"), second.replace("氣", "气")
    same = equal or token_hashes(simplified[0]).tolist() == token_hashes(simplified[1]).tolist()
    assert (differences(first, second).count == 0) == same


@given(st.lists(st.sampled_from(["one", "two", "three", "four", "五", "六"]), max_size=30), st.data())
def test_a_changed_word_is_shown_in_its_place(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words)))
    for inserted in ("unheard", "闻"):
        changed = [*words[:at], inserted, *words[at:]]
        found = differences(" ".join(words), " ".join(changed))
        assert found.count == 1
        (place,) = found.places
        assert inserted in place.second
        assert place.first == ""
        back = differences(" ".join(changed), " ".join(words)).places[0]
        assert (back.first, back.second) == (inserted, "")


def test_case_width_script_spacing_and_punctuation_do_not_count() -> None:
    assert differences("今天天氣很好, ABC!", "今天天气很好 ａｂｃ").count == 0


def test_long_stretches_are_shortened_and_surroundings_shown() -> None:
    found = differences("begin " + "x " * 500 + "end", "begin end")
    assert found.count == 1
    assert found.places[0].before == "begin "
    assert found.places[0].behind == " end"
    assert len(found.places[0].first) < 140
    assert " … " in found.places[0].first
    assert differences("a b c", "a d c").places == (Place("a ", "b", "d", " c"),)


def test_of_very_long_texts_the_beginnings_are_compared() -> None:
    text = "".join(f"word{n} " for n in range(60_000))
    found = differences(text, text.replace("word5 ", "other ") + "and more")
    assert (found.count, found.whole) == (1, False)
