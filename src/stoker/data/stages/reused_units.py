"""Units of input as an earlier preparation read, cleaned and signed them, for those that come after it.

    <prepared>/.units/<name>.text, .signatures, .parquet, .sha256

The name is a hash of everything that decides what is in the first three files: the input files' content, how they
are read, cleaned and signed. Adding a source, or a file behind the others of one, leaves the other units as they
are. The last file has the SHA-256 of the three, as `sha256sum` writes it: a unit of which a file is missing or not
as it was kept is read anew. So is one that sets documents aside which lacked memory, when workers may take more.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stoker.data.fingerprint import RULES, Inputs
from stoker.data.minhash import SIGNING
from stoker.data.reading.units import Unit
from stoker.data.stages.read_and_clean import is_tried_again, lacked_memory, unit_file
from stoker.durable_files import sha256_of_file, write_bytes

UNITS = ".units"
"""Their folder among the prepared corpora."""
_KINDS = ("text", "signatures", "parquet")
_SUMS = "sha256"
"""Written last: when it is there, all are."""


class ReusedUnits:
    """The units kept in one folder of prepared corpora."""

    def __init__(self, folder: Path, inputs: Inputs, worker_memory: int) -> None:
        """`worker_memory`: bytes that a worker may take."""
        self._folder, self._inputs, self._memory = folder, inputs, worker_memory

    def take(self, units: Iterable[Unit], read: Path) -> int:
        """Put what is kept of `units` into the work folder `read`; how many units that are."""
        taken = 0
        for unit in units:
            if unit_file(read, unit.number, "parquet").is_file():
                continue
            name = self._name(unit)
            with suppress(FileNotFoundError):  # not kept, or swept just now
                sums = self._file(name, _SUMS).read_bytes()
                if self._sums(name) != sums or is_tried_again(
                    lacked_memory(self._file(name, "parquet")), self._memory
                ):
                    for kind in (_SUMS, *_KINDS):  # read anew, and then kept anew
                        self._file(name, kind).unlink(missing_ok=True)
                    continue
                for kind in _KINDS:
                    _link(self._file(name, kind), unit_file(read, unit.number, kind))
                taken += 1
        return taken

    def _sums(self, name: str) -> bytes:
        """SHA-256 of what is kept of a unit. Raises `FileNotFoundError` where a file of it is missing."""
        files = [self._file(name, kind) for kind in _KINDS]
        return "".join(f"{sha256_of_file(file)}  {file.name}\n" for file in files).encode()

    def _file(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"

    def keep(self, units: Iterable[Unit], read: Path) -> None:
        """Keep the files of `units`, and no others: what an earlier preparation left and this did not use goes."""
        self._folder.mkdir(exist_ok=True)
        wanted = set()
        for unit in units:
            name = self._name(unit)
            sums = self._file(name, _SUMS)
            wanted |= {sums, *(self._file(name, kind) for kind in _KINDS)}
            if not sums.is_file():
                for kind in _KINDS:
                    _link(unit_file(read, unit.number, kind), self._file(name, kind))
                write_bytes(sums, self._sums(name))
        for file in set(self._folder.iterdir()) - wanted:
            with suppress(FileNotFoundError):  # another preparation may sweep as well
                file.unlink()

    def _name(self, unit: Unit) -> str:
        parts = [
            [part.file.name, self._inputs.digests[str(part.file.path)], part.start, part.stop, part.first_line]
            for part in unit.parts
        ]
        source = unit.source.model_dump(mode="json", exclude={"weight"})
        content = json.dumps([RULES, SIGNING, self._inputs.reading, source, parts], sort_keys=True)
        return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()[:32]


def _link(file: Path, name: Path) -> None:
    """Another name for a file; a copy where the file system has no such thing."""
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:
        partial = name.with_name(f"{name.name}.partial")
        shutil.copyfile(file, partial)
        partial.replace(name)
