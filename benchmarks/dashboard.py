"""How quick `stoker watch` is: a run of a million steps and a list of fifty runs in headless Chromium.

    python benchmarks/dashboard.py [--steps 1000000] [--runs 50] [--ranks 4] [--json]

Writes the runs into a temporary folder (the sealed files that a record of that length has, and a live tail), serves
them, opens them in a browser, zooms and pans, and prints what a person waits for. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import yaml
from playwright.sync_api import Page, sync_playwright

from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory

SEGMENT = 131_072  # Rows of a sealed file that has been merged twice.
SOURCES = ("english", "chinese", "code", "mathematics")
NEVER = 3600.0
FRAMES = 60


def columns(first: int, last: int, rank: int) -> dict[str, Any]:
    """Step rows `first` to `last` of a rank: heavy-tailed noise on a falling curve, a spike now and then."""
    steps = np.arange(first, last + 1)
    draw = np.random.default_rng((1, rank, first))
    loss = 2 + 9 * (1 + steps / 400) ** -0.5 + 0.05 * draw.standard_t(4, steps.size)
    loss[steps % 77_777 == 0] += 3
    table: dict[str, Any] = {
        "sequence": steps, "attempt": np.ones(steps.size, dtype=np.int64), "step": steps,
        "time": 1.7e9 + 0.5 * steps,
        "loss": loss, "gradient_norm": 0.3 + draw.gamma(2, 0.05, steps.size),
        "learning_rate": 3e-4 * (0.1 + 0.45 * (1 + np.cos(np.pi * steps / 1e6))),
        "tokens": np.full(steps.size, 4_194_304), "tokens_seen": 4_194_304 * steps,
        "first_sample": 1024 * (steps - 1), "last_sample": 1024 * steps,
        "memory_peak_bytes": np.full(steps.size, 70 * 2**30), "ranks": np.full(steps.size, 4),
        "work_seconds": 0.42 + draw.gamma(2, 0.005, steps.size),
    }  # fmt: skip
    for index, source in enumerate(SOURCES):
        table[f"loss_by_source.{source}"] = loss + 0.3 * index + 0.02 * draw.standard_normal(steps.size)
    for phase, seconds in (
        ("data", 0.002),
        ("forward", 0.14),
        ("backward", 0.28),
        ("communication", 0.05),
        ("optimizer", 0.02),
    ):
        table[f"seconds.{phase}"] = seconds + draw.gamma(2, seconds / 40, steps.size)
    table["seconds.total"] = sum(
        table[f"seconds.{phase}"] for phase in ("data", "forward", "backward", "communication", "optimizer")
    )
    return table


def write_run(folder: Path, steps: int, ranks: int, name: str) -> None:
    """A run as the record of so many steps leaves it: large sealed files, and a tail of 1,000 live rows."""
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    run.recipe.write_text(yaml.safe_dump({"name": name, "training": {"steps": steps, "gradient_clip": 1.0}}))
    run.plan.write_text("{}")
    sealed = max(0, steps - 1000)
    for rank in range(ranks):
        place = run.record / f"rank-{rank:05d}"
        place.mkdir(parents=True)
        for first in range(1, sealed + 1, SEGMENT):
            last = min(first + SEGMENT - 1, sealed)
            path = place / f"step-{first:012d}-{last:012d}.parquet"
            pl.DataFrame(columns(first, last, rank)).write_parquet(
                path, compression="zstd", compression_level=1, row_group_size=65_536
            )
        writer = RecordWriter(run.record, rank, NEVER)
        for row in pl.DataFrame(columns(sealed + 1, steps, rank)).drop("sequence").iter_rows(named=True):
            flat = {field: value for field, value in row.items() if "." not in field}
            for field in ("loss_by_source", "seconds"):
                flat[field] = {
                    key.partition(".")[2]: value for key, value in row.items() if key.startswith(field + ".")
                }
            writer.append("step", flat)
        writer.append("event", {"step": 0, "event": "started", "attempt": 1, "time": 1.7e9, "detail": {}})
        assert writer.close()


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """`stoker watch` over a folder, once it answers, and its address."""
    command = [sys.executable, "-m", "stoker", "watch", str(folder), "--port", "0", "--json", "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.stdout is not None
    text = ""
    while True:
        text += process.stdout.readline()
        try:
            return process, json.loads(text)["url"]
        except ValueError:
            assert process.poll() is None, "the server did not start"


_FIRST_CHART = """() => new Promise((done) => {
  if (window.drawnAt) return done(window.drawnAt);
  document.addEventListener('drawn', () => requestAnimationFrame(() => done(performance.now())), { once: true });
})"""
_FRAMES = """(count) => new Promise((done) => {
  const times = []; let last = performance.now();
  const frame = (now) => {
    times.push(now - last);
    last = now;
    if (times.length < count) requestAnimationFrame(frame); else done(times);
  };
  requestAnimationFrame(frame);
})"""
_NOTE = "document.addEventListener('drawn', () => { window.drawnAt ??= performance.now(); });"
_ZOOMED = """() => { window.zoomedAt = new Promise((done) => {
  const begun = performance.now();
  document.addEventListener('drawn', () => done(performance.now() - begun), { once: true });
}); }"""


class Effort:
    """Processor time of the server and of the page's main thread, and the bytes that came over the wire."""

    def __init__(self, page: Page, server: psutil.Process) -> None:
        self.server = server
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.session.send("Network.enable")
        self.session.on("Network.loadingFinished", self._finished)
        self.bytes = 0
        self.begin()

    def _finished(self, told: dict[str, Any]) -> None:
        self.bytes += int(told["encodedDataLength"])

    def _seconds(self) -> tuple[float, float]:
        times = self.server.cpu_times()
        metrics = {one["name"]: one["value"] for one in self.session.send("Performance.getMetrics")["metrics"]}
        return times.user + times.system, metrics["TaskDuration"]

    def begin(self) -> None:
        """From here on."""
        self.bytes = 0
        self.begun = self._seconds()

    def told(self) -> dict[str, float]:
        """Since `begin`: milliseconds of the server and of the page's main thread, bytes received."""
        server, page = self._seconds()
        # Another address may come with another process, whose clock begins with it.
        page -= self.begun[1] if page >= self.begun[1] else 0.0
        return {"server_ms": 1000 * (server - self.begun[0]), "page_ms": 1000 * page, "bytes": self.bytes}


