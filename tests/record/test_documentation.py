"""docs/record.md names every field of every kind of row, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stoker.recipe.operation import Telemetry
from stoker.record.rows import KINDS

TEXT = (Path(__file__).parents[2] / "docs" / "record.md").read_text(encoding="utf-8")


def _sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _fields_told(kind: str) -> set[str]:
    title, text = next(
        (title, text) for title, text in _sections().items() if f"`{kind}`" in title.partition(":")[0]
    )
    first_table = text.split("| field | unit | what it is |")[1].partition("\n\n")[0]
    told: set[str] = set()
    for line in first_table.splitlines():
        if line.startswith("| `"):
            told.update(re.findall(r"`([a-z_]+)`", line.split("|")[1]))
    assert told, title
    return told


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("evaluation", "sample")])
def test_every_field_of_a_kind_of_row_is_documented_and_no_other(kind: str) -> None:
    assert _fields_told(kind) == set(KINDS[kind])


def test_evaluations_and_samples_share_a_table() -> None:
    assert _fields_told("sample") == set(KINDS["evaluation"]) | set(KINDS["sample"])


def test_every_kind_of_row_has_a_section() -> None:
    titles = " ".join(_sections())
    assert all(f"`{kind}`" in titles for kind in KINDS)


def test_what_says_how_much_is_recorded_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", _sections()["How much is recorded"], flags=re.MULTILINE)
    assert {name: float(default) for name, default in rows} == {
        name: float(field.default) for name, field in Telemetry.model_fields.items()
    }
