"""What a row of each kind holds, and how rows become columns of a table and rows again.

A field that holds figures by name (loss by source) becomes one column for each name, called
`field.name`, so that a chart reads only the names it draws. A field of free form becomes JSON
text. What a kind does not know, or what does not fit its column, is kept as JSON in the
column `other`; nothing that was recorded is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from stoker.record.framing import Entry, plain_value

ColumnType = Literal["integer", "number", "flag", "text", "integers", "numbers", "json"]
"""`integers` and `numbers` are figures by name; `json` is of free form."""

SEQUENCE = "sequence"
OTHER = "other"

KINDS: dict[str, dict[str, ColumnType]] = {
    "step": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "loss": "number",
        "loss_by_source": "numbers",
        "loss_by_position": "numbers",
        "tokens_by_source": "integers",
        "gradient_norm": "number",
        "gradient_norm_by_module": "numbers",
        "learning_rate": "number",
        "tokens": "integer",
        "tokens_seen": "integer",
        "first_sample": "integer",
        "last_sample": "integer",
        "given_samples": "json",
        "batch_digest": "text",
        "accumulation": "integer",
        "clipped": "flag",
        "skipped": "flag",
        "loss_scale": "number",
        "dead_updates": "number",
        "update_norm": "number",
        "weight_norm": "number",
        "began": "number",
        "seconds": "numbers",
        "arrived": "numbers",
        "waited": "numbers",
        "work_seconds": "number",
        "read_ahead": "integer",
        "memory_peak_bytes": "integer",
        "memory_reserved_bytes": "integer",
        "memory_allocated_bytes": "integer",
        "host_memory_bytes": "integer",
        "ranks": "integer",
    },
    "routing": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "module": "text",
        "largest_load": "number",
        "smallest_load": "number",
        "dropped": "number",
        "entropy": "number",
        "auxiliary_loss": "number",
        "z_loss": "number",
        "tokens_by_expert": "integers",
    },
    "module": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "module": "text",
        "parameters": "integer",
        "weight_rms": "number",
        "gradient_norm": "number",
        "gradient_rms": "number",
        "update_rms": "number",
        "update_to_weight": "number",
        "output_rms": "number",
        "output_largest": "number",
        "attention_logit": "number",
        "attention_entropy": "number",
        "dead_units": "number",
        "logit_rms": "number",
        "logit_largest": "number",
    },
    "document": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "sample": "integer",
        "source": "text",
        "first_token": "integer",
        "tokens": "integer",
        "loss": "number",
    },
    "machine": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "utilisation": "number",
        "memory_used_bytes": "integer",
        "memory_total_bytes": "integer",
        "temperature_celsius": "number",
        "clock_hertz": "number",
        "power_watts": "number",
        "ecc_errors": "integer",
        "throttled": "flag",
        "throttle_reasons": "text",
        "processor_share": "number",
        "host_memory_used_bytes": "integer",
        "host_memory_total_bytes": "integer",
        "network_sent_bytes": "integer",
        "network_received_bytes": "integer",
        "network_latency_seconds": "number",
    },
    "timeline": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "began": "number",
        "spans": "json",
    },
    "evaluation": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "source": "text",
        "loss": "number",
        "tokens": "integer",
        "bytes": "integer",
        "perplexity": "number",
        "bits_per_byte": "number",
    },
    "sample": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "prompt": "text",
        "text": "text",
    },
    "event": {
        "attempt": "integer",
        "step": "integer",
        "time": "number",
        "event": "text",
        "detail": "json",
    },
}

_TYPES: dict[ColumnType, Any] = {
    "integer": pl.Int64,
    "number": pl.Float64,
    "flag": pl.Boolean,
    "text": pl.String,
    "integers": pl.Int64,
    "numbers": pl.Float64,
    "json": pl.String,
}
_BY_NAME: dict[ColumnType, ColumnType] = {"integers": "integer", "numbers": "number"}
_INT64_LIMIT = 2**63


@dataclass(frozen=True)
class _Unfit:
    """Stands for a value that its column cannot hold."""


_UNFIT = _Unfit()


def _fitted(value: Any, column_type: ColumnType) -> Any:
    """`value` as its column holds it, or `_UNFIT`. None fits everywhere and stays None."""
    if value is None:
        return None
    if column_type == "json":
        return _json(value)
    if column_type == "flag":
        return value if isinstance(value, bool) else _UNFIT
    if column_type == "text":
        return value if isinstance(value, str) else _UNFIT
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNFIT
    if column_type == "number":
        return float(value) if isinstance(value, float) or abs(value) < 2**53 else _UNFIT
    if isinstance(value, float):
        value = int(value) if value.is_integer() else _UNFIT
    return value if isinstance(value, int) and -_INT64_LIMIT <= value < _INT64_LIMIT else _UNFIT


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_value)


def _flat(entry: Entry, types: dict[str, Any]) -> dict[str, Any]:
    """One row as columns; notes the type of every column met in `types`."""
    columns: dict[str, Any] = {SEQUENCE: entry.sequence}
    other: dict[str, Any] = {}
    known = KINDS.get(entry.kind, {})
    for field, value in entry.row.items():
        column_type = known.get(field)
        if column_type is None:
            other[field] = value
        elif column_type in _BY_NAME and isinstance(value, dict):
            unfit = _flatten_names(field, value, column_type, columns, types)
            if unfit:
                other[field] = unfit
        else:
            fitted = _UNFIT if column_type in _BY_NAME and value is not None else _fitted(value, column_type)
            if fitted is _UNFIT:
                other[field] = value
            elif column_type not in _BY_NAME:
                columns[field] = fitted
    if other:
        columns[OTHER] = _json(other)
        types[OTHER] = pl.String
    return columns


def _flatten_names(
    field: str, value: dict[Any, Any], column_type: ColumnType, columns: dict[str, Any], types: dict[str, Any]
) -> dict[str, Any]:
    """Add `field.name` columns; returns the named values that do not fit."""
    unfit = {}
    for name, figure in value.items():
        fitted = _fitted(figure, _BY_NAME[column_type])
        if fitted is _UNFIT:
            unfit[str(name)] = figure
        else:
            columns[f"{field}.{name}"] = fitted
            types[f"{field}.{name}"] = _TYPES[column_type]
    return unfit


def table_of(kind: str, entries: Iterable[Entry], wanted: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of one kind as a table, in the order given, with the column `sequence`.

    `wanted` names the fields to take; None takes all.
    """
    known = KINDS.get(kind, {})
    if wanted is not None:
        entries = (Entry(e.kind, e.sequence, {f: e.row[f] for f in wanted if f in e.row}) for e in entries)
    types: dict[str, Any] = {SEQUENCE: pl.Int64}
    types |= {field: _TYPES[t] for field, t in known.items() if t not in _BY_NAME}
    rows = [_flat(entry, types) for entry in entries]
    return pl.DataFrame(
        {name: pl.Series(name, [row.get(name) for row in rows], dtype=dtype) for name, dtype in types.items()}
    )


