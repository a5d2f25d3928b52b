"""The page says of every field that may change under an existing run that it may, and of no other."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from stoker.recipe.differences import Difference
from stoker.recipe.fields import every_key

_PAGE = Path(__file__).parents[2] / "docs" / "train.md"


def test_the_page_names_the_fields_that_may_change_and_no_other() -> None:
    section = _PAGE.read_text(encoding="utf-8").partition("Free to change:")[2].partition("\n## ")[0]
    told = [name for row in section.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    keys = [key for key in every_key() if "[" not in key]
    free = {key for key in keys if Difference(key, 1, 2).freedom is not None}
    assert "alerts.enabled" in free
    assert "model.layers" not in free
    assert {key for key in keys if any(fnmatchcase(key, name) for name in told)} == free
