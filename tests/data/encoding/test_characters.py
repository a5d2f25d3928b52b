"""Code points are in the sets that the library's regular expressions say."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers

from stoker.data.encoding import characters as module
from stoker.data.encoding.characters import classes_of
from stoker.data.encoding.recognition import GPT2_PATTERN
from stoker.data.encoding.split_pattern import UnreadablePattern, alternatives_of
from stoker.data.text_pieces import PATTERN
from tests.data.encoding.tokenizers_made import LLAMA_3, O200K

ALL = np.asarray([*range(0xD800), *range(0xE000, 0x110000)])


def sets_of(pattern: str) -> list[str]:
    alternatives = alternatives_of(pattern)
    rows = [*alternatives, *(then for one in alternatives for then in one.then)]
    found = [repeat.characters for one in rows for repeat in one.repeats]
    return list(dict.fromkeys([*found, *(one.unless for one in rows if one.unless is not None)]))


EVERY_SET = list(
    dict.fromkeys(one for pattern in (PATTERN, GPT2_PATTERN, LLAMA_3, O200K) for one in sets_of(pattern))
)


@pytest.mark.slow
@pytest.mark.parametrize("characters", [one for one in EVERY_SET if len(one) > 1 and one != r"\S"])
def test_every_code_point_is_in_its_sets_and_in_no_other(characters: str) -> None:
    """All of Unicode, also where nothing is assigned, which is not looked at one by one when classes are made."""
    outside = pre_tokenizers.Split(Regex(f"(?:{characters})+"), "removed")
    members = np.ones(len(ALL), np.bool_)
    for _, (start, stop) in outside.pre_tokenize_str("".join(map(chr, ALL.tolist()))):
        members[start:stop] = False
    assert np.array_equal(module._members(characters)[ALL], members)


def test_classes_tell_the_sets_apart() -> None:
    classes, bits = classes_of([r"\p{L}", r"\s", "a", r"[^\s]"])
    for code, inside in {"a": r"\p{L} a [^\s]", "b": r"\p{L} [^\s]", " ": r"\s", "1": r"[^\s]"}.items():
        found = {one for one, own in bits.items() if own >> int(classes[ord(code)]) & 1}
        assert found == set(inside.split())


def test_what_is_no_set_or_divides_unassigned_characters_is_refused() -> None:
    with pytest.raises(UnreadablePattern, match="no set"):
        classes_of([r"[\p{Nothing}]"])
    with pytest.raises(UnreadablePattern, match="does not assign"):
        classes_of([r"[\x{50000}-\x{50010}]"])
