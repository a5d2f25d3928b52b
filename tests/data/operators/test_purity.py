"""Operators are functions of one document: neither those before it nor who asks have a say."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from stoker.data.document import Document
from stoker.data.operators import operators_of
from stoker.data.operators.chain import judge
from stoker.data.operators.operator import Operator, Outcome
from stoker.data.reading.files import list_files
from stoker.data.reading.read import read_part
from stoker.data.reading.units import Part
from stoker.recipe.loading import LoadedRecipe, load_recipe
from tests.data.every_reason import write_every_reason

NAMES = {
    "clean",
    "script",
    "language",
    "lines",
    "filter",
    "personal_data",
    "unsafe",
    "decontamination",
    "quality",
    "perplexity",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedRecipe:
    """Text for every reason there is, and a recipe that switches every operator on."""
    return load_recipe(
        write_every_reason(tmp_path_factory.mktemp("pure")),
        ["data.cleaning.script=simplified", "data.cleaning.half_width_letters=true"],
    )


def operators(loaded: LoadedRecipe) -> Mapping[str, tuple[Operator, ...]]:
    """Those of each source, made anew."""
    data = loaded.recipe.data
    return {source.name: operators_of(source, data.cleaning.located(loaded.folder)) for source in data.sources}


@pytest.fixture(scope="module")
def documents(loaded: LoadedRecipe) -> list[Document]:
    return [
        found
        for source in loaded.recipe.data.sources
        for file in list_files(source, loaded.folder)
        for found in read_part(source, Part(file), 100_000)
        if isinstance(found, Document) and found.passed_over is None
    ]


def outcomes(made: Mapping[str, tuple[Operator, ...]], document: Document) -> list[Outcome]:
    """What each operator makes of the document as it was read."""
    return [operator(document) for operator in made[document.source]]


def test_an_outcome_depends_on_the_document_alone(loaded: LoadedRecipe, documents: list[Document]) -> None:
    documents = [document for document in documents if document.text.strip()]
    made, others = operators(loaded), operators(loaded)
    assert {one.name for own in made.values() for one in own} >= NAMES
    wanted = [outcomes(made, document) for document in documents]
    order = list(range(len(documents)))
    random.Random(1).shuffle(order)
    assert {number: outcomes(others, documents[number]) for number in order} == dict(enumerate(wanted))
    assert [outcomes(made, document) for document in documents] == wanted


def test_what_is_told_is_what_was_declared(loaded: LoadedRecipe, documents: list[Document]) -> None:
    """Every operator has a statistic or a reason, and gives no other."""
    made = operators(loaded)
    for operator in {one.name: one for own in made.values() for one in own}.values():
        assert operator.measures
    for document in documents:
        for operator in made[document.source]:
            if document.text.strip():
                outcome = operator(document)
                assert set(outcome.measures) <= set(operator.measures)
                assert outcome.reason is None or operator.reasons[outcome.reason]
        judged = judge(document, made[document.source])
        assert (judged.reason is None) == (judged.stage is None)


def test_what_was_misread_and_what_went_is_measured(loaded: LoadedRecipe, documents: list[Document]) -> None:
    source = loaded.recipe.data.sources[0].model_copy(update={"remove_pattern": r"\[\d+\]"})
    made = operators_of(source, loaded.recipe.data.cleaning.located(loaded.folder))
    for text, reread, removed, matched in (
        ("A clean text.", 0, 0, 0),
        ("It rained.[12]", 0, 0, 4 / 14),
        ("It rained.\0\0", 0, 2 / 12, 0),
        ("今天天气很好，我们一起去公园散步。".encode().decode("latin-1"), 1, 1 - 17 / 51, 0),
    ):
        measures = judge(replace(documents[0], text=text), made).measures
        assert measures["clean.reread"] == reread
        assert measures["clean.removed"] == pytest.approx(removed)
        assert measures["remove.removed"] == pytest.approx(matched)
