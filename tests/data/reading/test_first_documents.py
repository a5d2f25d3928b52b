"""A field that no document of a source has is told before anything is read, by `recipe check` too."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data.document import Fault
from stoker.data.prepare import prepare
from stoker.data.reading.files import list_files
from stoker.data.reading.first_documents import require_named_fields, require_text_fields, stopped_by
from stoker.errors import BadInput
from stoker.progress import Silent
from stoker.recipe import Data, Source
from stoker.recipe.loading import load_recipe

RECIPE = """
name: small
data:
  on_error: {on_error}
  sources:
    - {{name: wiki, paths: [{path}]}}
model: {{layers: 1, hidden_size: 16, heads: 1, ffn_hidden_size: 32}}
training: {{steps: 1, sequence_length: 8, global_batch_size: 1, optimizer: {{learning_rate: 1.0e-3}}}}
"""


def files_in(folder: Path) -> list[str]:
    pq.write_table(pa.table({"content": ["a text"], "id": ["1"]}), folder / "pages.parquet")
    (folder / "pages.jsonl").write_text(json.dumps({"content": "a text"}) + "\n")
    return ["pages.parquet", "pages.jsonl"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_source_without_its_field_is_refused_with_the_fields_there_are(tmp_path: Path, at: int) -> None:
    path = files_in(tmp_path)[at]
    source = Source(name="wiki", paths=[path])
    with pytest.raises(BadInput, match=rf"wiki.*{path}.*`text` \(text_field\), found: content.*Let `text_field`"):
        require_text_fields([(source, list_files(source, tmp_path))], 1 << 20)
    named = source.model_copy(update={"text_field": "content"})
    require_text_fields([(named, list_files(named, tmp_path))], 1 << 20)


def test_a_later_line_without_the_field_is_for_the_reader_to_find(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "first"}\n{"body": "second"}\n')
    require_named_fields(Data(sources=[Source(name="a", paths=["a.jsonl"])]), tmp_path)


@pytest.mark.parametrize(("on_error", "code"), [("stop", 2), ("skip", 0)])
def test_checking_a_recipe_tells_a_missing_field_unless_faults_are_passed_over(
    tmp_path: Path, on_error: str, code: int
) -> None:
    path = files_in(tmp_path)[0]
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(on_error=on_error, path=path))
    told = CliRunner().invoke(cli.application, ["recipe", "check", str(tmp_path / "recipe.yaml")])
    found = told.exception
    assert (2 if isinstance(found, BadInput) else told.exit_code) == code
    assert ("expected a column `text`" in str(found)) == (code == 2)


@pytest.mark.parametrize("reason", ["no_text_field", "undecodable", "not_json"])
def test_what_to_do_about_a_fault_is_said_once(reason: str) -> None:
    details = {"undecodable": "no encoding fits; name it with `encoding`, or repair the file"}
    detail = details.get(reason, "what is wrong")
    told = stopped_by(Fault("web", "a.txt", "byte 3", reason, detail))
    assert told.lower().count("repair") == (reason != "no_text_field")
    assert "data.on_error" in told


def test_a_preparation_reads_nothing_where_a_later_source_lacks_its_field(tmp_path: Path) -> None:
    path = files_in(tmp_path)[0]
    (tmp_path / "good.jsonl").write_text('{"text": "a text"}\n')
    recipe = RECIPE.format(on_error="stop", path=path).replace(
        "    - {name: wiki", "    - {name: good, paths: [good.jsonl]}\n    - {name: wiki"
    )
    (tmp_path / "recipe.yaml").write_text(recipe)
    with pytest.raises(BadInput, match=r"wiki.*expected a column `text`"):
        prepare(load_recipe(tmp_path / "recipe.yaml"), Silent())
    assert not list(tmp_path.glob("prepared/.work-*/read/*"))
