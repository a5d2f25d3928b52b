"""`stoker diagnose` on curves of other people's runs, with known incidents and without, and how long it takes.

    .venv/bin/python benchmarks/detectors.py FOLDER
    .venv/bin/python benchmarks/detectors.py FOLDER --findings
    .venv/bin/python benchmarks/detectors.py --drawn 300
    .venv/bin/python benchmarks/detectors.py --rows 1000000

FOLDER holds Megatron-LM's or BigScience's logs as CSV files (columns `step` or `iteration`, `lm loss` or
`lm_loss`, …) and modded-nanogpt's (`file`, `step`, `train_loss`, `val_loss`), which may be compressed. Curves
in a folder `steady` are known to be without incident: whatever is found there above a note is false. Prints a
table of curves, rows, steps, findings, and false ones for every 10,000 steps.

`--drawn` counts false alarms over drawn runs without incident, and how many planted incidents of each strength
are found (in a tenth as many runs): the strength is the rise of the loss's logarithm, the factor of gradients,
seconds or waiting, the share of memory, the number of rows that are NaN.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.diagnosis.drawn_curves import PLANTED, DrawnRun, draw_run  # noqa: E402

from stoker.console import print_result, table  # noqa: E402
from stoker.diagnosis import Finding, RunRows, find_all  # noqa: E402

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
    parser.add_argument(
        "--drawn", type=int, default=0, help="so many drawn runs, without and with planted incidents"
    )
    parser.add_argument("--rows", type=int, default=0, help="time a drawn run of so many rows")
    given = parser.parse_args()
    if given.folder:
        _judge(given.folder, given.findings)
    if given.drawn:
        _judge_drawn(given.drawn)
    if given.rows:
        _time(given.rows)


def _judge(folder: Path, with_findings: bool) -> None:
    lines = []
    steps_of_steady = false = 0
    for name, rows in _curves(folder):
        found = find_all(rows)
        steps = rows.steps
        length = int(steps[-1] - steps[0])
        remarkable = _remarkable(found)
        steady = name.startswith("steady")
        if steady:
            steps_of_steady += length
            false += len(remarkable)
        per = 1e4 * len(remarkable) / max(length, 1) if steady else None
        if remarkable or not (":val_loss:" in name or ":train_loss:" in name):
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


def _judge_drawn(runs: int) -> None:
    """False alarms over runs without incident, and the share of planted ones that is found, by strength."""
    alarmed = [_remarkable(find_all(draw_run(seed).as_rows())) for seed in range(runs)]
    kinds = Counter(one.kind for found in alarmed for one in found)
    print_result(
        f"{runs} runs without incident, {sum(map(bool, alarmed))} with a finding above a note: {dict(kinds)}"
    )
    lines = []
    for name, (plant, counted_as, strengths) in PLANTED.items():
        for strength in strengths:
            hits = [
                _hit(draw_run(10_000 + seed), plant, counted_as, strength) for seed in range(max(1, runs // 10))
            ]
            shares = np.mean(hits, axis=0)
            lines.append([name, float(strength), len(hits), *(f"{share:.0%}" for share in shares)])
    print_result(table(["incident", "strength", "runs", "found", "above a note", "within three rows"], lines))


def _hit(
    run: DrawnRun, plant: Callable[[DrawnRun, float], int], kinds: tuple[str, ...], strength: float
) -> tuple[bool, bool, bool]:
    at = plant(run, strength)
    steps = run.columns["step"]
    found = [one for one in find_all(run.as_rows()) if one.kind in kinds]
    near = 3 * int(steps[1] - steps[0])
    exact = any(one.first_step is not None and abs(one.first_step - int(steps[at])) <= near for one in found)
    return bool(found), bool(_remarkable(found)), exact


def _remarkable(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.severity != "note"]


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
    begun, processor = time.perf_counter(), time.process_time()
    found = find_all(RunRows(table=content))
    took, used = time.perf_counter() - begun, time.process_time() - processor
    print_result(f"{rows:,} rows: {took:.1f} s ({used:.1f} s of processors), {len(found)} findings")


if __name__ == "__main__":
    main()
