"""Which files a source names, in which order, and how they are cut into work."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.document import Document
from stoker.data.reading.files import list_files
from stoker.data.reading.globs import matches
from stoker.data.reading.packages import package_licence
from stoker.data.reading.units import UNIT_BYTES, plan_units
from stoker.errors import BadInput
from stoker.recipe import Source
from tests.data.reading.reading_files import read_all, texts


def listed(folder: Path, *paths: str, **settings: Any) -> list[str]:
    given_source = Source.model_validate({"name": "mine", "paths": paths, **settings})
    return [file.name for file in list_files(given_source, folder)]


def test_files_are_sorted_by_name_and_taken_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub-x/d.txt", "é.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert listed(tmp_path, ".") == ["a.txt", "b.txt", "sub-x/d.txt", "sub/c.txt", "é.txt"]
    assert listed(tmp_path, "b.txt", "*.txt", "**/*.txt") == ["b.txt", "a.txt", "é.txt", "sub-x/d.txt", "sub/c.txt"]


def test_paths_with_spaces_chinese_and_brackets_work(tmp_path: Path) -> None:
    for name in ("我的 数据/第 一 章.txt", "data [1]/x.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    assert listed(tmp_path, "我的 数据") == ["我的 数据/第 一 章.txt"]
    assert listed(tmp_path, "我的 数据/*.txt") == ["我的 数据/第 一 章.txt"]
    assert listed(tmp_path, "data [1]") == ["data [1]/x.txt"]
    assert texts(read_all(tmp_path, "我的 数据")) == ["我的 数据/第 一 章.txt"]


def test_a_file_name_that_is_no_text_can_be_read_and_printed(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\xfe.txt", "w") as stream:
        stream.write("inside")
    found = read_all(tmp_path)
    assert texts(found) == ["inside"]
    found[0].file.encode()


@pytest.mark.parametrize(
    ("paths", "what"),
    [
        (("empty",), "is an empty folder"),
        (("none/*.txt",), "matches no file"),
        (("none.txt",), "does not exist"),
        (("pipe",), "neither a file nor a folder"),
    ],
)
def test_nothing_to_read_names_the_source_and_the_path(tmp_path: Path, paths: tuple[str, ...], what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=what) as caught:
        listed(tmp_path, *paths)
    assert "data.sources[mine]" in str(caught.value)
    assert str(tmp_path / paths[0]) in str(caught.value)


def test_what_never_ends_is_refused_in_one_line_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("x")
    (tmp_path / "text" / "messages.txt").symlink_to("/proc/kmsg")
    (tmp_path / "text" / "zeros.txt").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "text" / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as served:
        monkeypatch.chdir(tmp_path / "text")
        served.bind("socket.txt")  # no longer path is taken
        assert listed(tmp_path, "text") == ["text/a.txt"]
        for name, what in [
            ("/proc/kmsg", "an answer of the kernel; give a regular file"),
            ("text/messages.txt", "an answer of the kernel"),
            ("/proc/km*", "matches no file"),
            ("/proc", "holds no files of its own but answers of the kernel"),
            ("/dev/zero", "neither a file nor a folder"),
            ("text/pipe.txt", "neither a file nor a folder"),
            ("text/socket.txt", "neither a file nor a folder"),
        ]:
            with pytest.raises(BadInput, match=what) as caught:
                listed(tmp_path, name)
            assert "\n" not in str(caught.value)


def test_links_in_a_loop_do_not_hang_and_linked_folders_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("x")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert listed(tmp_path, ".") == ["a/x.txt"]
    assert listed(tmp_path, "**/*.txt") == ["a/x.txt"]


def test_a_tree_of_code_leaves_out_what_is_not_its_authors_source(tmp_path: Path) -> None:
    kept = ["main.c", "lib/util.py", "Makefile", "web/app.js"]
    left = [
        ".git/config.py",
        "node_modules/x/y.js",
        "lib/__pycache__/util.py",
        "web/app.min.js",
        "logo.png",
        "a.txt",
    ]
    for name in kept + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\0\x01" if name.endswith("png") else b"x = 1\n")
    assert listed(tmp_path, ".", format="code") == sorted(kept)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "sub/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("**/tests/**", "x/tests/y/a.py", True),
        ("**/tests/**", "tests/a.py", True),
        ("**/tests/**", "x/contests/a.py", False),
        ("a?c.txt", "abc.txt", True),
        ("[a-c].txt", "b.txt", True),
        ("[!a-c].txt", "b.txt", False),
        ("a.txt", "a_txt", False),
    ],
)
def test_globs_match_as_in_a_shell(pattern: str, name: str, fits: bool) -> None:
    assert (matches(pattern).match(name) is not None) == fits


@pytest.mark.parametrize("pattern", ["[z-a]*", "**/[9-0].txt"])
def test_a_range_that_runs_backwards_is_refused_and_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(BadInput, match=re.escape(f"`{pattern.rpartition('/')[2]}")):
        listed(tmp_path, pattern.rpartition("/")[2])
    with pytest.raises(BadInput, match="bad character range"):
        matches(pattern)


@pytest.mark.parametrize("encoding", ["utf-9", "rot13", "hex", "zlib", "undefined", "ut\0f"])
def test_what_is_no_encoding_of_text_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(BadInput, match=f"`{encoding}` is no known encoding of text"):
        listed(tmp_path, "a.txt", encoding=encoding)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF-8-SIG", "gb18030", "big5", "utf-16", "utf-32-le", "cp037", "shift_jis"]
)
def test_encodings_of_text_are_taken(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert listed(tmp_path, "a.txt", encoding=encoding) == ["a.txt"]


def test_a_package_that_is_missing_says_what_to_install(tmp_path: Path) -> None:
    source = Source.model_validate({"name": "p", "packages": [{"package": "surely_not_here", "files": ["*.py"]}]})
    with pytest.raises(BadInput, match="pip install surely_not_here"):
        list_files(source, tmp_path)
    source = Source.model_validate({"name": "p", "packages": [{"package": "stdlib", "files": ["nothing*.py"]}]})
    with pytest.raises(BadInput, match="has no file that matches"):
        list_files(source, tmp_path)


def test_files_of_packages_are_named_by_package_and_path(tmp_path: Path) -> None:
    packages = [{"package": "stdlib", "files": ["json/*.py"], "exclude": ["**/tool.py"]}]
    names = [file.name for file in list_files(Source.model_validate({"name": "p", "packages": packages}), tmp_path)]
    assert names == [f"stdlib:json/{name}.py" for name in ("__init__", "decoder", "encoder", "scanner")]
    assert package_licence("stdlib") == "PSF-2.0"
    assert package_licence("numpy")


def test_docstrings_and_long_strings_are_taken_out_of_python_files(tmp_path: Path) -> None:
    long = "word " * 60
    (tmp_path / "a.py").write_text(
        f'"""Module.\n\n    Indented.\n    """\nx = "short"\ny = """{long}"""\n\n'
        'def f():\n    "Function."\n    return 1\n'
        "if x:\n    class C:\n        '''Class.'''\n        async def g(self):\n            r'''Inner.'''\n"
    )
    (tmp_path / "b.py").write_text("print 'python 2'\n")
    found = read_all(tmp_path, extract="docstrings")
    assert texts(found) == ["Module.\n\nIndented.", "Function.", "Class.", "Inner."]
    assert [item.identifier for item in found if isinstance(item, Document)][1] == "a.py:9"
    assert [(item.file, item.position, item.reason) for item in found if not isinstance(item, Document)] == [
        ("b.py", "line 1", "not_python")
    ]
    assert texts(read_all(tmp_path, extract="strings")) == [long]


def test_documents_are_the_file_its_lines_or_its_paragraphs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n \nthree\r\n\n\n四\n五")
    assert texts(read_all(tmp_path)) == ["one\ntwo\n\n \nthree\n\n\n四\n五"]
    assert texts(read_all(tmp_path, documents="line")) == ["one", "two", "three", "四", "五"]
    found = read_all(tmp_path, documents="paragraph")
    assert texts(found) == ["one\ntwo", "three", "四\n五"]
    assert [item.position for item in found] == ["line 1", "line 5", "line 8"]


def test_identifiers_are_file_and_line_or_the_field_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "id": "n7"}\n\n{"text": "y", "id": 8}\n{"text": "z"}\n')
    assert [item.identifier for item in read_all(tmp_path, id_field="id")] == ["n7", "8", "a.jsonl:4"]
    assert [item.identifier for item in read_all(tmp_path)] == ["a.jsonl:1", "a.jsonl:3", "a.jsonl:4"]


@pytest.mark.parametrize("name", ["big.jsonl", "big.txt"])
def test_a_large_file_of_lines_is_cut_into_units_that_hold_every_line_once(tmp_path: Path, name: str) -> None:
    lines = [f"第{number}行" + "字" * (number % 700) for number in range(12_000)]
    content = [json.dumps({"text": line}) for line in lines] if name.endswith("jsonl") else lines
    path = tmp_path / name
    path.write_text("\n".join(content), encoding="utf-8")
    source = Source(name="s", paths=(name,), documents="line")
    files = [(file, path.stat().st_size) for file in list_files(source, tmp_path)]
    units = plan_units([(source, files)])
    assert len(units) > 2
    assert sum(unit.size for unit in units) == path.stat().st_size
    assert all(unit.size < 2 * UNIT_BYTES for unit in units)
    found = read_all(tmp_path, name, documents="line")
    assert texts(found) == lines
    assert [item.position for item in found] == [f"line {number + 1}" for number in range(len(lines))]


def test_a_large_parquet_file_is_cut_between_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    rows = [f"row {number} " + "字" * (number % 300) for number in range(5000)]
    pq.write_table(pa.table({"text": rows}), path, row_group_size=300, compression="none")
    monkeypatch.setattr("stoker.data.reading.units.UNIT_BYTES", 300_000)
    source = Source(name="s", paths=("a.parquet",))
    units = plan_units([(source, [(file, path.stat().st_size) for file in list_files(source, tmp_path)])])
    assert len(units) > 3
    assert sum(unit.size for unit in units) == path.stat().st_size
    found = read_all(tmp_path)
    assert texts(found) == rows
    assert [item.position for item in found] == [f"row {number + 1}" for number in range(5000)]


def test_a_path_in_the_home_folder_may_be_written_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("x")
    assert listed(tmp_path / "elsewhere", "~/*.txt") == [str(tmp_path / "a.txt")]


@given(st.lists(st.integers(0, 3 * UNIT_BYTES), max_size=40))
def test_units_hold_every_file_once_in_order(sizes: list[int]) -> None:
    source = Source(name="s", packages=({"package": "stdlib", "files": ("*.py",)},))  # type: ignore[arg-type]
    files = list_files(source, Path())[: len(sizes)]
    units = plan_units([(source, list(zip(files, sizes[: len(files)], strict=True)))])
    assert [part.file for unit in units for part in unit.parts] == files
    assert [unit.number for unit in units] == list(range(len(units)))
