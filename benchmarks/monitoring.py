"""What the monitor of a run costs: processor time for each look and each diagnosis, by ranks and steps a second.

    python benchmarks/monitoring.py
    python benchmarks/monitoring.py --read RUN

Writes the record of a made-up run as fast as a real one would, beside one monitor with its default budget. With
`--read`, instead, what it costs to read the text of a run whose corpus is at hand, beside a diagnosis of the same
rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from stoker.console import table
from stoker.diagnosis import find_all
from stoker.monitoring.live_diagnosis import WINDOW_ROWS, rows_now
from stoker.monitoring.live_text import Readings
from stoker.monitoring.monitor import Monitor
from stoker.monitoring.recent import FollowedRecord
from stoker.recipe.loading import dump_recipe, load_recipe
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory

_RECIPE = """
name: monitored
data: {sources: [{name: english, paths: [text]}]}
model: {hidden_size: 32, layers: 2, heads: 4, ffn_hidden_size: 64}
training: {steps: 1000000, sequence_length: 16, global_batch_size: 8}
layout: {dp_shard: RANKS}
"""
_PAST_STEPS = 3000


def made_up(step: int, rank: int, ranks: int) -> dict[str, Any]:
    """A step row with the figures of a real one."""
    noise = ((step * 7919 + rank * 104729) % 1000) / 1000
    phases = ("data", "forward", "backward", "communication", "optimizer")
    return {
        "attempt": 1,
        "step": step,
        "time": time.time(),
        "loss": 8 * step**-0.1 + 0.02 * noise,
        "loss_by_source": {"english": 8 * step**-0.1},
        "loss_by_position": {f"{i * 128}-{i * 128 + 127}": 3.0 + noise for i in range(8)},
        "tokens_by_source": {"english": 128},
        "gradient_norm": 0.5 + 0.1 * noise,
        "gradient_norm_by_module": {f"blocks.{i}": 0.1 for i in range(24)} if step % 10 == 0 else None,
        "learning_rate": 1e-3,
        "tokens": 128,
        "tokens_seen": 128 * step,
        "first_sample": step * 8,
        "last_sample": step * 8 + 8,
        "seconds": dict.fromkeys(phases, 0.05 + 0.005 * noise) | {"total": 0.26},
        "waited": {"gradients": 0.01, "loss": 0.001},
        "memory_peak_bytes": 2**30,
        "ranks": ranks,
    }


def measure(ranks: int, steps_per_second: float, seconds: float) -> list[object]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        run.path.mkdir()
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(_RECIPE.replace("RANKS", str(ranks)).replace("size: 8}", f"size: {8 * ranks}}}"))
        run.recipe.write_text(dump_recipe(load_recipe(recipe).recipe))
        writers = [RecordWriter(run.record, rank, 1.0) for rank in range(ranks)]
        for step in range(1, _PAST_STEPS + 1):
            for rank, writer in enumerate(writers):
                writer.append("step", made_up(step, rank, ranks))
        for writer in writers:
            writer.flush()
        recent, diagnoses = FollowedRecord(run.record, WINDOW_ROWS), []
        written = load_recipe(run.recipe).recipe
        for _ in range(2):
            began = time.process_time()
            find_all(rows_now(recent, time.time(), run, written))
            diagnoses.append(1000 * (time.process_time() - began))
        monitor = Monitor(run, lambda line: None, live=True)
        spent, begun, step, next_look = 0.0, time.monotonic(), _PAST_STEPS, 0.0
        looks = 0
        while (now := time.monotonic() - begun) < seconds:
            while step - _PAST_STEPS < now * steps_per_second:
                step += 1
                for rank, writer in enumerate(writers):
                    writer.append("step", made_up(step, rank, ranks))
            if now >= next_look:
                before = time.process_time()
                next_look = now + monitor.look()
                spent += time.process_time() - before
                looks += 1
            time.sleep(0.02)
        for writer in writers:
            writer.close()
        monitor.close(1.0)
    return [ranks, steps_per_second, looks, *diagnoses, 100 * spent / seconds]


def measure_reading(run: RunDirectory) -> list[object]:
    """Processor time of a diagnosis of the newest rows, of the first reading and of the next, and how long the
    monitor waits after it by default."""
    recipe = load_recipe(run.recipe).recipe
    recent, share = FollowedRecord(run.record, WINDOW_ROWS), recipe.alerts.share_of_core / 3
    readings, spent = Readings(run, recipe, share), list[float]()
    rows = rows_now(recent, None, run, recipe)
    for look in (find_all, readings.read, readings.read):
        began = time.process_time()
        look(rows)
        spent.append(time.process_time() - began)
    return [
        rows.table.height,
        rows.samples_of(int(rows.steps[-1])),
        *(1000 * one for one in spent),
        spent[-1] / share,
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--read", type=Path, metavar="RUN")
    options = parser.parse_args()
    if options.read is not None:
        headers = [
            "rows",
            "samples a step",
            "diagnosis, ms",
            "first reading, ms",
            "next reading, ms",
            "next after, s",
        ]
        print(table(headers, [measure_reading(RunDirectory(options.read))]))
        return
    rows = [measure(*case, options.seconds) for case in ((1, 1.0), (1, 20.0), (8, 1.0), (64, 0.2))]
    headers = [
        "ranks",
        "steps a second",
        "looks",
        "first diagnosis, ms",
        "next diagnosis, ms",
        "share of a core, %",
    ]
    print(table(headers, rows))


if __name__ == "__main__":
    main()
