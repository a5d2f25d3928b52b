"""A corpus is published whole and once, goes on where it was broken off, and writes over nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from typer.testing import CliRunner

from stoker import cli
from stoker.data.corpus import MANIFEST, Corpus
from stoker.data.exchange.exporting import export_corpus
from stoker.data.exchange.importing import import_megatron
from stoker.data.imported import is_imported, remedy
from stoker.data.place_of_url import LISTING
from stoker.data.prepare import prepare
from stoker.data.published import bring
from stoker.data.publishing import publish
from stoker.errors import BadInput, StokerError
from stoker.progress import Silent
from stoker.recipe import Tokenizer
from tests.data.counted_store import Store, counted, made, place, published
from tests.data.small_corpus import folder_bytes, small_recipe


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


def test_the_manifest_is_published_last(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    put, pipe = LocalFileSystem.put_file, LocalFileSystem.pipe_file
    monkeypatch.setattr(Store, "put_file", lambda *a: (written.append(Path(a[2]).name), put(*a)))
    monkeypatch.setattr(Store, "pipe_file", lambda *a: (written.append(Path(a[1]).name), pipe(*a)))
    url = f"store://{tmp_path}/there"
    assert publish(corpus.folder, url, Silent())
    assert written[-2:] == [LISTING, MANIFEST]
    assert len(written) == len(folder_bytes(corpus.folder)) + 1  # the listing
    assert not publish(corpus.folder, url, Silent())


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("sent", [1, 4, 7])
def test_a_publication_that_was_broken_off_sends_nothing_again(
    corpus: Corpus, tmp_path: Path, sent: int, noted: bool
) -> None:
    own = tmp_path / "own" / "c"
    shutil.copytree(corpus.folder, own)
    url = f"store://{tmp_path}/there"
    Store.refuses_after = sent
    with pytest.raises(StokerError, match=r"could not be written: the store does not answer"):
        publish(own, url, Silent())
    first, Store.written, Store.refuses_after = Store.written, Counter(), None
    notes = list(own.parent.glob(".publish-*"))
    assert len(notes) == 1
    if not noted:  # as on another machine: what stands there is read and compared
        notes[0].unlink()
    assert len(first) == sent
    assert publish(own, url, Silent())
    assert not first.keys() & Store.written.keys()
    sizes = {name: len(content) for name, content in folder_bytes(corpus.folder).items()}
    assert first.total() + Store.written.total() == sum(sizes.values())
    assert set(Store.read) & set(first) == (set() if noted else set(first))
    assert not list(own.parent.glob(".publish-*"))
    assert bring(url, tmp_path / "here", Silent())
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)


def test_what_was_changed_at_the_url_since_it_was_sent_is_sent_again(corpus: Corpus, tmp_path: Path) -> None:
    own, url = tmp_path / "own" / "c", f"store://{tmp_path}/there"
    shutil.copytree(corpus.folder, own)
    Store.refuses_after = 4
    with pytest.raises(StokerError):
        publish(own, url, Silent())
    changed = Path(next(iter(Store.written)))
    content = bytearray(changed.read_bytes())
    content[0] ^= 1
    changed.write_bytes(content)
    os.utime(changed, (1, 1))
    Store.refuses_after = None
    assert publish(own, url, Silent())
    assert bring(url, tmp_path / "here", Silent())
    assert folder_bytes(tmp_path / "here") == folder_bytes(corpus.folder)


def test_two_machines_that_publish_at_once_leave_one_whole_corpus(corpus: Corpus, tmp_path: Path) -> None:
    one, two, url = tmp_path / "one" / "c", tmp_path / "two" / "c", f"store://{tmp_path}/there"
    for own, seconds in ((one, 1), (two, 2)):
        shutil.copytree(corpus.folder, own)
        (own / "timings.json").write_text(json.dumps({"seconds": seconds}))
    publish(one, url, Silent())
    listing = (tmp_path / "there" / LISTING).read_bytes()
    (tmp_path / "there" / MANIFEST).unlink()  # the other began before the manifest was there
    publish(two, url, Silent())
    assert (tmp_path / "there" / LISTING).read_bytes() == listing
    assert bring(url, tmp_path / "here", Silent())


def test_a_bucket_that_is_not_there_is_not_made(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a bucket was made")

    monkeypatch.setattr(Store, "exists", lambda _, path: path != "no-such-bucket")
    monkeypatch.setattr(Store, "makedirs", refused)
    with pytest.raises(StokerError, match="there is no `no-such-bucket`"):
        publish(corpus.folder, "store://no-such-bucket/corpora/c", Silent())


def test_another_corpus_at_a_url_is_not_written_over(corpus: Corpus, url: str, tmp_path: Path) -> None:
    (place(url) / MANIFEST).write_text("{}")
    with pytest.raises(BadInput, match="another corpus than this one stands at"):
        publish(corpus.folder, url, Silent())
    assert (place(url) / MANIFEST).read_text() == "{}"


def test_no_permission_names_the_credentials(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("Forbidden")

    monkeypatch.setattr(Store, "put_file", refused)
    with pytest.raises(StokerError, match="Forbidden; look at the credentials"):
        publish(corpus.folder, f"store://{tmp_path}/there", Silent())


def test_an_imported_corpus_is_published_and_trained_on_by_its_url(tmp_path: Path, corpus: Corpus) -> None:
    url = f"store://{tmp_path}/there/imported"
    export_corpus(corpus, tmp_path / "exported", "megatron", Silent())
    prefix = next((tmp_path / "exported").glob("english*train*.bin")).with_suffix("")
    settings = Tokenizer(path=str(corpus.tokenizer_path))
    import_megatron([prefix], settings, tmp_path / "imported", 0.1, Silent())
    for word in ("published", "stands there already"):
        told = CliRunner().invoke(cli.application, ["data", "publish", str(tmp_path / "imported"), url])
        assert told.exit_code == 0, told.output
        assert word in told.output
    sources = [{"name": prefix.name, "paths": ["nothing"]}]
    found = prepare(small_recipe(tmp_path, sources=sources, corpus=url), Silent())
    assert is_imported(found.manifest)
    assert folder_bytes(found.folder) == folder_bytes(tmp_path / "imported")
    assert "the same command fetches it anew" in remedy(found.folder)
    told = CliRunner().invoke(cli.application, ["data", "publish", str(corpus.folder), str(tmp_path)])
    assert isinstance(told.exception, BadInput)
    assert "is no URL" in str(told.exception)