def opened(page: Page, address: str) -> float:
    """Milliseconds from opening the address to the first chart."""
    page.goto(address)
    return float(page.evaluate(_FIRST_CHART))


def panned(page: Page) -> list[float]:
    """Milliseconds of each frame while one pans by dragging."""
    box = page.locator("#chart-loss .u-over").bounding_box()
    assert box is not None
    middle, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.keyboard.down("Shift")
    page.mouse.move(middle, height)
    page.mouse.down()
    page.evaluate("count => { window.panning = (" + _FRAMES + ")(count); }", FRAMES)
    for index in range(FRAMES):
        page.mouse.move(middle + 200 * np.sin(index / 9), height)
    times = page.evaluate("() => window.panning")
    page.mouse.up()
    page.keyboard.up("Shift")
    return [float(one) for one in times]


def zoomed(page: Page, share: float) -> float:
    """Milliseconds from letting go of the mouse until the curve is drawn anew from the server's points."""
    box = page.locator("#chart-loss .u-over").bounding_box()
    assert box is not None
    begin, end = box["x"] + box["width"] * (0.5 - share / 2), box["x"] + box["width"] * (0.5 + share / 2)
    page.mouse.move(begin, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(end, box["y"] + 60, steps=4)
    page.evaluate(_ZOOMED)
    page.mouse.up()
    return float(page.evaluate("() => window.zoomedAt"))


def measured(folder: Path) -> dict[str, Any]:
    """Everything, in one session of a browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser is not None, "no Chromium on this machine"
    process, address = serve(folder)
    told: dict[str, Any] = {}
    try:
        with (
            sync_playwright() as driver,
            driver.chromium.launch(
                executable_path=browser, args=["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
            ) as chromium,
        ):
            page = chromium.new_page(viewport={"width": 1440, "height": 900})
            page.add_init_script(_NOTE)
            effort = Effort(page, psutil.Process(process.pid))
            begun = time.perf_counter()
            page.goto(address)
            page.wait_for_selector("table.runs tbody tr .name")
            told["list_ms"] = 1000 * (time.perf_counter() - begun)
            told["list_effort"] = effort.told()
            told["runs"] = page.locator("table.runs tbody tr").count()
            link = page.locator("a.name", has_text="million").get_attribute("href")
            for visit in ("cold", "warm"):
                page.goto("about:blank")
                effort.begin()
                told[f"first_chart_{visit}_ms"] = opened(page, address + (link or ""))
                told[f"first_chart_{visit}_effort"] = effort.told()
                page.wait_for_timeout(1500)
            told["zoom_ms"] = zoomed(page, 0.3)
            page.wait_for_timeout(500)
            frames = sorted(panned(page))
            told["pan_frame_ms"] = {
                "median": frames[len(frames) // 2],
                "p95": frames[int(0.95 * len(frames))],
                "longest": frames[-1],
            }
            page.wait_for_timeout(500)
            told["heap_bytes"] = page.evaluate("() => performance.memory.usedJSHeapSize")
            page.locator("#heat-ranks").scroll_into_view_if_needed()
            begun = time.perf_counter()
            page.wait_for_selector("#heat-ranks canvas", timeout=60_000)
            told["rank_map_ms"] = 1000 * (time.perf_counter() - begun)
            told["server_bytes"] = psutil.Process(process.pid).memory_info().rss
    finally:
        process.terminate()
        process.wait(30)
    return told


def main() -> None:
    """Make the runs, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        begun = time.perf_counter()
        write_run(Path(temporary) / "million", given.steps, given.ranks, "million")
        for index in range(given.runs - 1):
            write_run(Path(temporary) / f"run-{index:03d}", 300, 1, f"run-{index:03d}")
        made = time.perf_counter() - begun
        told = measured(Path(temporary))
    told["made_seconds"] = made
    if given.json:
        print(json.dumps(told, indent=2))
        return
    pan = told["pan_frame_ms"]
    print(f"{given.steps:,} steps, {given.ranks} ranks, {told['runs']} runs, written in {made:.1f} s")
    for name, key in (
        ("list of runs shown", "list"),
        ("first chart, cold server", "first_chart_cold"),
        ("first chart, warm server", "first_chart_warm"),
    ):
        used = told[key + "_effort"]
        print(
            f"{name:26}{told[key + '_ms']:8.0f} ms (processor: server {used['server_ms']:.0f} ms, page "
            f"{used['page_ms']:.0f} ms; received {used['bytes'] / 2**10:.0f} KiB)"
        )
    print(f"zoom, drawn anew          {told['zoom_ms']:8.0f} ms")
    worst = f"{pan['p95']:.1f} p95, {pan['longest']:.1f} longest"
    print(f"pan, a frame              {pan['median']:8.1f} ms median, {worst}")
    print(f"map of ranks              {told['rank_map_ms']:8.0f} ms")
    print(f"browser's heap            {told['heap_bytes'] / 2**20:8.1f} MiB")
    print(f"server's memory           {told['server_bytes'] / 2**20:8.0f} MiB")


if __name__ == "__main__":
    main()
