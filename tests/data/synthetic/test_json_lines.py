"""Lines of JSON hold any text that JSON can hold, and come back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.synthetic.jobs import read_prompts
from stoker.data.synthetic.json_lines import json_line, read_lines
from stoker.errors import BadInput

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["a\u2028b", "a\x85b", "\x0b\x0c\x1c", "\ud800", "\r\n"]
)


@given(st.lists(st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), max_size=5))
def test_rows_come_back_whatever_is_in_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(b"".join(map(json_line, rows)))
    path.read_text(encoding="utf-8")  # it is text
    # Two halves that stand side by side are one character to whoever reads JSON.
    joined = [json.loads(json.dumps(row)) for row in rows]
    assert [json.loads(line) for line in read_lines(path, "")] == joined


@pytest.mark.parametrize("content", ["\ufeffa\u2028b\r\nc\x0cd\r\n", "a\u2028b\nc\x0cd", "a\u2028b\n\nc\x0cd\n"])
def test_lines_end_with_line_feeds_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "prompts.txt").write_bytes(content.encode())
    assert [prompt.text for prompt in read_prompts(tmp_path / "prompts.txt")] == ["a\u2028b", "c\x0cd"]


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    for name, what in (("none", "No such file"), ("latin.txt", "is not UTF-8 .byte 3."), ("deep.jsonl", "line 1")):
        with pytest.raises(BadInput, match=what):
            read_prompts(tmp_path / name)
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(BadInput, match="is no regular file"):
            read_prompts(path)
