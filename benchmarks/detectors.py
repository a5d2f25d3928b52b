"""`stoker diagnose` on curves of other people's runs, with known incidents and without, and how long it takes.

    .venv/bin/python benchmarks/detectors.py FOLDER
    .venv/bin/python benchmarks/detectors.py FOLDER --findings
    .venv/bin/python benchmarks/detectors.py --rows 1000000

FOLDER holds Megatron-LM's or BigScience's logs as CSV files (columns `step` or `iteration`, `lm loss` or
`lm_loss`, …) and modded-nanogpt's (`file`, `step`, `train_loss`, `val_loss`), which may be compressed. Curves
in a folder `steady` are known to be without incident: whatever is found there above a note is false. Prints a
table of curves, rows, steps, findings, and false ones for every 10,000 steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from stoker.console import print_result, table
from stoker.diagnosis import Finding, RunRows, find_all

_COLUMNS = {
    "iteration": "step",
    "lm loss": "loss",
    "lm_loss": "loss",
    "train_loss": "loss",
    "learning rate": "learning_rate",
    "lr": "learning_rate",
    "grad norm": "gradient_norm",
    "grad_norm": "gradient_norm",
    "loss scale": "loss_scale",
    "number of skipped iterations": "skipped",
    "elapsed time per iteration (s)": "seconds.total",
    "iteration-time": "seconds.total",
    "consumed tokens": "tokens_seen",
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--findings", action="store_true", help="print every finding")
    parser.add_argument("--rows", type=int, default=0, help="time a drawn run of so many rows")
    given = parser.parse_args()
    if given.folder:
        _judge(given.folder, given.findings)
    if given.rows:
        _time(given.rows)


def _judge(folder: Path, with_findings: bool) -> None:
    lines = []
    steps_of_steady = false = 0
    for name, rows in _curves(folder):
        found = find_all(rows)
        steps = rows.steps
        length = int(steps[-1] - steps[0])
        remarkable = [one for one in found if one.severity != "note"]
        steady = name.startswith("steady")
        if steady:
            steps_of_steady += length
            false += len(remarkable)
        per = 1e4 * len(remarkable) / max(length, 1) if steady else None
        if remarkable or not steady or len(lines) < 6:
            said = "; ".join(f"{one.severity} {one.kind} {one.first_step}–{one.last_step}" for one in remarkable)
            lines.append([name[-58:], steps.size, length, len(found), len(remarkable), per, said])
        if with_findings:
            for one in found:
                print(name, _told(one))
    headers = ["curve", "rows", "steps", "findings", "above note", "false per 10,000 steps", "which"]
    print_result(table(headers, lines))
    if steps_of_steady:
        per = 1e4 * false / steps_of_steady
        print_result(f"steady curves: {steps_of_steady:,} steps, {false} false, {per:.3f} per 10,000 steps")


def _told(one: Finding) -> str:
    seen = "; ".join(f"{e.measure}: {e.expected} -> {e.observed} at {e.step}" for e in one.evidence)
    return f"{one.severity} {one.kind} {one.first_step}–{one.last_step} {one.confidence:.2f} [{seen}]"


def _curves(folder: Path) -> Iterator[tuple[str, RunRows]]:
    for path in sorted([*folder.rglob("*.csv"), *folder.rglob("*.csv.gz")]):
        content = pl.read_csv(path, infer_schema_length=None, null_values=["nan", ""])
        name = str(path.relative_to(folder))
        by = next((column for column in ("run", "file") if column in content.columns), None)
        if by is None:
            yield name, _rows(content)
            continue
        for (own,), part in content.group_by(by, maintain_order=True):
            for column in ("train_loss", "val_loss") if "val_loss" in part.columns else ("lm_loss",):
                curve = part.drop_nulls(column)
                # Some files hold several runs one after another.
                runs = np.cumsum(np.diff(curve.get_column(curve.columns[_step_column(curve)]), prepend=0) < 0)
                for number in (
                    np.unique(runs) if column.endswith("_loss") and "val_loss" in part.columns else [None]
                ):
                    one = curve if number is None else curve.filter(pl.Series(runs == number))
                    one = one.drop([other for other in ("train_loss", "val_loss") if other != column], strict=False)
                    if one.height > 3:
                        yield f"{name}:{own}:{column}:{number or 0}", _rows(one.rename({column: "loss"}))


def _step_column(content: pl.DataFrame) -> int:
    return next(i for i, column in enumerate(content.columns) if column in ("step", "iteration"))


def _rows(content: pl.DataFrame) -> RunRows:
    content = content.rename({old: new for old, new in _COLUMNS.items() if old in content.columns})
    if "gradient_norm" in content.columns:  # 0.000 stands where it was not measured
        content = content.with_columns(pl.when(pl.col("gradient_norm") > 0).then(pl.col("gradient_norm")))
    kept = content.unique("step", keep="last", maintain_order=True).sort("step")
    return RunRows(table=kept.filter(pl.any_horizontal(pl.exclude("step").is_not_null())))


def _time(rows: int) -> None:
    draw = np.random.default_rng(0)
    steps = np.arange(1, rows + 1)
    loss = (1.7 + 9 * steps**-0.3) * np.exp(0.01 * draw.standard_normal(rows))
    content = pl.DataFrame(
        {
            "step": steps,
            "time": 1.7e9 + steps * 0.5,
            "loss": loss,
            "loss_by_source.a": loss * np.exp(0.01 * draw.standard_normal(rows)),
            "loss_by_source.b": loss * np.exp(0.01 * draw.standard_normal(rows)),
            "gradient_norm": np.exp(0.1 * draw.standard_normal(rows)),
            "learning_rate": np.full(rows, 3e-4),
            "tokens": np.full(rows, 2**20),
            "first_sample": steps * 256,
            "last_sample": steps * 256 + 256,
            "memory_peak_bytes": np.full(rows, 2**36),
            **{f"seconds.{n}": 0.1 * np.exp(0.01 * draw.standard_normal(rows)) for n in ("forward", "backward")},
            "seconds.total": 0.5 * np.exp(0.01 * draw.standard_normal(rows)),
        }
    )
    begun = time.perf_counter()
    found = find_all(RunRows(table=content))
    print_result(f"{rows:,} rows: {time.perf_counter() - begun:.1f} s, {len(found)} findings")


if __name__ == "__main__":
    main()
