"""A place under URLs that counts what is read and written, and fails when it is asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from stoker.data.corpus import Corpus
from stoker.data.prepare import prepare
from stoker.data.publishing import publish
from stoker.progress import Silent
from tests.data.small_corpus import small_recipe, write_text_files


class Store(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system of its own protocol that counts what is read and written, and can be made to fail."""

    protocol = ("store",)
    cachable = False
    read: ClassVar[Counter[str]] = Counter()
    fails_at: int | None = None
    written: ClassVar[Counter[str]] = Counter()
    """Bytes by path."""
    refuses_after: int | None = None
    """Files."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("store://")

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Counted, and refused from the `fails_at`th file of a corpus on."""
        Store.read[path] += 1
        if Store.fails_at is not None and Store.read.total() > Store.fails_at:
            raise TimeoutError("the store does not answer")
        return LocalFileSystem.open(self, path, mode, **kwargs)

    def put_file(self, here: str, there: str, **kwargs: Any) -> None:
        """Counted; after `refuses_after` files, half of one is written and then the store is gone."""
        content = Path(here).read_bytes()
        if Store.refuses_after is not None and len(Store.written) >= Store.refuses_after:
            Path(there).write_bytes(content[: len(content) // 2])
            raise TimeoutError("the store does not answer")
        Store.written[there] += len(content)
        Path(there).write_bytes(content)


@contextmanager
def counted() -> Iterator[None]:
    """URLs `store://…` lead to the store, which has counted nothing and refuses nothing."""
    fsspec.register_implementation("store", Store, clobber=True)
    Store.read, Store.fails_at = Counter(), None
    Store.written, Store.refuses_after = Counter(), None
    try:
        yield
    finally:
        Store.fails_at, Store.refuses_after = None, None


def made(folder: Path) -> Corpus:
    """A prepared corpus of three small sources."""
    write_text_files(folder / "text", documents=40)
    return prepare(small_recipe(folder, "data.held_out=0.1"), Silent())


def published(corpus: Corpus, folder: Path) -> str:
    """The URL of the corpus, published under `folder`; from here on it is counted what is read."""
    there = f"store://{folder}/there/c"
    assert publish(corpus.folder, there, Silent())
    Store.read = Counter()
    return there


def place(url: str) -> Path:
    """The folder that a URL of the store stands for."""
    return Path(url.removeprefix("store://"))
