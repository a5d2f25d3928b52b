"""Pages as a browser shows them."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import TimeoutError, sync_playwright

import stoker.report
from stoker.report import write_report
from tests.report.synthetic_run import SyntheticRun
from tests.report.test_page import Page, hostile_run


def shown_by_browser(page: Path, charts: int = 1) -> str:
    """The document as Chromium has it once the page's scripts have drawn so many charts, or given up."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"]) as chromium,
    ):
        shown = chromium.new_page(viewport={"width": 1400, "height": 6000})
        shown.goto(page.as_uri())
        with suppress(TimeoutError):  # what is missing then is what a test says
            shown.wait_for_function(
                "count => document.querySelectorAll('div.uplot').length >= count", arg=charts, timeout=120_000
            )
        return shown.content()


@pytest.mark.slow
def test_ticks_are_spelled_alike_apart_and_round(tmp_path: Path) -> None:
    linear = {
        "seconds": [[0, 0.5, 1, 1.5], [0, 0.002, 0.004]],
        "bytes": [[1.75 * 2**30, 1.875 * 2**30, 2 * 2**30], [0, 512 * 2**20, 2**30]],
        "step": [[1, 2, 3], [0, 100_000, 200_000], [120_000, 120_500, 121_000], [0, 1_000_000, 2_000_000]],
        "count": [[0, 500, 1000, 1500], [0, 5e7, 1e8], [14_900, 14_950, 15_000]],
        "number": [[0, 1e-4, 2e-4], [4.2, 4.2025, 4.205], [0, 2000, 4000], [2, 2.5, 3]],
    }
    logarithmic = [[2.675, 8.9], [1.24e-5, 3.3e-4], [3.1, 3.4], [1e-9, 1e9]]
    script = (Path(stoker.report.__file__).parent / "template" / "decode.js").read_text(encoding="utf-8")
    page = tmp_path / "ticks.html"
    page.write_text(
        '<!DOCTYPE html><meta charset="utf-8"><body>'
        '<script type="application/json" id="payload">{"axes":{}}</script>'
        f"<script>{script}\nconst shown = [{json.dumps(linear)}, {json.dumps(logarithmic)}];"
        "const labels = Object.entries(shown[0])"
        ".map(([kind, rows]) => rows.map((row) => Report.tickLabels(kind, row)));"
        "const places = shown[1].map(([least, most]) => Report.logTicks(least, most));"
        "const text = JSON.stringify([labels, places]);"
        'document.body.innerHTML = `<pre>${text}</pre><div class="uplot">`;'
        "</script>",
        encoding="utf-8",
    )
    found = re.search(r"<pre[^>]*>(.*?)</pre>", shown_by_browser(page))
    assert found is not None
    labels, places = json.loads(found[1])
    assert labels == [
        [["0.0 s", "0.5 s", "1.0 s", "1.5 s"], ["0 ms", "2 ms", "4 ms"]],
        [["1.750 GiB", "1.875 GiB", "2.000 GiB"], ["0.0 GiB", "0.5 GiB", "1.0 GiB"]],
        [
            ["1", "2", "3"], ["0", "100,000", "200,000"], ["120,000", "120,500", "121,000"], ["0", "1M", "2M"],
        ],
        [["0", "0.5k", "1.0k", "1.5k"], ["0", "50M", "100M"], ["14.90k", "14.95k", "15.00k"]],
        [
            ["0", "1e-4", "2e-4"], ["4.2000", "4.2025", "4.2050"], ["0", "2,000", "4,000"], ["2.0", "2.5", "3.0"],
        ],
    ]  # fmt: skip
    assert places == [
        [3, 4, 5, 6, 7, 8],
        [2e-5, 5e-5, 1e-4, 2e-4],
        [3.1, 3.2, 3.3, 3.4],
        [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9],
    ]


@pytest.mark.slow
def test_a_browser_does_not_run_hostile_text(tmp_path: Path) -> None:
    dom = shown_by_browser(write_report([hostile_run(tmp_path / "run")]))
    assert "<title>run</title>" not in dom
    assert '<div class="uplot' in dom


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        SyntheticRun(),
        SyntheticRun(steps=1, planned_steps=1, evaluate_every=1, resume_from=None),
        SyntheticRun(steps=60, evaluate_every=60, resume_from=None),
        SyntheticRun(steps=5, not_finite=(1, 2, 3, 4, 5), resume_from=None),
    ],
    ids=["whole", "one step", "one evaluation", "never finite"],
)
def test_a_browser_draws_every_chart(tmp_path: Path, run: SyntheticRun) -> None:
    path = write_report([run.write(tmp_path / "run")])
    kinds = [chart["kind"] for chart in Page(path.read_text()).payload["charts"].values()]
    lines = len(kinds) - kinds.count("heat")
    dom = shown_by_browser(path, lines)
    assert dom.count('<div class="uplot') == lines
    assert dom.count('<canvas class="heat"') == kinds.count("heat")


# --- several runs, long runs -----------------------------------------------------------------------
