"""Fits the cluster model's parameters to published measurements, and says how good its predictions are.

    python benchmarks/planner_evaluation.py                    errors with shipped parameters, time of a prediction
    python benchmarks/planner_evaluation.py --fit              fit from the priors, show what changes
    python benchmarks/planner_evaluation.py --fit --write      and write them into the package
    python benchmarks/planner_evaluation.py --leave-one-out    also errors of sources left out of the fit

The table stands in `tests/planning/cluster/data/`, with its sources. A fit takes a minute or two of one processor,
leaving each source out in turn that many times as long as there are sources.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from pathlib import Path

from stoker.durable_files import write_text
from stoker.planning.cluster import fitting, parameters
from stoker.planning.cluster.evaluation import Judged, evaluate, judge
from stoker.planning.cluster.measurements import read_measurements
from stoker.planning.cluster.prediction import predict
from stoker.progress import Silent

_TABLE = Path(__file__).parents[1] / "tests" / "planning" / "cluster" / "data" / "measurements.csv"
_ROWS_OF_A_SOURCE, _ROUNDS = 80, 25


def main() -> None:
    """Parse, fit if asked, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?", default=_TABLE)
    parser.add_argument("--fit", action="store_true", help="fit the parameters from their priors")
    parser.add_argument("--from-shipped", action="store_true", help="fit from the shipped values instead")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--write", action="store_true", help="write the fitted values into the package")
    parser.add_argument("--leave-one-out", action="store_true")
    given = parser.parse_args()
    measurements = read_measurements(given.table)
    if given.fit:
        fitted = _fit(judge(measurements), given.from_shipped, given.rounds)
        if given.write:
            _write(fitted)
            print("wrote them; run again without --fit for the errors")
            return
    print(evaluate(measurements, given.leave_one_out, Silent()).as_text())
    print(f"\none prediction: {_microseconds(judge(measurements)):.0f} microseconds of one processor")


def _fit(judged: list[Judged], from_shipped: bool, rounds: int) -> dict[str, float]:
    samples = fitting.thinned(fitting.samples_of(judged), _ROWS_OF_A_SOURCE)
    table = parameters.parameter_table()
    start = {line.name: line.value if from_shipped else line.prior for line in table}
    fitted = fitting.fit(samples, start, rounds)
    for line in table:
        if line.source == "fitted":
            print(f"{line.name:40s} {line.value:12.4g} -> {fitted[line.name]:12.4g}  {line.unit}")
    return fitted


def _write(fitted: dict[str, float]) -> None:
    path = Path(parameters.__file__).with_name("parameters.csv")
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    for row in rows:
        if row["source"] == "fitted":
            row["value"] = f"{fitted[row['name']]:.4g}"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _microseconds(judged: list[Judged]) -> float:
    cases = [one.case for one in judged if one.case is not None][::10]
    begun = time.process_time()
    for case in cases:
        predict(case.workload, case.cluster, case.software)
    return (time.process_time() - begun) / len(cases) * 1e6


if __name__ == "__main__":
    main()
