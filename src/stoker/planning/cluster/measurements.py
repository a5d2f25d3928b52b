"""Published measurements: read from a CSV and checked before anything is predicted."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import BadInput

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

_COUNTS = {
    "layers": 2_000,
    "hidden": 1_000_000,
    "ffn": 4_000_000,
    "heads": 100_000,
    "kv_heads": 100_000,
    "vocab": 10_000_000,
    "seq_len": 100_000_000,
    "experts": 100_000,
    "topk": 100_000,
    "gpus_total": 10_000_000,
    "gpus_per_node": 100_000,
    "tp": 100_000,
    "pp": 10_000,
    "vpp": 10_000,
    "cp": 100_000,
    "ep": 100_000,
    "dp": 10_000_000,
    "micro_batch": 1_000_000,
    "global_batch_seqs": 100_000_000,
}
"""Whole numbers from 1 to so much: what is more is another unit."""

_AMOUNTS = {
    "step_time_s": (1e-4, 86_400.0, "seconds"),
    "step_time_s_derived": (1e-4, 86_400.0, "seconds"),
    "tokens_per_s_per_gpu": (1e-3, 1e8, "tokens a second on one accelerator"),
    "tokens_per_s_per_gpu_derived": (1e-3, 1e8, "tokens a second on one accelerator"),
    "peak_mem_gib": (0.05, 4_096.0, "GiB"),
}

_WORDS = {"sp": ("", "yes", "no"), "pretrain": ("", "yes", "no")}

_FACTOR_OF_UNITS = 5.0
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: its fields as text, and where it stood."""

    fields: dict[str, str]
    line: int

    @property
    def source(self) -> str:
        """Who measured."""
        return self.fields["source"]

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step as measured, or as follows from tokens a second; None where neither is given."""
        for column in ("step_time_s", "step_time_s_derived"):
            if self.fields.get(column):
                return float(self.fields[column])
        for column in ("tokens_per_s_per_gpu", "tokens_per_s_per_gpu_derived"):
            parts = [self.fields.get(name) for name in (column, "global_batch_seqs", "seq_len", "gpus_total")]
            if all(parts):
                rate, batch, length, gpus = (float(part or 0) for part in parts)
                return batch * length / gpus / rate
        return None

    @property
    def memory_gib(self) -> float | None:
        """GiB at the highest moment, where it was measured."""
        text = self.fields.get(MEMORY)
        return float(text) if text else None


def read_measurements(path: Path) -> list[Measurement]:
    """The rows of `path`.

    Raises `BadInput` naming line and column of what is missing or cannot be (the first 20, and how many more).
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            problems = list(_problems_of_header(path, header))
            if problems:
                raise BadInput("\n".join(problems))
            rows, problems = _rows(path, header, reader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); expected a CSV of measurements") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: no CSV in UTF-8 ({error})") from None
    if problems:
        shown = problems[:_MOST_SHOWN]
        if len(problems) > _MOST_SHOWN:
            shown.append(f"and {len(problems) - _MOST_SHOWN} more")
        raise BadInput("\n".join(shown))
    if not rows:
        raise BadInput(f"{path}: no rows below the header; expected one for each measurement")
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


def _rows(path: Path, header: list[str], reader: Iterator[list[str]]) -> tuple[list[Measurement], list[str]]:
    rows: list[Measurement] = []
    problems: list[str] = []
    seen: dict[str, int] = {}
    lines: Callable[[], int] = lambda: getattr(reader, "line_num", 0)  # noqa: E731
    for values in reader:
        line = lines()
        if not any(value.strip() for value in values):
            continue
        where = f"{path}: line {line}"
        if len(values) != len(header):
            problems.append(f"{where}: {len(values)} fields, but the header has {len(header)}")
            continue
        fields = {name: value.strip() for name, value in zip(header, values, strict=True)}
        for name in OPTIONAL:
            fields.setdefault(name, "")
        problems += [f"{where}: {problem}" for problem in _problems_of(fields)]
        if fields["id"] in seen:
            problems.append(f"{where}: column id: {fields['id']!r} is in line {seen[fields['id']]} too")
        seen[fields["id"]] = line
        rows.append(Measurement(fields, line))
    return rows, problems


def _problems_of(fields: dict[str, str]) -> Iterator[str]:
    for column in ("id", "source", "gpu", "gpus_total"):
        if not fields[column]:
            yield f"column {column}: empty"
    for column, most in _COUNTS.items():
        problem = _problem_of_count(fields.get(column, ""), most)
        if problem:
            yield f"column {column}: {problem}"
    for column, (least, greatest, unit) in _AMOUNTS.items():
        text = fields.get(column, "")
        if not text:
            continue
        value = _as_number(text)
        if value is None or not least <= value <= greatest:
            yield f"column {column}: {text!r}; expected {unit}, from {least:g} to {greatest:g}"
    disagreement = _disagreement(fields)
    if disagreement:
        yield disagreement
    for column, words in _WORDS.items():
        if fields.get(column, "").lower() not in words:
            known = ", ".join(filter(None, words))
            yield f"column {column}: {fields[column]!r}; expected one of {known} or nothing"


def _disagreement(fields: dict[str, str]) -> str | None:
    """Step time and tokens a second of one row say the same, or one of them is in another unit."""
    names = ("step_time_s", "tokens_per_s_per_gpu", "global_batch_seqs", "seq_len", "gpus_total")
    values = [_as_number(fields.get(name, "")) for name in names]
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


def _problem_of_count(text: str, most: int) -> str | None:
    if not text:
        return None
    value = _as_number(text)
    if value is None or value != int(value) or not 1 <= value <= most:
        return f"{text!r}; expected a whole number from 1 to {most:,}"
    return None


def _as_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
