"""Sources under URLs give the same corpus as the same files on disk, and what cannot be fetched is said."""

from __future__ import annotations

import gzip
import json
import random
import socket
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.data.fingerprint import take_inputs
from stoker.data.prepare import prepare
from stoker.data.reading import remote
from stoker.data.reading.remote import RemoteFile, find, is_remote
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from tests.data.small_corpus import folder_bytes, sentence, small_recipe


def write_files(folder: Path) -> None:
    """The formats that are fetched in different ways: lines, an archive, row groups, a page, a file of text."""
    draw = random.Random(5)
    texts = [[sentence(draw) for _ in range(30)] for _ in range(5)]
    lines = ["".join(json.dumps({"text": text}) + "\n" for text in some) for some in texts]
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines[0])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines[1].encode()))
    pq.write_table(pa.table({"text": texts[2]}), folder / "c.parquet", row_group_size=7)
    (folder / "d.txt").write_text("\n".join(texts[4]))
    (folder / ".hidden.txt").write_text("nobody reads this")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a web server over the files of `write_files`."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    write_files(tmp_path / "files")
    handler = partial(Quiet, directory=str(tmp_path / "files"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def tokens_of(folder: Path, *paths: str, **data: object) -> dict[str, bytes]:
    sources = [{"name": "only", "paths": list(paths), "documents": "line"}]
    folder.mkdir(exist_ok=True)
    corpus = prepare(small_recipe(folder, sources=sources, **data), Silent())
    return {name: content for name, content in folder_bytes(corpus.folder).items() if name.startswith("tok")}


def test_a_web_server_a_zip_archive_and_a_folder_give_the_same_tokens(tmp_path: Path, server: str) -> None:
    files = tmp_path / "files"
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in sorted(files.iterdir()):
            archive.write(file, file.name)
    here = tokens_of(tmp_path / "here", str(files))
    names = ["a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt"]
    assert tokens_of(tmp_path / "http", *[f"{server}/{name}" for name in names]) == here
    assert tokens_of(tmp_path / "zip", f"zip://*::file://{tmp_path}/all.zip", workers=2) == here
    assert tokens_of(tmp_path / "local", f"local://{files}/[a-d]*") == here
    assert tokens_of(tmp_path / "file", f"file://{files}") == here


def test_the_files_of_a_folder_are_found_sorted_and_without_hidden_ones(tmp_path: Path) -> None:
    write_files(tmp_path / "files")
    (tmp_path / "files" / "inner").mkdir()
    (tmp_path / "files" / "inner" / "e.txt").write_text("more")
    found = find(f"local://{tmp_path}/files", "here")
    assert [file.name for file in found] == ["a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt", "e.txt"]
    assert [file.suffix for file in found] == [".jsonl", ".gz", ".parquet", ".txt", ".txt"]
    assert [file.name for file in find(f"local://{tmp_path}/files/*.jsonl*", "here")] == ["a.jsonl", "b.jsonl.gz"]
    assert [file.name for file in find(f"local://{tmp_path}/files/**/*.txt", "here")] == ["d.txt", "e.txt"]
    assert find(f"local://{tmp_path}/files/*.nothing", "here") == []


def test_other_content_under_the_same_address_is_another_corpus(tmp_path: Path) -> None:
    write_files(tmp_path / "files")
    loaded = small_recipe(tmp_path, sources=[{"name": "only", "paths": [f"local://{tmp_path}/files/a.jsonl"]}])
    first = take_inputs(loaded, 1, Silent()).fingerprint
    assert take_inputs(loaded, 1, Silent()).fingerprint == first
    (tmp_path / "files" / "a.jsonl").write_text('{"text": "other"}\n')
    assert take_inputs(loaded, 1, Silent()).fingerprint != first


def test_a_file_of_which_the_server_tells_the_version_is_not_fetched_to_be_told_apart() -> None:
    marked = RemoteFile("memory://nowhere/that-is-read", 10, "v1", None)
    from stoker.data.fingerprint import _digest

    assert _digest(marked) != _digest(RemoteFile(marked.url, 10, "v2", None))
    assert _digest(RemoteFile(marked.url, 10, None, None)) == "unreadable"


def test_a_remote_file_that_changes_while_it_is_read_ends_the_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stoker.data import prepare as module

    system = fsspec.filesystem("memory")
    lines = "".join(json.dumps({"text": sentence(random.Random(n))}) + "\n" for n in range(40))
    system.pipe("/changing/a.jsonl", lines.encode())
    loaded = small_recipe(tmp_path, sources=[{"name": "only", "paths": ["memory://changing/a.jsonl"]}])
    read_unit = module.read_unit

    def read_and_change(job: object) -> object:
        result = read_unit(job)
        system.pipe("/changing/a.jsonl", lines[::-1].encode())
        return result

    monkeypatch.setattr(module, "read_unit", read_and_change)
    with pytest.raises(StokerError, match=r"changed while they were read, such as memory:/.*a\.jsonl"):
        prepare(loaded, Silent())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nosuch://bucket/a.jsonl", "is in no place that can be read from: Protocol not known: nosuch"),
        ("memory://empty/*.jsonl", "names no file that is there"),
    ],
)
def test_what_cannot_be_listed_is_said(tmp_path: Path, url: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        prepare(small_recipe(tmp_path, sources=[{"name": "only", "paths": [url]}]), Silent())
    assert told in str(caught.value)


def test_a_protocol_whose_package_is_missing_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(BadInput, match="needs a package that is not installed here: Install s3fs to access S3"):
        find("s3://bucket/a", "here")


def test_a_connection_that_breaks_is_a_file_that_cannot_be_read(tmp_path: Path, server: str) -> None:
    loaded = small_recipe(
        tmp_path, "data.on_error=stop", sources=[{"name": "only", "paths": [f"{server}/missing.jsonl"]}]
    )
    with pytest.raises(BadInput, match=r"missing\.jsonl"):
        prepare(loaded, Silent())


def test_only_other_places_than_this_machine_are_remote() -> None:
    assert [is_remote(path) for path in ("a/b", "/a", "file:///a", "s3://a", "zip://a::file:///b")] == [
        False, False, False, True, True,
    ]  # fmt: skip


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[int]]]:
    """The address of a web server, and the answers that it gives to its next requests instead of its own."""
    monkeypatch.setattr(remote, "_PAUSES", (0.0, 0.0))
    answers: list[int] = []

    class Failing(SimpleHTTPRequestHandler):
        def send_head(self) -> Any:
            if answers and (answer := answers.pop(0)) != 200:
                self.send_error(answer)
                return None
            return super().send_head()

        def log_message(self, *_: object) -> None:
            pass

    write_files(tmp_path / "files")
    handler = partial(Failing, directory=str(tmp_path / "files"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/d.txt", answers
        http.shutdown()


def test_a_server_that_fails_now_and_then_is_asked_again(tmp_path: Path, failing: tuple[str, list[int]]) -> None:
    url, answers = failing
    answers += [503, 500, 429, 200]  # each look for a size is two requests
    (found,) = find(url, "here")
    answers += [502, 502]
    with found.open() as stream:
        assert stream.read() == (tmp_path / "files" / "d.txt").read_bytes()


def test_a_server_that_goes_on_failing_is_not_a_file_that_is_missing(failing: tuple[str, list[int]]) -> None:
    url, answers = failing
    answers += [503] * 20
    with pytest.raises(BadInput, match=r"cannot be listed: .*503"):
        find(url, "here")
    answers[:] = [503] * 20
    with pytest.raises(OSError, match="503") as told:
        RemoteFile(url, 0, None, None).open()
    assert not isinstance(told.value, FileNotFoundError)
    answers[:] = [404] * 20
    assert find(url, "here") == []
    assert len(answers) == 18  # what is not there is not asked for again


def test_a_server_that_says_nothing_is_not_waited_for_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_SILENT_SECONDS", 0.2)
    fsspec.filesystem("http").clear_instance_cache()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/a.txt"
        with pytest.raises(BadInput, match=r"cannot be listed: .*[Tt]imeout"):
            find(url, "here")
    fsspec.filesystem("http").clear_instance_cache()
