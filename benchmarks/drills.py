"""Drawn faults over several layouts of a tiny model, each run compared with the undisturbed one.

    .venv/bin/python benchmarks/drills.py --kills 300 --freezes 100
    .venv/bin/python benchmarks/drills.py --kills 0 --freezes 0 --clean-steps 10000
    .venv/bin/python benchmarks/drills.py --kills 0 --freezes 0 --starts 7
    .venv/bin/python benchmarks/drills.py --kills 0 --freezes 0 --often 100

Prints, for each layout: how many faults came, whether every run ended in the same place, how soon faults were
noticed and training went on, whether the right rank was named. Exits with 1 when a run ended elsewhere.

`--clean-steps` trains so many steps without any fault, on one rank and on two, with evaluations and checkpoints,
and counts the alarms. `--starts` times starts of the command and restarts after a kill, by turns, and prints their
ratio. `--often` trains so many steps with a kill drawn for every fifth, with copies of state and gradients in
memory, and prints which share of the forward passes the undisturbed run needs as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.end_to_end.small_job import command, write_job  # noqa: E402
from tests.preloaded import environment  # noqa: E402

from stoker.record import SUPERVISOR, Record  # noqa: E402

LAYOUTS = (
    "dp_replicate=2",
    "dp_shard=2",
    "tp=2",
    "pp=2",
    "cp=2",
    "dp_replicate=2 layout.dp_shard=2",
    "dp_shard=2 layout.tp=2",
    "pp=2 layout.dp_replicate=2",
)
_FREEZES = ("freeze", "hang", "spin")
_NO_ALARM = ("started", "resumed", "saved", "finished", "ranks_ended", "clock")
"""Events of a run that nothing happens to."""


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--freezes", type=int, default=100)
    parser.add_argument("--per-run", type=int, default=10, help="faults in each run")
    parser.add_argument("--copy-every", type=int, default=2, help="steps between copies in memory; 0: none")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layouts", type=int, default=len(LAYOUTS), help="how many of them")
    parser.add_argument("--clean-steps", type=int, default=0, help="steps without a fault, on one rank and on two")
    parser.add_argument("--starts", type=int, default=0, help="how often a start and a restart are timed")
    parser.add_argument("--often", type=int, default=0, help="steps with a kill for every fifth")
    chosen = parser.parse_args()
    alarms = _clean(chosen.clean_steps) if chosen.clean_steps else 0
    if chosen.starts:
        _starts(chosen.starts)
    same = _often(chosen) if chosen.often else True
    sys.exit(1 if alarms or not same or not _drills(chosen) else 0)


def _drills(chosen: argparse.Namespace) -> bool:
    """Whether every run ended in the same place."""
    if not chosen.kills + chosen.freezes:
        return True
    layouts = LAYOUTS[: chosen.layouts]
    survived = True
    print("| layout | faults | came | same end | noticed, median | at most | trains again, median | right rank |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_job(Path(folder), training__steps=chosen.steps)
        begun = time.monotonic()
        for number, layout in enumerate(layouts):
            for kinds, total in ((("kill",), chosen.kills), (_FREEZES, chosen.freezes)):
                count = total * (number + 1) // len(layouts) - total * number // len(layouts)
                if count:
                    drills = _drill(recipe, layout, kinds, count, chosen)
                    survived &= all(one["survived"] for one in drills)
                    print(_row(f"{layout.replace(' layout.', ', ')}, {'/'.join(kinds)}", drills), flush=True)
        print(f"\n{time.monotonic() - begun:.0f} s")
    return survived


def _often(chosen: argparse.Namespace) -> bool:
    """Whether runs with a kill about every five steps end in the same place."""
    print("| layout | steps | kills that came | steps a failure | useful forward passes | same end |")
    print("|---|---|---|---|---|---|")
    steps, same = chosen.often, True
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_job(
            Path(folder),
            training__steps=steps,
            training__global_batch_size=16,
            training__micro_batch_size=1,
            recovery__copy_gradients_every=1,
        )
        often = argparse.Namespace(**{**vars(chosen), "copy_every": 1, "per_run": steps // 5})
        for layout in LAYOUTS[:2]:
            for one in _drill(recipe, layout, ("kill",), steps // 5, often):
                same &= one["survived"]
                useful = "unknown" if one["useful"] is None else f"{one['useful']:.1%}"
                row = [layout, steps, one["came"], f"{steps / max(one['came'], 1):.1f}", useful, one["weights"]]
                print(f"| {' | '.join(map(str, row))} |", flush=True)
    return same


def _drill(
    recipe: Path, layout: str, kinds: tuple[str, ...], count: int, chosen: argparse.Namespace
) -> list[dict[str, Any]]:
    overrides = f"layout.{layout}".split(" ")
    result = subprocess.run(
        command(
            "drill",
            recipe,
            *overrides,
            f"recovery.copy_every={chosen.copy_every}",
            "recovery.same_failure=50",
            "--json",
            f"--draw={count}",
            f"--per-run={chosen.per_run}",
            f"--seed={chosen.seed}",
            *(f"--kind={kind}" for kind in kinds),
        ),
        capture_output=True,
        text=True,
        env=environment(),
    )
    if not result.stdout:
        sys.exit(f"{layout}: {result.stderr}")
    found: list[dict[str, Any]] = json.loads(result.stdout)["drills"]
    for one in found:
        if not one["survived"]:
            print(json.dumps(one), file=sys.stderr)
    return found


def _row(what: str, drills: list[dict[str, Any]]) -> str:
    detect = [seconds for one in drills for seconds in one["detect_seconds"]]
    recover = [seconds for one in drills for seconds in one["recover_seconds"]]
    right = [_right(one) for one in drills]
    cells = [
        what,
        sum(len(one["faults"]) for one in drills),
        sum(one["came"] for one in drills),
        f"{sum(one['survived'] for one in drills)} of {len(drills)} runs",
        f"{statistics.median(detect):.2f} s" if detect else "never",
        f"{max(detect):.2f} s" if detect else "never",
        f"{statistics.median(recover):.2f} s" if recover else "never",
        f"{sum(hits for hits, _ in right)} of {sum(named for _, named in right)}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _right(drill: dict[str, Any]) -> tuple[int, int]:
    """How many failures were put down to the rank that had the fault, and how many there were."""
    hits = [str(ranks) == f"[{fault.split(':')[1]}]" for fault, ranks in drill["blamed"]]
    return sum(hits), len(hits)


def _clean(steps: int) -> int:
    """Train without a fault, on one rank and on two; how many alarms there were."""
    print("| ranks | steps | evaluations | checkpoints | median step | seconds | alarms |")
    print("|---|---|---|---|---|---|---|", flush=True)
    return sum(_clean_run(ranks, steps) for ranks in (1, 2))


def _clean_run(ranks: int, steps: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_job(
            Path(folder),
            training__steps=steps,
            layout={"dp_replicate": ranks},
            evaluation={"every": 100, "sequences": 2},
            checkpoint={"every": 100, "keep_last": 2},
            recovery={"copy_every": 1},
        )
        begun = time.monotonic()
        _train(recipe, Path(folder) / "run")
        seconds = time.monotonic() - begun
        record = Record(Path(folder) / "run" / "record")
        events = Counter(event["event"] for event in [*record.events(), *record.events(SUPERVISOR)])
        alarms = Counter({name: count for name, count in events.items() if name not in _NO_ALARM})
        done = record.steps(["step", "time"], all_attempts=True)
        between = done["time"].diff().drop_nulls()
        row = [ranks, done.height, record.evaluations()["step"].n_unique(), events["saved"]]
        row += [f"{1e3 * between.median():.1f} ms", f"{seconds:.0f}", dict(alarms) or 0]
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        return alarms.total()


def _starts(times: int) -> None:
    """Time starts, from the command to the first step, and restarts, from a kill to the next step."""
    starts, restarts = [], []
    with tempfile.TemporaryDirectory() as folder:
        recipe = write_job(Path(folder), training__steps=24, layout={"dp_replicate": 2}, evaluation={"every": 0})
        planned = Path(folder) / "planned"
        _train(recipe, planned)
        for number in range(times):
            run = Path(folder) / f"run-{number}"
            run.mkdir()
            # It was planned before.
            shutil.copyfile(planned / "plan.json", run / "plan.json")
            said = (planned / "recipe.yaml").read_text(encoding="utf-8")
            (run / "recipe.yaml").write_text(said.replace(str(planned), str(run)), encoding="utf-8")
            begun = time.time()
            _train(recipe, run)
            starts.append(min(Record(run / "record").steps(["time"])["time"]) - begun)
            result = subprocess.run(
                command("drill", recipe, "--json", "--fault=kill@12:1"),
                capture_output=True,
                text=True,
                env=environment(),
                check=True,
            )
            (drill,) = json.loads(result.stdout)["drills"]
            restarts.append(drill["detect_seconds"][0] + drill["recover_seconds"][0])
            load = os.getloadavg()[0]
            print(f"start {starts[-1]:.2f} s, restart {restarts[-1]:.2f} s (load {load:.1f})", flush=True)
    start, restart = statistics.median(starts), statistics.median(restarts)
    print("| start of the command, median | restart after a kill, median | ratio |\n|---|---|---|")
    print(f"| {start:.2f} s | {restart:.2f} s | {restart / start:.2f} |", flush=True)


def _train(recipe: Path, run: Path) -> None:
    result = subprocess.run(
        command("train", recipe, "--run", run), capture_output=True, text=True, env=environment()
    )
    if result.returncode:
        sys.exit(result.stderr)


if __name__ == "__main__":
    main()
