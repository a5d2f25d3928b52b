"""A place under URLs that counts what is read and written, and fails when it is asked to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from fsspec.implementations.local import LocalFileSystem


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
