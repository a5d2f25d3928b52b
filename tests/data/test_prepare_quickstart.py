"""The quickstart's text is there, is of the promised kinds, and is clean."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

from stoker.data.cleaning import clean
from stoker.data.document import Document
from stoker.data.licences import NOT_STATED, licences
from stoker.data.reading.files import list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import plan_units
from stoker.recipe.loading import LoadedRecipe, load_recipe

RECIPE = Path(__file__).parents[2] / "examples" / "quickstart" / "recipe.yaml"


@pytest.fixture(scope="module")
def loaded() -> LoadedRecipe:
    return load_recipe(RECIPE)


def beginning(loaded: LoadedRecipe, name: str, count: int) -> list[str]:
    """The first documents of a source, cleaned as `prepare` does before filters."""
    (source,) = [source for source in loaded.recipe.data.sources if source.name == name]
    units = plan_units([(source, [(file, 0) for file in list_files(source, loaded.folder)])])
    found = (item for unit in units for part in unit.parts for item in read_part(source, part, 1 << 24))
    texts = [item.text for item in islice(found, count) if isinstance(item, Document)]
    if source.remove_pattern is not None:
        texts = [re.sub(source.remove_pattern, "", text) for text in texts]
    return [clean(text, source.kind) for text in texts]


def test_there_is_english_chinese_code_and_mathematics_of_a_sensible_size(loaded: LoadedRecipe) -> None:
    sources = loaded.recipe.data.sources
    assert {(source.kind, source.language) for source in sources} >= {
        ("prose", "en"),
        ("prose", "zh"),
        ("code", None),
        ("mathematics", "en"),
    }
    for source in sources:
        assert sum(file.path.stat().st_size for file in list_files(source, loaded.folder)) > 3e6


def test_word_tags_are_stripped_from_the_news(loaded: LoadedRecipe) -> None:
    texts = beginning(loaded, "news", 500)
    assert texts[0] == "迈向充满希望的新世纪——一九九八年新年讲话（附图片１张）"
    assert not [text for text in texts if re.search(r"/[A-Za-z]|  ", text)]


@pytest.mark.parametrize("name", ["scripture", "manuals", "reviews", "code", "mathematics"])
def test_documents_are_text_without_markup_of_their_container(loaded: LoadedRecipe, name: str) -> None:
    texts = beginning(loaded, name, 200)
    assert len(texts) >= 100
    assert not [text for text in texts if "\0" in text or text.startswith(('{"', "\ufeff"))]


def test_every_package_states_its_licence(loaded: LoadedRecipe) -> None:
    lines = licences(loaded)
    assert len(lines) >= 9
    assert not [line for line in lines if line.licence == NOT_STATED]
