"""What the server of `stoker watch` computes for each thing that the page asks, in processor time.

    .venv/bin/python benchmarks/dashboard_server.py [--steps 1000000] [--runs 50] [--ranks 4]

The runs are those of `dashboard.py`, and the requests those of its page, without a browser: each is made twice of a
server that has read nothing, so that the second time tells what is kept. What is read ahead while the browser is
opened is done before the first request, and told by itself.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.testclient import TestClient

from dashboard import SOURCES, write_run
from stoker.console import table
from stoker.dashboard.application import Watching, application_for


def timed(ask: Callable[[], object]) -> float:
    """Milliseconds of processor time, of all threads."""
    begun = time.process_time()
    ask()
    return 1000 * (time.process_time() - begun)


def measured(folder: Path, steps: int) -> list[list[object]]:
    """Name, first time and next time of each request."""
    begun = time.process_time()
    with TestClient(application_for(Watching([folder]))) as client:
        listed = client.get("/api/runs").json()["runs"]
        while not listed[0].get("step"):
            listed = client.get("/api/runs").json()["runs"]
        found: list[list[object]] = [
            ["to read ahead, and the first list", 1000 * (time.process_time() - begun), ""]
        ]
        run = next(one["id"] for one in listed if one["name"] == "million")
        one = f"/api/run/{run}"
        by_source = "&".join(f"line=step:0:loss_by_source.{name}" for name in SOURCES)
        asked = {
            "what a run's page begins with": one,
            "the loss, thinned out": f"{one}/lines?line=step:0:loss&pixels=1000",
            "a stretch of it": f"{one}/lines?line=step:0:loss&pixels=1000&begin={steps // 3}&end={steps // 2}",
            "the loss by four sources": f"{one}/lines?{by_source}&pixels=1000",
            "the map of all ranks": f"{one}/heat?measure=step:work_seconds&pixels=1000",
            "the list of all runs": "/api/runs",
        }
        for what, address in asked.items():

            def ask(address: str = address) -> None:
                answer = client.get(address)
                assert answer.status_code == 200, answer.text

            found.append([what, timed(ask), timed(ask)])
    return found


def main() -> None:
    """Make the runs, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        write_run(Path(temporary) / "million", given.steps, given.ranks, "million")
        for index in range(given.runs - 1):
            write_run(Path(temporary) / f"run-{index:03d}", 300, 1, f"run-{index:03d}")
        print(table(["request", "first time, ms", "again, ms"], measured(Path(temporary), given.steps)))


if __name__ == "__main__":
    main()
