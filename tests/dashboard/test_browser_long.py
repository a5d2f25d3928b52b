"""The page after weeks and at the edges: many findings, narrow windows, gaps, servers that come back."""

from __future__ import annotations

import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from stoker.dashboard import doctor
from stoker.dashboard.doctor import with_words
from stoker.dashboard.page_files import page_files
from stoker.dashboard.watched import WatchedRun
from tests.dashboard import watched_runs
from tests.dashboard.test_browser import chromium as chromium
from tests.dashboard.test_browser import drawn, page_at, served
from tests.dashboard.watched_runs import append_steps, write_run

pytestmark = pytest.mark.slow
NOTES, ALARM_STEP = 120, 99


def finding(step: int, severity: str) -> dict[str, Any]:
    return with_words({
        "kind": "spike", "cause": "html_text", "severity": severity, "first_step": step, "last_step": step,
        "evidence": [], "alternatives": [], "documents": [], "ranks": [], "sources": [], "names": ["n" * 300],
        "remedy": {"action": "leave_out_documents", "arguments": {"step": step}},
    })  # fmt: skip


@pytest.fixture
def many_findings(monkeypatch: pytest.MonkeyPatch) -> int:
    """The diagnosis of every run: notes over all steps, and one alarm at the end."""
    found = [finding(1 + 97 * i // NOTES, "note") for i in range(NOTES)] + [finding(ALARM_STEP, "alarm")]

    async def diagnosed(run: WatchedRun) -> dict[str, Any]:
        return {"state": "done", "findings": found}

    monkeypatch.setattr(doctor, "_diagnosed", diagnosed)
    monkeypatch.setattr(doctor, "_BEGIN_AFTER_SECONDS", 0.0)
    return len(found)


def test_of_many_findings_the_gravest_come_first_and_all_can_be_seen(
    chromium: Browser, tmp_path: Path, many_findings: int
) -> None:
    write_run(tmp_path)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        page.wait_for_selector("#findings .finding", timeout=30_000)
        drawn(page)
        cards = page.locator("#findings .finding")
        assert cards.count() == 40
        assert "alarm" in (cards.first.get_attribute("class") or "")
        assert cards.first.locator(".remedy code").first.inner_text() == f"stoker data show RUN --step {ALARM_STEP}"
        places = sorted(box["x"] for pin in page.locator(".pin").all() if (box := pin.bounding_box()))
        assert 10 < len(places) < NOTES, "pins that would lie over each other are one"
        assert min(b - a for a, b in pairwise(places)) > 8
        more = page.get_by_role("button", name=f"Show {many_findings - 40} more")
        more.click()
        page.wait_for_function(f"() => document.querySelectorAll('#findings .finding').length === {many_findings}")


@pytest.mark.parametrize("path", ["list", "run"])
def test_a_narrow_window_scrolls_only_downwards(
    chromium: Browser, tmp_path: Path, many_findings: int, path: str
) -> None:
    write_run(tmp_path / "one", name="a-name-without-a-space-that-is-longer-than-the-window-of-a-phone-is-wide")
    write_run(tmp_path / "two")
    with served(tmp_path if path == "list" else tmp_path / "one") as address, page_at(chromium, address) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        if path == "run":
            page.wait_for_selector("#findings .finding", timeout=30_000)
            drawn(page)
        else:
            page.wait_for_selector("table.runs a.name")
            assert all((name.bounding_box() or {})["width"] > 120 for name in page.locator("a.name").all())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (1024, 194_560, 12, [2e3, 3e3, 5e3, 7e3, 1e4, 2e4, 3e4, 5e4, 7e4, 1e5]),
        (1024, 194_560, 5, [3e3, 1e4, 3e4, 1e5]),
        (1.96, 7.1, 10, [2, 3, 4, 5, 6, 7]),
        (2.31, 2.62, 5, [2.4, 2.5, 2.6]),
        (1e-9, 1e9, 8, [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round_values(
    chromium: Browser, tmp_path: Path, low: float, high: float, most: int, expected: list[float]
) -> None:
    write_run(tmp_path, steps=3)
    module = f"/file/{page_files().version}/logarithm.js"
    with served(tmp_path) as address, page_at(chromium, address) as page:
        found = page.evaluate(
            f"([low, high, most]) => import('{module}').then((it) => it.logarithmicTicks(low, high, most))",
            [low, high, most],
        )
    assert found == pytest.approx(expected)


def test_a_flat_curve_has_an_axis_of_its_value_and_not_of_its_rounding(chromium: Browser, tmp_path: Path) -> None:
    """It is constant but for the rounding of smoothing, over which there were once half a million ticks."""
    write_run(tmp_path / "a", name="first", steps=190)
    write_run(tmp_path / "b", name="second", steps=60)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        for box in page.locator("table.runs input[type=checkbox]").all():
            box.check()
        page.locator(".bar a.plain").click()
        drawn(page)
        page.locator("#chart-update_to_weight").scroll_into_view_if_needed()
        drawn(page, "update_to_weight")  # too many labels end the script, which `page_at` reports


def test_nothing_is_drawn_across_steps_whose_loss_is_not_finite(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = watched_runs.step_row

    def broken(step: int, *given: Any) -> dict[str, Any]:
        row = ordinary(step, *given)
        return {**row, "loss": math.nan} if 30 <= step <= 60 else row

    monkeypatch.setattr(watched_runs, "step_row", broken)
    write_run(tmp_path)
    inked = """() => {
      const plot = document.querySelector('#chart-loss .u-wrap');
      const canvas = plot.querySelector('canvas'), over = plot.querySelector('.u-over');
      const scale = canvas.width / canvas.clientWidth, left = over.offsetLeft, top = over.offsetTop;
      const width = Math.round(over.clientWidth * scale), height = Math.round((over.clientHeight - 20) * scale);
      const all = canvas.getContext('2d').getImageData(left * scale, top * scale, width, height).data;
      const columns = (from, to) => {
        let found = 0;
        for (let i = 0; i < all.length; i += 4) {
          const share = ((i / 4) % width) / width;
          if (share >= from && share <= to && all[i + 3] > 60 && all[i + 2] > all[i] + 40) found += 1;
        }
        return found;
      };
      return [columns(0.1, 0.25), columns(0.33, 0.56)];
    }"""
    with served(tmp_path) as address, page_at(chromium, address, color_scheme="light") as page:
        drawn(page)
        before, inside = page.evaluate(inked)
    assert before > 50, "the curve is blue where there is one"
    assert inside == 0


def test_a_server_that_comes_back_is_listened_to_again(chromium: Browser, tmp_path: Path) -> None:
    (writer,) = write_run(tmp_path, ranks=(0,), close=False)
    writer.flush()
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    with served(tmp_path) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        page.goto(address)
        drawn(page)
        page.wait_for_selector("#link.open", timeout=30_000)
    page.wait_for_selector("#link.lost", timeout=30_000)
    append_steps(writer, 0, 101, 140)
    writer.flush()
    with served(tmp_path, port=port):
        page.wait_for_selector("#link.open", timeout=60_000)
        page.wait_for_function("() => document.querySelector('.figures').innerText.includes('140')", timeout=30_000)
        page.wait_for_function("() => document.querySelector('#chart-loss .at').innerText.includes('140')")
    page.close()
    writer.close()


def test_a_run_that_was_removed_is_told_and_its_curve_stays(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "one", name="one")
    write_run(tmp_path / "two", name="two")
    with served(tmp_path) as address, page_at(chromium, address) as page:
        page.locator("a.name", has_text="one").click()
        drawn(page)
        shutil.rmtree(tmp_path / "one")
        page.wait_for_timeout(2500)
        assert page.locator("#chart-loss .uplot").count() == 1
        page.locator("#top a.crumb").click()
        page.wait_for_selector("table.runs tbody tr .state.removed", timeout=30_000)
        assert page.locator("table.runs tbody tr").count() == 2
