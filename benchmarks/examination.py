"""The doctor's examination: runs in which something drawn is wrong, or nothing, and what `stoker diagnose` says.

    .venv/bin/python benchmarks/examination.py --seeds building --runs 2 --causes html_text,memory_leak
    .venv/bin/python benchmarks/examination.py --seeds building --keep FOLDER
    .venv/bin/python benchmarks/examination.py --seeds building --again FOLDER
    make examine

Every run is a small model on real text, with drawn size, sources, mixture, ranks, strength and step of the fault.
Faults come in as those of `stoker drill` do; the rest are recipes. Half of the seeds are for building the doctor
(`--seeds building`), the others only for the table in docs/diagnosis.md (`--seeds final`, which writes it there).
Final seeds whose marks were read while the doctor was built on (`first final` to `third final`) are for building
ever after.
`--keep` keeps the runs' records; `--again` asks the doctor about kept ones without training.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
for _name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from benchmarks.examination_cases import CAUSES, CLEAN, Case, draw_case  # noqa: E402
from benchmarks.examination_marks import Marked, mark, tables  # noqa: E402
from benchmarks.examination_runs import Runs, examine, prepare_text, said  # noqa: E402

from stoker.recovery.forked import Forked  # noqa: E402

_FIRST_SEED = {
    "building": 0, "first final": 1_000_000, "second final": 2_000_000, "third final": 3_000_000,
    "final": 4_000_000,
}  # fmt: skip
_PAGE = ROOT / "docs" / "diagnosis.md"
_BEGIN, _END = "<!-- examination: begin -->", "<!-- examination: end -->"
_IMPORTED = ("polars", "stoker.checkpoint", "stoker.training.rank", "stoker.training.held_out_text", "scipy.stats")


def main() -> None:
    """Train, ask, mark, print."""
    given = _arguments()
    begun = time.monotonic()
    causes = given.causes.split(",") if given.causes else [*CAUSES, CLEAN]
    if unknown := [cause for cause in causes if cause not in (*CAUSES, CLEAN)]:
        sys.exit(f"--causes: there is no cause {', '.join(unknown)}; there are {', '.join([*CAUSES, CLEAN])}")
    cases = _cases(causes, given.runs, given.clean, _FIRST_SEED[given.seeds])
    for module in _IMPORTED:
        if importlib.util.find_spec(module.partition(".")[0]):
            importlib.import_module(module)
    gc.freeze()  # what is imported is shared with all that is forked
    kept = given.again or given.keep
    with tempfile.TemporaryDirectory() as temporary:
        folder = kept.resolve() if kept else Path(temporary)
        marked = _examined(cases, folder, again=given.again is not None, keep=kept is not None)
    found = tables(marked)
    took = f"{len(marked)} runs in {(time.monotonic() - begun) / 60:.1f} minutes, load {os.getloadavg()[0]:.1f}"
    print(f"\n{found}\n{took}")
    if given.seeds == "final" and not given.causes and given.again is None:
        _write(f"{datetime.now(UTC):%Y-%m-%d}, two cores, {took}.\n\n{found}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=list(_FIRST_SEED), default="building")
    parser.add_argument("--causes", default="", help="only these, separated by commas; `clean` is one")
    parser.add_argument("--runs", type=int, default=10, help="of each cause")
    parser.add_argument("--clean", type=int, default=None, help="runs in which nothing is wrong; ten times --runs")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, help="a folder for the runs, which stay there")
    where.add_argument("--again", type=Path, help="ask about runs that were kept, and train nothing")
    return parser.parse_args()


def _cases(causes: list[str], runs: int, clean: int | None, first: int) -> list[Case]:
    counts = dict.fromkeys(causes, runs)
    if CLEAN in counts:
        counts[CLEAN] = 10 * runs if clean is None else clean
    # Those that take both processors first: the others then fill both to the end.
    cases = [draw_case(cause, first + number) for cause, count in counts.items() for number in range(count)]
    return sorted(cases, key=lambda case: -case.ranks)


def _examined(cases: list[Case], folder: Path, *, again: bool, keep: bool) -> list[Marked]:
    marked: list[Marked] = []
    folder.mkdir(parents=True, exist_ok=True)
    if again:
        cases = [case for case in cases if (folder / "runs" / case.name / "recipe.yaml").is_file()]
    else:
        Forked("preparing the text", prepare_text, folder, cases[0]).result()
        for case in cases:
            shutil.rmtree(folder / "runs" / case.name, ignore_errors=True)

    def done(case: Case) -> None:
        one = mark(case, said(folder, case))
        marked.append(one)
        print(f"{len(marked)}/{len(cases)} {one}", flush=True)
        if not keep:
            shutil.rmtree(folder / "runs" / case.name, ignore_errors=True)

    processors = min(2, os.cpu_count() or 1)
    runs = Runs(partial(examine, folder, again), processors, lambda one: 1 if again else min(one.ranks, processors))
    runs.all(cases, done)
    return marked


def _write(said: str) -> None:
    """Put the table between its marks in the page."""
    page = _PAGE.read_text(encoding="utf-8") if _PAGE.is_file() else f"# Diagnosis\n\n{_BEGIN}\n{_END}\n"
    if _BEGIN not in page:
        page = page.rstrip() + f"\n\n## The doctor's examination\n\n{_BEGIN}\n{_END}\n"
    before, after = page.partition(_BEGIN)[0], page.partition(_END)[2]
    _PAGE.write_text(f"{before}{_BEGIN}\n{said}\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
