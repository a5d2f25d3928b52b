"""Folding tables: one code point to one, closed, and what they bring together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stoker.data.minhash import code_points
from stoker.data.script.folding import CODE_POINTS, Table, folding_table, simplified_table


def folded(text: str) -> str:
    return "".join(map(chr, folding_table()[code_points(text)]))


@pytest.mark.parametrize("table", [simplified_table, folding_table])
def test_folding_twice_is_folding_once(table: Callable[[], Table]) -> None:
    once = table()
    assert once.shape == (CODE_POINTS,)
    assert np.array_equal(once[once], once)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("後來發現，計算機網絡很複雜", "后来发现,计算机网络很复杂"),
        ("后来发现，计算机网络很复杂", "后来发现,计算机网络很复杂"),
        ("ＡＢＣ　１２３％", "abc 123%"),
        ("ﾊﾝｶｸ", "ハンカク"),
        ("ÉCOLE Привет ΣΊΣΥΦΟΣ", "école привет σίσυφοσ"),
        ("x² ½ ﬁ ㎏", "x² ½ ﬁ ㎏"),
    ],
)
def test_script_case_and_width_are_folded_and_nothing_else(written: str, expected: str) -> None:
    assert folded(written) == expected


def test_only_han_characters_change_script() -> None:
    table = simplified_table()
    changed = np.flatnonzero(table != np.arange(CODE_POINTS))
    assert len(changed) > 3000
    assert all(0x3400 <= code_point <= 0x9FFF or code_point >= 0x20000 for code_point in changed)
