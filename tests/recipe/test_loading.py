"""What a recipe's text means, and that it survives being written out."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.recipe import AdamW, Muon, Recipe
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.recipe.yaml_text import dump, dump_inline, parse
from tests.recipe.recipes import SMALL, write


def test_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "有 空格"
    folder.mkdir()
    loaded = load_recipe(write(folder))
    assert loaded.folder == folder
    assert loaded.run.path == folder / "runs" / "small"
    assert loaded.prepared_folder == folder / "prepared"
    assert loaded.resolve("/elsewhere") == Path("/elsewhere")


def test_the_same_recipe_from_another_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Path("recipe.yaml")) == load_recipe(path)


def test_numbers_without_a_point_are_numbers_and_old_truth_words_are_text(tmp_path: Path) -> None:
    text = SMALL.replace("weight: 2", "weight: 2\n      language: no").replace(
        "layers: 2", "layers: 2\n  norm_epsilon: 1e-6"
    )
    recipe = load_recipe(write(tmp_path, text)).recipe
    assert recipe.data.sources[1].language == "no"
    assert recipe.model.norm_epsilon == 1e-6


def test_a_section_with_nothing_under_it_keeps_its_defaults(tmp_path: Path) -> None:
    text = SMALL + "  schedule:\ncheckpoint:\n  # every: 3\nlayout:\n"
    assert load_recipe(write(tmp_path, text)).recipe == load_recipe(write(tmp_path)).recipe


def test_an_optimizer_without_a_name_is_adamw(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, SMALL + "  optimizer: {beta1: 0.8}\n")).recipe
    assert recipe.training.optimizer == AdamW(beta1=0.8)


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = SMALL.replace("    - name: english\n", "    - &first\n      name: english\n").replace(
        "    - name: 中文\n      paths: [text/中文]\n", "    - <<: *first\n      name: 中文\n"
    )
    sources = load_recipe(write(tmp_path, text)).recipe.data.sources
    assert [source.name for source in sources] == ["english", "中文"]
    assert sources[1].paths == sources[0].paths


def test_a_byte_order_mark_and_an_editors_schema_key_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff$schema: recipe.schema.json\n" + SMALL)
    assert load_recipe(path).recipe.name == "small"


def test_a_preset_fills_in_and_given_fields_override_it(tmp_path: Path) -> None:
    before, after = SMALL.index("model:"), SMALL.index("training:")
    text = SMALL[:before] + "model: {preset: 1m, layers: 3}\n" + SMALL[after:]
    loaded = load_recipe(write(tmp_path, text))
    assert loaded.recipe.model.layers == 3
    assert loaded.recipe.model.hidden_size == 128
    assert loaded.origins["model.layers"] == "recipe.yaml:10"
    assert loaded.origins["model.hidden_size"] == "preset 1m"
    assert loaded.origins["model.norm"] == "default"


def test_a_dumped_recipe_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path), ["training.optimizer.name=muon", "model.preset=1m"]).recipe
    assert isinstance(recipe.training.optimizer, Muon)
    again = load_recipe(write(tmp_path, dump_recipe(recipe), "again.yaml")).recipe
    assert again == recipe


_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
_awkward = st.sampled_from(
    ["1e5", "no", "null", "~", "<<", "0x1f", "1_000", "2026-01-02", ".inf", "true", "a: b", "#", "- x", ""]
)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text | _awkward,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text | _awkward, inner, max_size=4),
    max_leaves=12,
)


@given(_plain)
def test_what_is_written_as_yaml_is_read_back_unchanged(value: Any) -> None:
    assert parse(dump(value), "x").value == value
    assert parse(dump_inline(value), "x").value == value


@given(st.binary(max_size=200) | _text.map(str.encode))
def test_no_bytes_whatever_end_in_a_traceback(content: bytes) -> None:
    from tempfile import TemporaryDirectory

    from stoker.errors import BadInput

    with TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_bytes(content)
        with pytest.raises(BadInput):
            load_recipe(path)


_broken = st.sampled_from([None, True, -1, 0, 2.5, "x", [], {}, [1], {"a": 1}, [[]], float("nan"), 10**30])


@given(st.data())
def test_no_value_anywhere_ends_in_a_traceback(data: st.DataObject) -> None:
    """Any value in any place makes a recipe or a `BadInput`, and a `BadInput` names the file's lines."""
    from tempfile import TemporaryDirectory

    from stoker.errors import BadInput
    from stoker.recipe.fields import leaves

    content = parse(SMALL, "x").value
    full = Recipe.model_validate(content).model_dump(mode="json")
    for _ in range(data.draw(st.integers(1, 3))):
        places = [place for place, _ in leaves(full)]
        place = data.draw(st.sampled_from(places))[: data.draw(st.integers(1, 4))]
        container: Any = full
        for part in place[:-1]:
            container = container[part]
        container[place[-1]] = deepcopy(data.draw(_broken))  # what is drawn is drawn again: never let it change
    with TemporaryDirectory() as folder:
        path = write(Path(folder), dump(full))
        try:
            load_recipe(path)
            message = None
        except BadInput as error:
            message = str(error)
    assert message is None or "recipe.yaml:" in message


def test_a_run_whose_recipe_has_a_field_by_its_former_name_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL + "telemetry: {module_norms_every: 7}\n")
    loaded = load_recipe(path)
    assert loaded.recipe.telemetry.modules_every == 7
    assert "module_norms_every" not in dump_recipe(loaded.recipe)
