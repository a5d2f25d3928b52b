"""Drawn faults over several layouts of a tiny model, each run compared with the undisturbed one.

    .venv/bin/python benchmarks/drills.py --kills 300 --freezes 100

Prints, for each layout: how many faults came, whether every run ended in the same place, how soon faults were
noticed and training went on, whether the right rank was named. Exits with 1 when a run ended elsewhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.end_to_end.small_job import command, environment, write_job  # noqa: E402

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
    chosen = parser.parse_args()
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
    sys.exit(0 if survived else 1)


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
            "recovery.same_failure=20",
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


if __name__ == "__main__":
    main()
