"""Answers from a ledger: what became of a document, what a filter dropped, where a step's text came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from stoker.data.imported import remedy
from stoker.data.ledger.description import Description
from stoker.data.ledger.funnel import funnel_of
from stoker.data.ledger.index import PLACE, Hashes, Identifiers, Places
from stoker.data.ledger.origins import ORIGIN, Origin, Origins
from stoker.data.ledger.schema import (
    CUT_SUMS,
    DESCRIPTION,
    FILES,
    FORMAT,
    IDENTIFIERS,
    PLACES,
    SUMMARY,
    ledger_schema,
    origins_name,
    part_name,
)
from stoker.errors import StokerError

Integers = npt.NDArray[np.int64]
_Opened = TypeVar("_Opened")


class Ledger:
    """Read a prepared corpus's ledger. Everything is read when it is asked for, and no more than that."""

    def __init__(self, corpus: Path) -> None:
        """`corpus` is the folder of a prepared corpus. Raises `StokerError` when it has no ledger, one of an older
        format, or a damaged one."""
        self.corpus = corpus
        self._folder = corpus / "ledger"
        self.description = self._described()
        """How large it is, and what the documents of each source went through."""
        self.schema = ledger_schema(self.description.measures)

    def rows(self) -> pl.LazyFrame:
        """All rows, to be queried; columns as in `LEDGER_SCHEMA`, then those of the measures."""
        return pl.scan_parquet([self._part(number) for number in range(self._parts)])

    def summary(self) -> pl.DataFrame:
        """Sums by everything that a funnel is asked for, see `stoker.data.ledger.summary`."""
        return self._frame(SUMMARY)

    def cuts(self) -> pl.DataFrame | None:
        """In how many of the documents that stay something was cut, see `stoker.data.ledger.cuts`.

        None of a ledger of before, which does not say it.
        """
        return self._frame(CUT_SUMS) if (self._folder / CUT_SUMS).exists() else None

    def funnel(self) -> list[dict[str, Any]]:
        """From what was read to what is trained on, stage by stage for each source: see `funnel_of`."""
        names = [source.name for source in self.description.sources]
        try:
            return funnel_of(self.summary(), names, self.description.stages)
        except KeyError as error:
            raise self._damaged(self._folder / DESCRIPTION, f"it does not know the source {error}") from None

    def why(self, name: str, most: int | None = None) -> list[dict[str, Any]]:
        """Rows of the document with this identifier, or else of all documents and faults of this file, in order.

        Of a file, at most the first `most`.
        """
        named = self.named(name)
        runs = self._files.filter(pl.col("file") == name)
        if not runs.height:
            return named
        rows = np.concatenate([np.arange(first, first + count) for _, first, count in runs.iter_rows()])
        return self.at(rows[:most])

    def named(self, identifier: str) -> list[dict[str, Any]]:
        """Rows with this identifier, in order."""
        return [row for row in self.at(self._identifiers.rows(identifier)) if row["identifier"] == identifier]

    def standing_at(self, file: str, number: int) -> list[dict[str, Any]]:
        """Rows of what begins at this line, row or page of a file, in order."""
        there = pl.col("position").str.contains(rf"^[a-z]+ {number}(,|$)")
        return self.at(self.chosen((pl.col("file") == file) & there).to_numpy())

    def rows_of(self, name: str) -> int:
        """How many documents and faults a file has."""
        return int(self._files.filter(pl.col("file") == name)["rows"].sum())

    def files_like(self, name: str) -> list[str]:
        """Files that `name` may mean: the one that an absolute path ends with, or all that end with `name`."""
        last = name.rpartition("/")[2]
        found = self._files["file"].filter(self._files["file"].str.ends_with(last)).unique().sort().to_list()
        if name.startswith("/"):
            inside = [file for file in found if f"/{name}".endswith(f"/{_below(file)}")]
            longest = max((len(_below(file)) for file in inside), default=0)
            return [file for file in inside if len(_below(file)) == longest]
        return [file for file in found if file.endswith((f"/{name}", f":{name}"))]

    def sample(self, reason: str, count: int) -> list[dict[str, Any]]:
        """Up to `count` rows with this reason or verdict, spread evenly over the ledger."""
        rows = self.chosen((pl.col("reason") == reason) | (pl.col("verdict") == reason)).to_numpy()
        if len(rows) > count > 0:
            rows = rows[np.arange(count) * len(rows) // count]
        return self.at(rows[: max(count, 0)])

    def chosen(self, condition: pl.Expr) -> pl.Series:
        """Numbers of the rows that meet a condition, in order."""
        return self.collected(self.rows().with_row_index("row").filter(condition).select("row"))["row"]

    def document(self, source: str, split: str, index: int) -> dict[str, Any] | None:
        """The row of one document of a split (`train` or `held_out`), None when there is none."""
        rows = self._rows_of_documents(source, split, [index])
        return self.at(list(rows.values()))[0] if rows else None

    def documents(self, source: str, split: str, indices: Iterable[int]) -> dict[int, dict[str, Any]]:
        """`file`, `position` and `identifier` of several documents of a split, by index; without those that are not
        there."""
        rows = self._rows_of_documents(source, split, indices)
        return dict(zip(rows, self._origins(np.asarray(list(rows.values()), np.int64)), strict=True))

    def at(self, rows: Sequence[int] | Integers, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The rows with these numbers, in the order given; `sha256` in hexadecimal."""
        wanted = np.asarray(rows, np.int64)
        if not len(wanted):
            return []
        part_rows, group_rows = self.description.part_rows, self.description.group_rows
        tables: list[pa.Table] = []
        for part in np.unique(wanted // part_rows).tolist():
            own = np.unique(wanted[wanted // part_rows == part]) - part * part_rows
            file = self._opened(self._part(part), pq.ParquetFile)
            for group in np.unique(own // group_rows).tolist():
                inside = own[own // group_rows == group] - group * group_rows
                tables.append(self._group(file, part, group, columns).take(pa.array(inside)))
        found = dict(zip(np.unique(wanted).tolist(), pa.concat_tables(tables).to_pylist(), strict=True))
        for row in found.values():
            if row.get("sha256") is not None:
                row["sha256"] = row["sha256"].hex()
        return [found[row] for row in wanted.tolist()]

    def hashes(self) -> tuple[Hashes, Places]:
        """The hashes of all identifiers, ascending, and the rows that have them. Both [rows]."""
        hashes, places = self._identifiers.in_order()
        if len(places) and int(places.max()) >= len(places):
            raise self._damaged(
                self._folder / IDENTIFIERS, f"it names row {int(places.max()):,} of {len(places):,}"
            )
        return hashes, places

    def columns(self, names: Sequence[str | pl.Expr]) -> pl.DataFrame:
        """Some columns of all rows."""
        return self.collected(self.rows().select(names))

    @property
    def _parts(self) -> int:
        return max(1, -(-self.description.rows // self.description.part_rows))

    def _part(self, number: int) -> Path:
        return self._folder / part_name(number)

    @cached_property
    def _identifiers(self) -> Identifiers:
        return self._opened(self._folder / IDENTIFIERS, lambda path: Identifiers(path, self.description.rows))

    @cached_property
    def _files(self) -> pl.DataFrame:
        return self._frame(FILES)

    def _rows_of_documents(self, source: str, split: str, indices: Iterable[int]) -> dict[int, int]:
        wanted = list(dict.fromkeys(int(index) for index in indices))
        for stretch in self.description.stretches:
            if (stretch.source, stretch.split) == (source, split):
                places = self._opened(self._folder / PLACES, lambda path: np.memmap(path, PLACE, mode="r"))
                there = [index for index in wanted if 0 <= index < stretch.documents]
                try:
                    rows = places[np.asarray(there, np.int64) + stretch.first]
                except IndexError:
                    raise self._damaged(self._folder / PLACES, "it is cut short") from None
                return dict(zip(there, rows.tolist(), strict=True))
        return {}

    def _origins(self, rows: Integers) -> list[dict[str, Any]]:
        """`ORIGIN` of the rows with these numbers, in the order given."""
        if not len(rows) or not (self._folder / origins_name(0)).is_file():  # as in a ledger of before
            return self.at(rows, ORIGIN)
        wanted, places = np.unique(rows, return_inverse=True)
        parts, firsts = np.unique(wanted // self.description.part_rows, return_index=True)
        inside = np.split(wanted % self.description.part_rows, firsts[1:])
        found: list[Origin] = []
        for part, own in zip(parts.tolist(), inside, strict=True):
            found += self._origins_in(part, own)
        return [dict(zip(ORIGIN, found[place], strict=True)) for place in places.tolist()]

    def _origins_in(self, part: int, rows: Integers) -> list[Origin]:
        path = self._folder / origins_name(part)
        try:
            return self._opened(path, Origins).at(rows)
        except (pa.ArrowException, OSError, ValueError, IndexError, KeyError) as error:
            raise self._damaged(path, _first_line(error)) from None

    def _group(self, file: pq.ParquetFile, part: int, group: int, columns: Sequence[str] | None) -> pa.Table:
        try:
            return file.read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError, IndexError) as error:
            raise self._damaged(self._part(part), _first_line(error)) from None

    def _frame(self, name: str) -> pl.DataFrame:
        table = self._opened(self._folder / name, lambda path: pq.read_table(path, use_threads=False))
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def collected(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """What a query over `rows` gives; a part that cannot be read is a `StokerError` that names the remedy."""
        try:
            return frame.collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self._damaged(self._folder, _first_line(error)) from None

    def _described(self) -> Description:
        path = self._folder / DESCRIPTION
        if not path.is_file():
            if (self._folder / part_name(0)).is_file():
                raise StokerError(
                    f"{self._folder} is of an older format, which says less of each document; {remedy(self.corpus)}"
                )
            raise StokerError(f"{self._folder} holds no ledger; {remedy(self.corpus)}")
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            if written["format"] != FORMAT:
                raise ValueError(f"format {FORMAT} expected, found {written['format']}")
            return Description.from_json(written)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(path, _first_line(error)) from None

    def _opened(self, path: Path, opening: Callable[[Path], _Opened]) -> _Opened:
        if not path.is_file():  # a folder would be read as a table of all that is in it
            raise self._damaged(path, "missing")
        try:
            return opening(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(path, _first_line(error)) from None

    def _damaged(self, path: Path, what: str) -> StokerError:
        return StokerError(f"{path}: {what}. The ledger is damaged: {remedy(self.corpus)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _below(file: str) -> str:
    """A file's name without the steps up from the recipe's folder that it may begin with."""
    while file.startswith("../"):
        file = file.removeprefix("../")
    return file
