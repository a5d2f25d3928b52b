"""The share of synthetic text: refused where weights decide it, capped where size does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.data.ledger import Ledger
from stoker.data.prepare import prepare
from stoker.errors import BadInput
from stoker.progress import Silent
from tests.data.small_corpus import SOURCES, small_recipe, write_text_files


def sources(**given: Any) -> list[dict[str, Any]]:
    return [{**one, **({"synthetic": True} if one["name"] == "english" else {}), **given} for one in SOURCES]


def test_synthetic_text_is_capped_at_its_share_with_a_reason(tmp_path: Path) -> None:
    write_text_files(tmp_path / "text")
    loaded = small_recipe(tmp_path, sources=sources(), synthetic_share_at_most=0.3)
    corpus = prepare(loaded, Silent())
    rows = Ledger(corpus.folder).rows().collect().to_dicts()
    dropped = [row for row in rows if row["reason"] == "over_synthetic_share"]
    assert dropped
    assert {row["source"] for row in dropped} == {"english"}
    assert {row["stage"] for row in dropped} == {"selection"}
    sizes = {one["name"]: one["splits"]["train"]["bytes"] for one in corpus.manifest["sources"]}
    share = sizes["english"] / sum(sizes.values())
    assert share <= 0.3
    smallest = min(row["bytes"] for row in dropped)
    assert (sizes["english"] + 3 * smallest) / (sum(sizes.values()) + 3 * smallest) > 0.3


def test_weights_over_the_share_are_refused_and_those_within_drop_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"english\) 33\.3% of the mixture, over synthetic_share_at_most \(30\.0%\)"):
        small_recipe(tmp_path, sources=sources(weight=1), synthetic_share_at_most=0.3)
    write_text_files(tmp_path / "text")
    given = small_recipe(tmp_path, sources=sources(weight=1), synthetic_share_at_most=0.34)
    rows = Ledger(prepare(given, Silent()).folder).rows().collect()
    assert "over_synthetic_share" not in rows["reason"].to_list()


@pytest.mark.parametrize(
    ("mixture", "said"),
    [
        ({"weights": "temperature"}, "rule `temperature`"),
        ({"stages": [{"until": 1}, {"weights": {"english": 1, "code": 1}}]}, r"stages\[1\] give .* 50.0%"),
    ],
)
def test_mixtures_that_may_give_more_are_refused(tmp_path: Path, mixture: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        small_recipe(tmp_path, sources=sources(), synthetic_share_at_most=0.3, mixture=mixture)


def test_a_share_without_synthetic_sources_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no source is `synthetic: true`"):
        small_recipe(tmp_path, synthetic_share_at_most=0.3)
