"""The pictures of docs/images and of the README, made by the product from a run with a spike and a slow rank.

    python benchmarks/pictures.py [--runs FOLDER] [--to docs/images]

Trains the quickstart twice on two ranks, once undisturbed and once with garbled text in two steps and a rank that
is slow for twenty (`stoker drill`); opens both with `stoker watch` in headless Chromium, waits for the doctor, and
takes the pictures. `--runs` keeps the runs, or takes those that are there already. Needs Chromium and playwright.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from dashboard import serve

ROOT = Path(__file__).parents[1]
SPIKE, SLOW = 120, 150
RECIPE = (
    "layout.dp_replicate=2",
    "training.steps=200",
    "training.sequence_length=128",
    "training.global_batch_size=8",
    "checkpoint.every=40",
)
FAULTS = f"bad_data@{SPIKE}:0:steps=2+slow_rank@{SLOW}:1:steps=20"
PATIENCE = 180_000


def train(folder: Path) -> None:
    """Both runs, as `stoker drill` makes them."""
    command = [sys.executable, "-m", "stoker", "drill", str(ROOT / "examples/quickstart/recipe.yaml"), *RECIPE]
    subprocess.run([*command, "--fault", FAULTS, "--folder", str(folder)], check=True)


def opened(
    browser: Browser, address: str, *, locale: str = "en-GB", scheme: str = "light", wide: int = 1440
) -> Page:
    """A page that has drawn its curve and heard from the doctor."""
    page = browser.new_page(viewport={"width": 1440, "height": 960}, locale=locale, color_scheme=scheme)
    page.goto(address)
    page.wait_for_selector("#chart-loss .uplot", timeout=PATIENCE)
    page.wait_for_selector("#findings .finding", timeout=PATIENCE)
    page.wait_for_timeout(500)
    return page


def step_opened(page: Page, step: int, first: int, last: int) -> None:
    """Click the curve at a step; the picture shows the steps `first` to `last`."""
    box = page.locator("#chart-loss .u-over").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * (step - first) / (last - first), box["y"] + box["height"] / 2)
    page.wait_for_selector("#panel-timeline canvas", timeout=PATIENCE)
    page.wait_for_selector("#panel-documents .document", timeout=PATIENCE)
    page.wait_for_timeout(800)


def taken(browser: Browser, address: str, one: str, both: str, to: Path) -> None:
    """All pictures. `one` is the address of the disturbed run, `both` that of it beside the undisturbed one."""
    steps = int(RECIPE[1].rpartition("=")[2])
    for name, locale, scheme in (
        ("watch-run", "en-GB", "light"),
        ("watch-run-chinese", "zh-CN", "light"),
        ("watch-run-dark", "en-GB", "dark"),
    ):
        page = opened(browser, address + one, locale=locale, scheme=scheme)
        step_opened(page, SPIKE, 1, steps)
        page.screenshot(path=to / f"{name}.png")
        page.close()
    page = opened(browser, address + one + f"?zoom={SLOW - 20}~{SLOW + 30}")
    page.locator("#heat-ranks").scroll_into_view_if_needed()
    page.locator("#heat-ranks select:not(.which)").select_option("step:work_seconds")
    page.wait_for_timeout(2500)
    page.locator("#heat-ranks").scroll_into_view_if_needed()
    box = page.locator("#heat-ranks .plot canvas").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.55, box["y"] + 27)
    page.wait_for_selector("#panel-timeline canvas", timeout=PATIENCE)
    page.wait_for_timeout(1500)
    page.screenshot(path=to / "watch-ranks.png")
    page.close()
    page = opened(browser, address + both)
    page.wait_for_timeout(1500)
    page.screenshot(path=to / "watch-overlay.png")
    page.close()


def main() -> None:
    """Train where nothing was trained, serve, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=None)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    to = given.to.resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.runs or Path(temporary) / "runs"
        if not folder.exists():
            train(folder.resolve())
        browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert browser is not None, "no Chromium on this machine"
        os.chdir(folder.resolve().parent)  # The page tells where a run is: in a picture, beside the folder.
        process, address = serve(Path(folder.name))
        try:
            with (
                sync_playwright() as driver,
                driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"]) as chromium,
            ):
                page = chromium.new_page()
                rows = page.request.get(address + "api/runs").json()["runs"]
                by_folder = {Path(row["path"]).name: row["id"] for row in rows}
                assert len(by_folder) == 2, by_folder
                calm = by_folder.pop("undisturbed")
                (spiky,) = by_folder.values()
                taken(chromium, address, f"#/run/{spiky}", f"#/run/{spiky},{calm}", to)
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
