"""The engine is chosen by the recipe, and one that is missing is named before anything is read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stoker.data.extraction import extract_text
from stoker.data.extraction.engines import Engine, require_engine
from stoker.errors import BadInput
from tests.data.reading.reading_files import read_all, texts

SENTENCE = "The furnace is fed with coal that was washed and weighed before the shift began. "
PAGE = (
    f"<html><head><title>Coal</title></head><body><nav><a href='/'>Home</a></nav><article><h1>Coal</h1>"
    f"<p>{SENTENCE * 3}</p><p>{SENTENCE * 2}</p><ol><li>Wash</li><li>Weigh</li></ol></article>"
    "<footer>© 2026 Northgate</footer></body></html>"
)


@pytest.mark.parametrize("engine", ["stoker", "trafilatura", "resiliparse"])
def test_every_engine_finds_the_article(engine: Engine) -> None:
    text = extract_text(PAGE, engine)
    assert text.count(SENTENCE.strip()) == 5
    assert "Home" not in text


def test_the_source_of_a_recipe_names_its_engine(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE)
    ours, theirs = texts(read_all(tmp_path)), texts(read_all(tmp_path, extraction="resiliparse"))
    assert ours == [extract_text(PAGE)]
    assert theirs == [extract_text(PAGE, "resiliparse")]
    assert ours != theirs


def test_a_missing_engine_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    require_engine("stoker", "here")
    (tmp_path / "a.html").write_text(PAGE)
    with pytest.raises(BadInput, match=r"data.sources\[s\].extraction.*pip install 'stoker\[trafilatura\]'"):
        read_all(tmp_path, extraction="trafilatura")
