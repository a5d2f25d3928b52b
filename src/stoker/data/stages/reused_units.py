"""Units of input as an earlier preparation read, cleaned and signed them, for those that come after it.

    <prepared>/.units/<name>.text, .signatures, .parquet

The name is a hash of everything that decides what is in the three files: the input files' content, how they are
read, cleaned and signed. Adding a source, or a file behind the others of one, leaves the other units as they are. A
unit of which a file is cut short or missing is read anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stoker.data.fingerprint import RULES, Inputs
from stoker.data.minhash import SIGNING
from stoker.data.reading.units import Unit
from stoker.data.stages.read_and_clean import unit_file

UNITS = ".units"
"""Their folder among the prepared corpora."""
_KINDS = ("text", "signatures", "parquet")
"""The last is linked last: when it is there, all are."""


class ReusedUnits:
    """The units kept in one folder of prepared corpora."""

    def __init__(self, folder: Path, inputs: Inputs) -> None:
        self._folder, self._inputs = folder, inputs

    def take(self, units: Iterable[Unit], read: Path) -> int:
        """Put what is kept of `units` into the work folder `read`; how many units that are."""
        taken = 0
        for unit in units:
            if unit_file(read, unit.number, "parquet").is_file():
                continue
            kept = [self._folder / f"{self._name(unit)}.{kind}" for kind in _KINDS]
            with suppress(FileNotFoundError):  # not kept, or swept just now
                if not self._are_whole(*kept):
                    for file in kept:  # read anew, and then kept anew
                        file.unlink(missing_ok=True)
                    continue
                for kind, file in zip(_KINDS, kept, strict=True):
                    _link(file, unit_file(read, unit.number, kind))
                taken += 1
        return taken

    def _are_whole(self, text: Path, signatures: Path, table: Path) -> bool:
        """Whether the files are as long as the rows say. Raises `FileNotFoundError` where the table is missing."""
        with open(table, "rb") as stream:
            try:
                sizes = pq.read_table(stream, columns=["text_bytes"], use_threads=False)["text_bytes"].drop_null()
            except (pa.ArrowException, OSError, KeyError):
                return False
        row = 4 * int(self._inputs.reading["signing"]["permutations"])
        wanted = {text: pc.sum(sizes).as_py() or 0, signatures: row * len(sizes)}
        return all(file.is_file() and file.stat().st_size == size for file, size in wanted.items())

    def keep(self, units: Iterable[Unit], read: Path) -> None:
        """Keep the files of `units`, and no others: what an earlier preparation left and this did not use goes."""
        self._folder.mkdir(exist_ok=True)
        wanted = set()
        for unit in units:
            for kind in _KINDS:
                file = self._folder / f"{self._name(unit)}.{kind}"
                wanted.add(file)
                if not file.is_file():
                    _link(unit_file(read, unit.number, kind), file)
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
