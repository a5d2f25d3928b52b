"""A corpus under a URL is what was prepared, or is not used: fetched once, whole, by one of many processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from stoker import cli
from stoker.data import place_of_url
from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.ledger import Ledger
from stoker.data.place_of_url import LISTING
from stoker.data.prepare import prepare
from stoker.data.prepared import find_prepared
from stoker.data.published import bring
from stoker.data.publishing import publish
from stoker.durable_files import PARTIAL_MARK
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from tests.data.counted_store import Store, counted, made, place, published
from tests.data.small_corpus import folder_bytes, small_recipe, write_text_files

_FETCH = (
    "import sys; from pathlib import Path; from stoker.data.published import bring; "
    "from stoker.progress import Silent; assert bring(sys.argv[1], Path(sys.argv[2]), Silent())"
)

_NEW = [f"A text that stood nowhere before, of number {number} and {number * number} words." for number in range(9)]


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    with counted():
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return made(tmp_path_factory.mktemp("made"))


@pytest.fixture
def url(corpus: Corpus, tmp_path: Path) -> str:
    return published(corpus, tmp_path)


def test_a_place_that_is_slow_to_answer_is_waited_for_aloud(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Heard(Silent):
        said: ClassVar[list[str]] = []

        def say(self, line: str) -> None:
            self.said.append(line)

    opened = Store.open

    def slow(self: Store, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        deadline = time.monotonic() + 5
        while not Heard.said and time.monotonic() < deadline:
            time.sleep(0.01)
        return opened(self, path, mode, **kwargs)

    monkeypatch.setattr(place_of_url, "_WORD_AFTER_SECONDS", 0.02)
    monkeypatch.setattr(Store, "open", slow)
    assert bring(url, tmp_path / "here", Heard())
    assert Heard.said[0].startswith(f"waiting for an answer: {url}")


def test_what_is_fetched_is_what_was_prepared_and_each_file_is_fetched_once(
    corpus: Corpus, url: str, tmp_path: Path
) -> None:
    assert bring(url, tmp_path / "here", Silent())
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)
    assert set(Store.read.values()) == {1}
    Store.read = Counter()
    assert bring(url, tmp_path / "here", Silent())
    assert Store.read == Counter([str(place(url) / MANIFEST)])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".fetch")] == []
    Corpus.open(tmp_path / "here", verify=True)


def test_a_folder_without_a_manifest_is_no_corpus(url: str, tmp_path: Path) -> None:
    (place(url) / MANIFEST).unlink()
    assert not bring(url, tmp_path / "here", Silent())
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("fails_at", [3, 6, 9])
def test_a_fetch_that_was_broken_off_goes_on_with_what_is_not_there(
    corpus: Corpus, url: str, tmp_path: Path, fails_at: int
) -> None:
    Store.fails_at = fails_at
    with pytest.raises(StokerError, match=r"could not be .*the store does not answer") as told:
        bring(url, tmp_path / "here", Silent())
    assert "\n" not in str(told.value)
    assert not (tmp_path / "here").exists()
    first, Store.read, Store.fails_at = Store.read, Counter(), None
    assert bring(url, tmp_path / "here", Silent())
    again = {name for name in Store.read if first[name]}
    refused = [*first][-1]
    assert again <= {str(place(url) / MANIFEST), str(place(url) / LISTING), refused}
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)


def test_processes_at_once_fetch_once_and_see_no_halves(corpus: Corpus, url: str, tmp_path: Path) -> None:
    plain = url.replace("store://", "file://")
    asked = [
        subprocess.Popen([sys.executable, "-c", _FETCH, plain, str(tmp_path / "here")], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in asked:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told.decode()
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)


def test_who_waited_for_another_fetch_fetches_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    locked = place_of_url.fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(place_of_url.fcntl, "flock", locked)
        if not here.exists():
            bring(url, tmp_path / "other", Silent())
            (tmp_path / "other").rename(here)
            Store.read = Counter()
        locked(descriptor, operation)

    monkeypatch.setattr(place_of_url.fcntl, "flock", late)
    assert bring(url, here, Silent())
    assert not Store.read


@pytest.mark.parametrize("suffix", ["tokens", "documents", "parquet", "json"])
def test_a_file_that_is_not_what_was_published_is_refused(url: str, tmp_path: Path, suffix: str) -> None:
    files = sorted(path for path in place(url).rglob(f"*.{suffix}") if path.name not in (MANIFEST, LISTING))
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 1
    files[0].write_bytes(content)
    with pytest.raises(StokerError, match=f"{files[0].name}: its content is not what was published"):
        bring(url, tmp_path / "here", Silent())
    assert not (tmp_path / "here").exists()
    assert not [path for path in tmp_path.rglob("*") if PARTIAL_MARK in path.name]


def test_a_listing_of_another_corpus_is_refused(url: str, tmp_path: Path) -> None:
    manifest = json.loads((place(url) / MANIFEST).read_text())
    (place(url) / MANIFEST).write_text(json.dumps(manifest | {"stoker_version": "another"}))
    with pytest.raises(StokerError, match="do not belong together"):
        bring(url, tmp_path / "here", Silent())


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "a\nb"])
def test_a_listing_leads_out_of_no_folder(url: str, tmp_path: Path, name: str) -> None:
    listing = json.loads((place(url) / LISTING).read_text())
    listing["files"][name] = {"bytes": 1, "sha256": "0"}
    (place(url) / LISTING).write_text(json.dumps(listing))
    with pytest.raises(StokerError, match="is no file of a corpus"):
        bring(url, tmp_path / "here", Silent())


def test_another_corpus_at_the_same_url_is_noticed(url: str, tmp_path: Path) -> None:
    bring(url, tmp_path / "here", Silent())
    (place(url) / MANIFEST).write_text("{}")
    with pytest.raises(BadInput, match="is another than the one that is kept of it"):
        bring(url, tmp_path / "here", Silent())


def test_a_store_that_is_away_stops_nobody_who_has_the_corpus(url: str, tmp_path: Path) -> None:
    bring(url, tmp_path / "here", Silent())
    Store.fails_at = 0
    assert bring(url, tmp_path / "here", Silent())


def test_a_disk_that_is_full_is_one_line_and_the_fetch_goes_on_later(
    corpus: Corpus, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(StokerError, match="the disk is full; free some space") as told:
            bring(url, tmp_path / "here", Silent())
        assert "\n" not in str(told.value)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
        with pytest.raises(StokerError, match="does not fit on the disk"):
            bring(url, tmp_path / "here", Silent())
    assert bring(url, tmp_path / "here", Silent())
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)


def test_prepare_publishes_and_another_machine_finds_it(tmp_path: Path) -> None:
    for machine in ("one", "two"):
        (tmp_path / machine).mkdir()
        write_text_files(tmp_path / machine / "text", documents=40)
    to = (f"data.prepared=store://{tmp_path}/there", "data.prepared_cache=cache", "data.held_out=0.1")
    one, two = (small_recipe(tmp_path / machine, *to) for machine in ("one", "two"))
    assert find_prepared(one) is None
    made = prepare(one, Silent())
    assert made.folder.parent == tmp_path / "one" / "cache"
    found = find_prepared(two)
    assert found is not None
    assert found.folder == tmp_path / "two" / "cache" / made.folder.name
    assert folder_bytes(found.folder) == folder_bytes(made.folder)

    shutil.rmtree(found.folder)
    (place(f"store://{tmp_path}/there/{made.folder.name}") / MANIFEST).unlink()  # publishing was killed
    assert find_prepared(two) is None
    prepare(one, Silent())
    assert find_prepared(two) is not None


def test_a_corpus_is_trained_on_and_looked_into_by_its_url(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/there"
    publish(corpus.folder, url, Silent())
    loaded = small_recipe(tmp_path, corpus=url)  # without the text
    found = prepare(loaded, Silent())
    assert found.fingerprint == corpus.fingerprint
    assert found.folder.parent == tmp_path / "prepared"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for words in (["funnel", url], ["diff", url, str(corpus.folder)], ["funnel", str(loaded.path)]):
        told = CliRunner().invoke(cli.application, ["data", *words, "--json"], catch_exceptions=False)
        assert told.exit_code == 0, told.output
    assert len(list((tmp_path / "cache").rglob(MANIFEST))) == 1
    told = CliRunner().invoke(cli.application, ["data", "funnel", f"{url}/nothing"])
    assert told.exit_code != 0


def test_a_corpus_is_held_against_one_that_is_published(tmp_path: Path, url: str, corpus: Corpus) -> None:
    write_text_files(tmp_path / "text", documents=40)
    (tmp_path / "text" / "new.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in _NEW))
    source = [{"name": "english", "paths": ["text/english.jsonl", "text/new.jsonl"], "language": "en"}]
    fetched: dict[str, Any] = {"prepared": f"store://{tmp_path}/out", "prepared_cache": "c"}
    made = {
        one: prepare(small_recipe(tmp_path, sources=source, deduplication={"against": [one]}, **to), Silent())
        for one, to in ((url, fetched), (str(corpus.folder), {}))
    }
    one, other = made.values()
    assert one.folder.parent == tmp_path / "c"
    assert one.fingerprint == other.fingerprint
    assert folder_bytes(one.folder) == folder_bytes(other.folder)
    reasons = Ledger(one.folder).rows().collect()["reason"].to_list()
    assert reasons.count("in_earlier_corpus") > 20
    earlier = Ledger(one.folder).sample("in_earlier_corpus", 1)[0]
    told = CliRunner().invoke(
        cli.application, ["data", "why", str(tmp_path / "recipe.yaml"), earlier["identifier"]]
    )
    assert told.exit_code == 0, told.output
    with pytest.raises(BadInput, match="there is no prepared corpus at"):
        prepare(small_recipe(tmp_path, sources=source, deduplication={"against": [f"{url}/none"]}), Silent())


def test_a_dropped_document_of_a_published_corpus_reads_as_it_did_where_its_source_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_text_files(tmp_path / "text", documents=40)
    sources = [
        {"name": "english", "paths": [f"store://{tmp_path}/text/english.jsonl"], "language": "en"},
        {"name": "chinese", "paths": [f"store://{tmp_path}/text/chinese.txt"], "documents": "line"},
        {"name": "code", "paths": ["text/code"], "kind": "code"},
    ]
    made = prepare(small_recipe(tmp_path, sources=sources, prepared=f"file://{tmp_path}/there"), Silent())
    there = f"file://{tmp_path}/there/{made.fingerprint}"
    dropped = [row for row in Ledger(made.folder).sample("exact_duplicate", 50) if row["source"] != "code"]
    assert {row["source"] for row in dropped} == {"english", "chinese"}

    def why(identifier: str) -> str:
        told = CliRunner().invoke(cli.application, ["data", "why", there, identifier, "--json"])
        assert told.exit_code == 0, told.output
        (row,) = json.loads(told.stdout)
        return str(row["excerpt"] or row["excerpt_missing"])

    for row in dropped:
        file = Path(row["file"].removeprefix("store://"))
        line = file.read_bytes().decode("utf-8" if file.suffix == ".jsonl" else "gbk").splitlines()
        assert why(row["identifier"])[:20] in line[int(row["position"].split()[1]) - 1]
    (tmp_path / "text" / "english.jsonl").write_text('{"text": "another"}\n' * 60)
    assert "that has changed" in why(next(row["identifier"] for row in dropped if row["source"] == "english"))
    (tmp_path / "text" / "chinese.txt").unlink()
    assert "names no file that is there" in why(
        next(row["identifier"] for row in dropped if row["source"] == "chinese")
    )
