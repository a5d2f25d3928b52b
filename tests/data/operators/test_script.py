"""The operator `script`."""

from __future__ import annotations

from stoker.data.document import Document
from stoker.data.operators.script import ChineseScript
from stoker.recipe import Cleaning, Source

TRADITIONAL = "頭髮的發展，ＡＢＣ"


def document(text: str) -> Document:
    return Document("s", "prose", None, "1", "f", "line 1", text)


def operator(kind: str = "prose", **settings: object) -> ChineseScript | None:
    source = Source.model_validate({"name": "s", "paths": ["x"], "kind": kind})
    return ChineseScript.of(source, Cleaning.model_validate(settings))


def test_each_script_is_kept_unless_the_recipe_wants_one_and_measured_where_the_text_tells() -> None:
    keep, simplified = operator(), operator(script="simplified", half_width_letters=True)
    assert keep is not None
    assert simplified is not None
    given = document(TRADITIONAL)
    assert keep(given).document is given
    assert simplified(given).document.text == "头发的发展，ABC"
    assert keep(given).measures == simplified(given).measures == {"script.traditional": 1.0}
    assert keep(document("plain")).measures == {}


def test_code_keeps_its_characters() -> None:
    assert operator(kind="code", script="simplified") is None
