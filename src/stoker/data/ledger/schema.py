"""What a ledger holds, and how it lies on disk.

    <corpus>/ledger/ledger.json              how many rows; what each source's documents went through
                    part-000000.parquet      one row for each document and each fault, in reading order
                    origins-000000.arrow     file, position and identifier of the rows of that part, to find a few
                    summary.parquet          rows, bytes, … by everything that a funnel is asked for
                    cuts.parquet             in how many documents that stay something was cut, by the same
                    files.parquet            each file: its first row, and how many
                    identifiers.index        hashes of all identifiers in order, and their rows
                    places.rows              the row of every document of every split

Every part but the last has `PART_ROWS` rows and every row group but the last of a part `GROUP_ROWS`, so the place
of a row follows from its number.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

FORMAT = 2
"""Raised when a reader of the format before would not understand."""
PART_ROWS = 1 << 18
GROUP_ROWS = 1 << 13
"""Few enough that one document is found without reading many others, enough to compress well."""

DESCRIPTION = "ledger.json"
SUMMARY = "summary.parquet"
CUT_SUMS = "cuts.parquet"
FILES = "files.parquet"
IDENTIFIERS = "identifiers.index"
PLACES = "places.rows"

MEASURE = "measure."
"""Begins the name of the column of a measure."""

LEDGER_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("kind", pa.string()),
        ("language", pa.string()),
        ("file", pa.string()),
        ("position", pa.string()),
        ("identifier", pa.string()),
        ("sha256", pa.binary(32)),
        ("characters", pa.int64()),
        ("bytes", pa.int64()),
        ("cjk_characters", pa.int64()),
        ("formula_characters", pa.int64()),
        ("code_characters", pa.int64()),
        ("verdict", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("duplicate_source", pa.string()),
        ("duplicate_of", pa.string()),
        ("similarity", pa.float64()),
        ("host_furniture", pa.int64()),
        ("repeated_paragraphs", pa.int64()),
        ("repeated_lines", pa.int64()),
        ("repeated_substrings", pa.int64()),
        ("split", pa.string()),
        ("document", pa.int64()),
        ("tokens", pa.int64()),
    ]
)
"""`sha256`, `characters`, `bytes` and the characters by class are of the text as it was read; `kind` and `language`
as they were when its way ended. `verdict`: kept, held_out, dropped or fault; for the last two `stage` says where it
ended (`reading`, the name of an operator, or `selection`) and `reason` why. A repeated document names the one it
repeats (`duplicate_source`, `duplicate_of`). `host_furniture` and `repeated_…` are the characters that selection
cut out of a document. A document that is kept or held out has its `split`, its index there and its `tokens`. A
float32 column for each measure follows, `measure.<name>`, null where it was not taken."""

CUTS = ("host_furniture", "repeated_paragraphs", "repeated_lines", "repeated_substrings")
"""Columns that count the characters of passages which selection cut out. Older ledgers may lack some."""

READING, SELECTION = "reading", "selection"
"""Stages before the first operator and after the last."""

DUPLICATES = (
    "held_out_exact_duplicate",
    "held_out_near_duplicate",
    "held_out_near_training_text",
    "exact_duplicate",
    "near_duplicate",
)
"""Reasons that selection gives."""


def ledger_schema(measures: Sequence[str]) -> pa.Schema:
    """`LEDGER_SCHEMA` and the columns of some measures."""
    return pa.schema([*LEDGER_SCHEMA, *measure_fields(measures)])


def measure_fields(measures: Sequence[str]) -> list[pa.Field]:
    """The columns of some measures."""
    return [pa.field(MEASURE + name, pa.float32()) for name in measures]


def part_name(number: int) -> str:
    """The file of part `number`, from 0."""
    return f"part-{number:06d}.parquet"


def origins_name(number: int) -> str:
    """The file of the origins of part `number`. Older ledgers have none."""
    return f"origins-{number:06d}.arrow"