def columns_wanted(available: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Which of the `available` columns `wanted` names: `loss_by_source` stands for all its sources."""
    if wanted is None:
        return list(available)
    return [name for name in available if name in wanted or name.split(".", 1)[0] in wanted]


def names_of(table: pl.DataFrame, field: str) -> list[str]:
    """The names under which `field` holds figures, in order of first appearance (`["english", "chinese"]`)."""
    prefix = field + "."
    return [column[len(prefix) :] for column in table.columns if column.startswith(prefix)]


def rows_of(kind: str, table: pl.DataFrame) -> list[dict[str, Any]]:
    """The table's rows as they were recorded: figures by name gathered again, absent values left out."""
    by_name = {field for field, column_type in KINDS.get(kind, {}).items() if column_type in _BY_NAME}
    as_json = {field for field, column_type in KINDS.get(kind, {}).items() if column_type == "json"}
    rows = []
    for columns in table.iter_rows(named=True):
        row: dict[str, Any] = {}
        for column, value in columns.items():
            field, _, name = column.partition(".")
            if value is None:
                continue
            if name and field in by_name:
                row.setdefault(field, {})[name] = value
            elif column == OTHER:
                _merge(row, json.loads(value))
            else:
                row[column] = json.loads(value) if column in as_json else value
        rows.append(row)
    return rows


def _merge(row: dict[str, Any], other: dict[str, Any]) -> None:
    for field, value in other.items():
        if isinstance(value, dict) and isinstance(row.get(field), dict):
            row[field] |= value
        else:
            row[field] = value
