"""Where documents came from is found without the rows beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stoker.data.ledger.origins import BATCH_ROWS, ORIGIN, Origins, write_origins
from tests.data.ledger.drawn_ledger import MARKUP, note, row, write


@pytest.mark.parametrize("rows", [1, BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, 3 * BATCH_ROWS + 5])
def test_any_row_of_a_part_is_found_however_its_table_is_chunked(tmp_path: Path, rows: int) -> None:
    origins = [("file 文件", None if i % 7 == 0 else f"line {i}", f"page/{i}") for i in range(rows)]
    columns = {name: [one[k] for one in origins] for k, name in enumerate(ORIGIN)}
    table = pa.table(
        {**columns, "bytes": range(rows)},
        pa.schema([(name, pa.string()) for name in ORIGIN] + [("bytes", pa.int64())]),
    )
    path = tmp_path / "origins.arrow"
    with path.open("wb") as stream:
        write_origins(stream, pa.concat_tables([table.slice(0, rows // 3), table.slice(rows // 3)]))
    written = Origins(path)
    some = np.unique(np.random.default_rng(rows).integers(rows, size=40))
    assert written.at(some) == [origins[i] for i in some]
    assert written.at(np.arange(rows)) == origins


def test_documents_are_found_without_decoding_a_row_group(tmp_path: Path) -> None:
    ledger = write(tmp_path, [note("a", MARKUP)], [row("a", number) for number in range(40)])
    for part in (tmp_path / "ledger").glob("part-*.parquet"):
        part.unlink()
    found = ledger.documents("a", "train", [31, 2])
    assert [one["identifier"] for one in found.values()] == ["a/3.txt:2", "a/0.txt:3"]


def test_a_ledger_of_before_gives_the_same_origins_from_its_rows(tmp_path: Path) -> None:
    ledger = write(tmp_path, [note("a", MARKUP)], [row("a", number) for number in range(40)])
    found = ledger.documents("a", "train", range(40))
    for file in (tmp_path / "ledger").glob("origins-*"):
        file.unlink()
    assert len(found) == 40
    assert ledger.documents("a", "train", range(40)) == found
