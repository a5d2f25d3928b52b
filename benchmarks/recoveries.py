"""Spikes from bad text, gone back from without a person: how many steps it costs, and where the loss ends.

    .venv/bin/python benchmarks/recoveries.py --recoveries 50
    .venv/bin/python benchmarks/recoveries.py --recoveries 50 --keep FOLDER

Runs are those of `benchmarks/examination.py`, with `recovery.on_spike: rollback` and a checkpoint every ten steps;
bad text of a drawn kind stands in one to three steps. Each is compared with the same run without bad text, by the
loss on held-out text after the last step. Wanted: at most 20 steps done again and left out together, and a loss
within 0.2% of the clean run's. Five spikes at drawn steps are held against one clean run.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
for _name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from benchmarks.examination_cases import CLEAN, Case, draw_case  # noqa: E402
from benchmarks.examination_runs import Runs, prepare_text, run_case  # noqa: E402

from stoker.record import Record  # noqa: E402
from stoker.recovery.forked import Forked  # noqa: E402
from stoker.run_directory import RunDirectory  # noqa: E402

_SPIKES_EACH = 5
_STEPS = 500
_EVERY = 10
_MOST_STEPS, _MOST_DIFFERENCE = 20, 0.002


@dataclass(frozen=True)
class Recovery:
    """What came of one spike."""

    name: str
    fault: str
    times_back: int
    done_again: int
    left_out: int
    difference: float
    """Of the loss at the end from the clean run's, relative."""

    @property
    def holds(self) -> bool:
        """Whether it cost no more than is wanted."""
        few = self.done_again + self.left_out <= _MOST_STEPS
        return self.noticed and few and abs(self.difference) <= _MOST_DIFFERENCE

    @property
    def noticed(self) -> bool:
        """Whether the run's guard took it for a spike: bad text that the loss hardly shows is none."""
        return self.times_back + self.left_out > 0


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recoveries", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="a folder for the runs, which stay there")
    given = parser.parse_args()
    begun = time.monotonic()
    cases = _cases(given.recoveries)
    for module in ("polars", "stoker.training.rank", "stoker.training.held_out_text"):
        importlib.import_module(module)
    gc.freeze()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep.resolve() if given.keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        Forked("preparing the text", prepare_text, folder, cases[0]).result()
        processors = min(2, os.cpu_count() or 1)
        runs = Runs(partial(_train, folder), processors, lambda case: min(case.ranks, processors))
        runs.all(cases, lambda case: print(f"{case.name}: {', '.join(case.faults) or 'clean'}", flush=True))
        found = [_compared(folder, case) for case in cases if case.faults]
    print(_table(found))
    print(f"{len(cases)} runs in {(time.monotonic() - begun) / 60:.1f} minutes, load {os.getloadavg()[0]:.1f}")
    if not all(one.holds for one in found if one.noticed):
        sys.exit(1)


def _cases(recoveries: int) -> list[Case]:
    """Groups of runs that differ in nothing but their bad text; the first of each has none."""
    cases: list[Case] = []
    for group in range(-(-recoveries // _SPIKES_EACH)):
        dice = random.Random(f"recoveries {group}")
        drawn = replace(draw_case(CLEAN, 2_000_000 + group), faults=())
        training = drawn.recipe["training"]
        training.update(steps=_STEPS, global_batch_size=16, micro_batch_size=2, gradient_clip=1.0)
        training["schedule"] = {"name": "cosine", "warmup_steps": 20}
        training["optimizer"]["learning_rate"] = round(10 ** dice.uniform(-2.8, -2.4), 6)
        drawn.recipe["checkpoint"] = {"every": _EVERY, "keep_last": 3}
        drawn.recipe["recovery"].update(on_spike="rollback", on_divergence="rollback")
        drawn.recipe["evaluation"] = {"sequences": 64}
        cases.append(replace(drawn, cause="recovered", seed=100 * group))
        for number in range(1, min(_SPIKES_EACH, recoveries - group * _SPIKES_EACH) + 1):
            step = dice.randint(120, int(0.7 * _STEPS))
            what, steps = dice.choice(("garbled", "html", "language", "tokenizer")), dice.randint(1, 3)
            fault = f"bad_data@{step}:what={what},strength=1,steps={steps}"
            cases.append(replace(drawn, cause="recovered", seed=100 * group + number, faults=(fault,)))
    return cases


def _train(folder: Path, case: Case) -> None:
    try:
        run_case(folder, case)
    except BaseException as error:
        (folder / "runs" / case.name / "error.txt").write_text(str(error), encoding="utf-8")
    os._exit(0)


def _compared(folder: Path, case: Case) -> Recovery:
    run = RunDirectory(folder / "runs" / case.name)
    clean = RunDirectory(folder / "runs" / f"recovered-{case.seed - case.seed % 100}")
    decided = []
    if run.interventions.is_file():
        decided = json.loads(run.interventions.read_text(encoding="utf-8"))["decided"]
    back = {(one["decided_at"], one["back_to"]) for one in decided if one["back_to"] is not None}
    skipped = [(one["first_step"], one["last_step"]) for one in decided if one["action"] == "skip"]
    # What nothing was learnt of says nothing: the loss on it goes anywhere.
    sources = {one["name"] for one in case.recipe["data"]["sources"] if one["weight"]}
    ours, theirs = _final_loss(run, sources), _final_loss(clean, sources)
    return Recovery(
        name=case.name,
        fault=case.faults[0],
        times_back=len(back),
        done_again=sum(at - 1 - to for at, to in back),
        left_out=sum(last - first + 1 for first, last in skipped),
        difference=ours / theirs - 1,
    )


def _final_loss(run: RunDirectory, sources: set[str]) -> float:
    """On held-out text of `sources` after the last step, over all of its tokens."""
    rows = Record(run.record).evaluations()
    rows = rows.filter(rows["source"].is_in(sorted(sources))) if rows.height else rows
    if not rows.height:
        return float("nan")
    last = rows.filter(rows["step"] == rows["step"].max())
    return float((last["loss"] * last["tokens"]).sum() / last["tokens"].sum())


def _table(found: list[Recovery]) -> str:
    lines = ["| run | bad text | times back | done again | left out | loss against the clean run | holds |"]
    lines.append("|---|---|---|---|---|---|---|")
    for one in found:
        figures = f"{one.times_back} | {one.done_again} | {one.left_out} | {one.difference:+.3%}"
        held = "yes" if one.holds else "NO" if one.noticed else "no spike"
        lines.append(f"| {one.name} | {one.fault} | {figures} | {held} |")
    spikes = [one for one in found if one.noticed]
    lines.append("")
    if not spikes:
        return "\n".join([*lines, "No spike came."])
    together = [one.done_again + one.left_out for one in spikes]
    furthest = max(abs(one.difference) for one in spikes)
    lines.append(
        f"{sum(one.holds for one in spikes)} of {len(spikes)} hold: {statistics.median(together):g} (median) and "
        f"at most {max(together)} steps done again and left out; loss at most {furthest:.3%} from the clean run's. "
        f"In {len(found) - len(spikes)} runs the loss hardly shows the bad text."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
