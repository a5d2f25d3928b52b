"""Published figures of large training runs against what `stoker simulate` says of them.

    python benchmarks/simulator.py            the table, in Markdown
    python benchmarks/simulator.py --speed    and how long simulating 100,000 accelerators for 90 days takes

Each run is described by a file in `examples/simulate/`, which says what was published and what is assumed. The
kinds of failure are the same for all that do not describe their own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from stoker.planning.reliability import Answer, RunDescription, answer, read_run
from stoker.planning.reliability.optimum import with_intervals
from stoker.planning.reliability.process import DAY
from stoker.planning.reliability.runs import simulate

_RUNS = Path(__file__).parents[1] / "examples" / "simulate"
_SIMULATED, _SEED = 200, 0
Figure = Callable[[Answer], tuple[float, float | None]]


def _effective(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    return found.point.goodput.effective, found.simulated.effective


def _committed(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    return found.point.goodput.committed, found.simulated.committed


def _groups(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    count = found.process.groups
    return found.point.goodput.groups * count, found.simulated.groups * count


def _mtbf(found: Answer) -> tuple[float, float | None]:
    return found.mtbf_hours, None


def _interruptions(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    assert found.run.wall_days is not None
    return found.point.goodput.interruptions_per_day * found.run.wall_days, found.simulated.interruptions


def _hours_between(found: Answer) -> tuple[float, float | None]:
    formula, simulated = _interruptions(found)
    assert simulated is not None
    assert found.run.wall_days is not None
    return found.run.wall_days * 24 / formula, found.run.wall_days * 24 / simulated


def _step_begun(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    formula, simulated = found.point.goodput, found.simulated
    return (
        found.process.step * formula.committed / formula.effective,
        found.process.step * simulated.committed / simulated.effective,
    )


def _lost_hours(found: Answer) -> tuple[float, float | None]:
    assert found.simulated is not None
    assert found.run.wall_days is not None
    goodput, drawn = found.point.goodput, found.simulated
    days = found.run.wall_days
    return (
        goodput.losses["lost work"] * 24 / goodput.interruptions_per_day,
        drawn.losses["lost work"] * days * 24 / drawn.interruptions,
    )


_TABLE: tuple[tuple[str, str, str, Figure], ...] = (
    ("llama-3-405b", "unexpected interruptions in 54 days", "419", _interruptions),
    ("llama-3-405b", "hours between them", "3.1", _hours_between),
    ("llama-3-405b", "effective training time", "> 0.90", _effective),
    ("rsc-1-16384", "mean time to failure, hours", "1.8", _mtbf),
    ("rsc-1-131072", "mean time to failure, hours", "0.23", _mtbf),
    ("rsc-1-1024", "mean time to failure, hours, measured", "7.9", _mtbf),
    ("rsc-1-4096", "effective training time", "> 0.90", _effective),
    ("rsc-1-12000", "effective training time", "0.90", _effective),
    ("rsc-2-100000", "effective training time", "0.90", _effective),
    ("ft-hsdp-98304-synchronous", "effective training time", "0.44", _effective),
    ("ft-hsdp-98304", "effective training time", "0.80", _effective),
    ("byterobust-9600", "effective training time", "0.97", _effective),
    ("opt-175b", "interruptions in 60 days", "> 105", _interruptions),
    ("torchft-60s", "share of steps committed", "0.823", _committed),
    ("torchft-60s", "groups that take part, of 30", "29.6", _groups),
    ("torchft-60s", "seconds of a step begun", "10.9", _step_begun),
    ("torchft-15s", "share of steps committed", "0.302", _committed),
    ("torchft-15s", "groups that take part, of 30", "18.9", _groups),
    ("torchft-15s", "seconds of a step begun", "15.46", _step_begun),
    ("bloom-176b", "hours of work lost to a failure", "1.5", _lost_hours),
    ("megascale-12288", "effective training time", "> 0.90", _effective),
)


def main() -> None:
    """Simulate each run once and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="also time a large run")
    given = parser.parse_args()
    found: dict[str, Answer] = {}
    print("| run | figure | published | formula | simulated |\n|---|---|---|---|---|")
    for name, figure, published, measure in _TABLE:
        if name not in found:
            found[name] = answer(read_run(_RUNS / f"{name}.yaml"), _SIMULATED, _SEED)
        formula, simulated = measure(found[name])
        drawn = "-" if simulated is None else f"{simulated:.4g}"
        print(f"| {name} | {figure} | {published} | {formula:.4g} | {drawn} |")
    if given.speed:
        _time_a_large_run()


def _time_a_large_run() -> None:
    process = with_intervals(RunDescription(accelerators=100_000))
    wall, processor = time.perf_counter(), time.process_time()
    simulate(process, _SIMULATED, _SEED, wall_seconds=90 * DAY)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(
        f"\n{_SIMULATED} runs of 100,000 accelerators for 90 days: {wall:.1f} s, {processor:.1f} s of one processor"
    )


if __name__ == "__main__":
    main()
