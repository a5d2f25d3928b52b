"""Published measurements: read from a CSV and checked before anything is predicted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from stoker.errors import BadInput
from stoker.planning.cluster.row_cells import as_number, problem_of, tidied

REQUIRED = (
    "id",
    "source",
    "model_name",
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "vocab",
    "seq_len",
    "gpu",
    "gpus_total",
    "tp",
    "pp",
    "dp_kind",
    "dp",
    "micro_batch",
    "global_batch_seqs",
    "recompute",
    "precision",
)
"""Columns without which no row can be understood; of what was measured at least one more is needed."""

OPTIONAL = (
    "url_or_path",
    "year",
    "params_b",
    "experts",
    "topk",
    "gpus_per_node",
    "interconnect",
    "sp",
    "vpp",
    "schedule",
    "cp",
    "ep",
    "notes",
    "use",
    "layout_complete",
    "pretrain",
)

MEASURED = ("step_time_s", "step_time_s_derived", "tokens_per_s_per_gpu", "tokens_per_s_per_gpu_derived")
MEMORY = "peak_mem_gib"

_FACTOR_OF_UNITS = 5.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: its fields in one spelling, and where it stood."""

    fields: dict[str, str]
    line: int
    problem: str = ""
    """What in the row cannot be; it is listed with it, and the others are judged."""

    @property
    def source(self) -> str:
        """Who measured."""
        return self.fields["source"]

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step as measured, or as follows from tokens a second; None where neither is given."""
        for column in ("step_time_s", "step_time_s_derived"):
            seconds = self._number(column)
            if seconds:
                return seconds
        batch, length, gpus = map(self._number, ("global_batch_seqs", "seq_len", "gpus_total"))
        rate = self.tokens_per_second_per_accelerator
        return batch * length / gpus / rate if batch and length and gpus and rate else None

    @property
    def tokens_per_second_per_accelerator(self) -> float | None:
        """As measured, or as the table's collector derived it."""
        return self._number("tokens_per_s_per_gpu") or self._number("tokens_per_s_per_gpu_derived")

    @property
    def memory_gib(self) -> float | None:
        """GiB at the highest moment, where it was measured."""
        return self._number(MEMORY)

    def _number(self, column: str) -> float | None:
        return as_number(self.fields.get(column, ""))


def read_measurements(path: Path) -> list[Measurement]:
    """The rows of `path`.

    Raises `BadInput` for what is no such table, naming the columns that are missing, and for one without a row that
    can be. Otherwise a row with a cell that cannot be carries what is wrong with it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            problems = list(_problems_of_header(path, header))
            if problems:
                raise BadInput("\n".join(problems))
            rows = list(_rows(header, reader))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); expected a CSV of measurements") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: no CSV in UTF-8 ({error})") from None
    if not rows:
        raise BadInput(f"{path}: no rows below the header; expected one for each measurement")
    if all(row.problem for row in rows):  # a column in another unit, not an odd cell
        raise BadInput("\n".join(f"{path}: line {row.line}: {row.problem}" for row in rows[:_SHOWN]))
    return rows


def _problems_of_header(path: Path, header: list[str]) -> Iterator[str]:
    if not any(header):
        yield f"{path}: line 1: empty; expected a header with {', '.join(REQUIRED)}"
        return
    for name in REQUIRED:
        if name not in header:
            yield f"{path}: line 1: column {name} is missing"
    if not set(header) & {*MEASURED, MEMORY}:
        yield f"{path}: line 1: nothing measured; expected one of {', '.join((*MEASURED, MEMORY))}"
    for name in sorted({name for name in header if name and header.count(name) > 1}):
        yield f"{path}: line 1: column {name} is there {header.count(name)} times"


def _rows(header: list[str], reader: Iterator[list[str]]) -> Iterator[Measurement]:
    for values in reader:
        if not any(value.strip() for value in values):
            continue
        problem = ""
        if len(values) != len(header):
            problem = f"{len(values)} fields, but the header has {len(header)}"
        fields = tidied(dict(zip_longest(header, values[: len(header)], fillvalue="")))
        for name in OPTIONAL:
            fields.setdefault(name, "")
        fields["source"] = fields["source"] or "source not named"
        problem = problem or problem_of(fields) or _disagreement(fields) or ""
        yield Measurement(fields, getattr(reader, "line_num", 0), problem)


def _disagreement(fields: dict[str, str]) -> str | None:
    """Step time and tokens a second of one row say the same, or one of them is in another unit."""
    names = ("step_time_s", "tokens_per_s_per_gpu", "global_batch_seqs", "seq_len", "gpus_total")
    values = [as_number(fields.get(name, "")) for name in names]
    seconds, rate, batch, length, gpus = values
    if not seconds or not rate or not batch or not length or not gpus:
        return None
    implied = batch * length / gpus / rate
    if 1 / _FACTOR_OF_UNITS < seconds / implied < _FACTOR_OF_UNITS:
        return None
    return (
        f"column step_time_s: {seconds:g} s, but tokens_per_s_per_gpu {rate:g} means {implied:.4g} s a step; "
        "expected seconds, and tokens a second on one accelerator"
    )
