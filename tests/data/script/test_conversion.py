"""Conversion between the scripts: phrases decide, and what is in the wanted script already stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.script.characters import script_characters
from stoker.data.script.conversion import Script, converted, half_width
from stoker.data.script.detection import scripts_of

# One simplified character stands for several traditional ones: only the word tells which.
PAIRS = [
    ("头发变长，事业发展", "頭髮變長，事業發展"),
    ("皇后来了以后", "皇后來了以後"),
    ("面条的面子", "麪條的面子"),
    ("干净的树干，干部不干涉", "乾淨的樹幹，幹部不干涉"),
    ("台风过后的舞台", "颱風過後的舞臺"),
    ("只有一只猫的系统和关系", "只有一隻貓的系統和關係"),
    ("复习复杂的课", "複習複雜的課"),
    ("山谷里的谷物发霉", "山谷裏的穀物發黴"),
    ("松树边很轻松", "松樹邊很輕鬆"),
    ("词汇和汇款", "詞彙和匯款"),
]
CHARACTERS = st.sampled_from([*"的一是 ,。A1\nかア", *sorted(script_characters().only_simplified)[:400]]) | (
    st.sampled_from(sorted(script_characters().simplified)[:1500])
)


@pytest.mark.parametrize(("simplified", "traditional"), PAIRS)
def test_phrases_decide_between_the_characters_of_the_other_script(simplified: str, traditional: str) -> None:
    assert converted(simplified, "traditional") == traditional
    assert converted(traditional, "simplified") == simplified


@pytest.mark.parametrize(("simplified", "traditional"), PAIRS)
def test_text_in_the_wanted_script_stays(simplified: str, traditional: str) -> None:
    assert converted(simplified, "simplified") == simplified
    assert converted(traditional, "traditional") == traditional


def test_each_line_is_judged_by_itself_and_a_line_that_does_not_tell_follows_the_text() -> None:
    mixed = "這個問題說來話長\n皇后在里面\n这个问题说来话长\n皇后里面干"
    assert converted(mixed, "simplified").split("\n") == [
        "这个问题说来话长",
        "皇后在里面",
        "这个问题说来话长",
        "皇后里面干",
    ]
    mostly_simplified = "这个问题说来话长，关系复杂\n這個問題\n里面"
    assert converted(mostly_simplified, "traditional").split("\n") == [
        "這個問題說來話長，關係複雜",
        "這個問題",
        "裏面",
    ]


def test_japanese_keeps_its_characters_in_its_own_text_and_in_a_line_of_another() -> None:
    japanese = "彼は學校の圖書館で發展について讀んだ。"
    assert converted(japanese, "simplified") == japanese
    text = f"{'這是一個關於語言發展歷史的說明，內容很長。' * 5}\n{japanese}"
    assert converted(text, "simplified") == f"{'这是一个关于语言发展历史的说明，内容很长。' * 5}\n{japanese}"


@given(st.text(CHARACTERS, max_size=40), st.sampled_from(["simplified", "traditional"]))
def test_all_but_chinese_characters_and_the_shape_of_the_text_stay(text: str, wanted: Script) -> None:
    after = converted(text, wanted)
    assert after.count("\n") == text.count("\n")
    assert [c for c in after if c < "\u3400"] == [c for c in text if c < "\u3400"]


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=60))
def test_counts_of_scripts_are_of_the_text(text: str) -> None:
    found = scripts_of(text)
    characters = script_characters()
    assert found.simplified == sum(c in characters.only_simplified for c in text)
    assert found.traditional == sum(c in characters.only_traditional for c in text)
    assert found.han >= found.simplified + found.traditional


def test_letters_and_digits_become_half_width_and_punctuation_stays() -> None:
    assert half_width("ＡＢＣ１２３，「ｘ＝１」！（％）") == "ABC123，「x＝1」！（％）"
