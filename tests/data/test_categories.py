"""Tables made from categories are those that every code point would be asked for one by one."""

from __future__ import annotations

import unicodedata

import numpy as np

from stoker.data.categories import FIRST_PLANES, are_in, code_points_in
from stoker.data.filters.scanning import classes
from stoker.data.language.alphabets import BLANK, DIGIT, HANGUL, NEW_LINE, alphabet_table, plain_table
from stoker.data.normal_form import EXPANDED, folded, normal_form

_CHARACTERS = [chr(code_point) for code_point in range(FIRST_PLANES)]


def test_a_category_is_named_whole_or_by_its_initial() -> None:
    expected = [unicodedata.category(one) == "Nd" or unicodedata.category(one)[0] == "S" for one in _CHARACTERS]
    assert are_in(("Nd", "S")).tolist() == expected
    assert code_points_in(("Nd", "S")) == np.flatnonzero(expected).tolist()


def test_the_plain_form_of_a_character_is_what_python_says_of_it() -> None:
    def plain(character: str) -> int:
        if character.isspace():
            return NEW_LINE if character in "\n\r\x0b\x0c\u2028\u2029" else BLANK
        lower = character.lower()
        return DIGIT if character.isdigit() else ord(lower) if len(lower) == 1 else ord(character)

    assert plain_table()[:FIRST_PLANES].tolist() == [plain(one) for one in _CHARACTERS]


def test_a_character_is_folded_as_its_compatibility_form_without_case_is() -> None:
    def normal(character: str) -> str:
        return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())

    first_planes = np.arange(FIRST_PLANES, dtype=np.uint32)
    single = [ord(one) if len(one) == 1 else number for number, one in enumerate(map(normal, _CHARACTERS))]
    assert folded(first_planes).tolist() == single
    several = [number for number, one in enumerate(map(normal, _CHARACTERS)) if len(one) != 1]
    assert np.flatnonzero(normal_form().entries[:FIRST_PLANES] >= EXPANDED).tolist() == several


def test_syllables_of_hangul_are_of_its_alphabet_and_letters_of_a_script_with_spaces() -> None:
    hangul = [ord(one) for one in _CHARACTERS if unicodedata.name(one, "").startswith("HANGUL SYLLABLE")]
    assert set(alphabet_table()[hangul].tolist()) == {HANGUL}
    assert len(set(classes()[hangul].tolist())) == 1
