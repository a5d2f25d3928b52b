"""The page in a browser: it draws, zooms, opens a spike, lays runs over each other, runs no text of a record."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from stoker.dashboard import doctor
from stoker.dashboard.application import Watching
from stoker.dashboard.doctor import with_words
from stoker.dashboard.serving import Address, bound_socket, server_for
from stoker.dashboard.watched import WatchedRun
from tests.dashboard.watched_runs import SPIKE, append_steps, write_run

pytestmark = pytest.mark.slow

HOSTILE = "</title><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"]) as browser,
    ):
        yield browser


@contextmanager
def served(*folders: Path, port: int = 0) -> Iterator[str]:
    """The address of a dashboard over `folders`, served from a thread of this process."""
    listening = bound_socket("127.0.0.1", port)
    address = Address("127.0.0.1", listening.getsockname()[1], None)
    server = server_for(Watching(folders), address, lambda: None)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    try:
        yield address.url
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextmanager
def page_at(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page that has drawn; nothing may have gone wrong in it by the end."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000}, **options)
    faults: list[str] = []
    page.on(
        "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address)
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    yield page
    page.close()
    assert faults == []


def drawn(page: Page, chart: str = "loss") -> None:
    page.wait_for_selector(f"#chart-{chart} .uplot", timeout=60_000)


def click_in(page: Page, chart: str, share: float) -> None:
    box = page.locator(f"#chart-{chart} .u-over").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_a_run_is_drawn_in_both_languages_and_colours(chromium: Browser, tmp_path: Path, locale: str) -> None:
    write_run(tmp_path)
    scheme = "dark" if locale == "zh-CN" else "light"
    with served(tmp_path) as address, page_at(chromium, address, locale=locale, color_scheme=scheme) as page:
        drawn(page)
        assert ("损失" if locale == "zh-CN" else "Loss") in page.inner_text("#chart-loss h3")
        for section in ("optimisation", "modules", "speed", "machine", "data"):
            page.locator(f"#{section}").scroll_into_view_if_needed()
            page.wait_for_timeout(300)
        for chart in ("gradient_norm", "update_to_weight", "phases", "memory_peak_bytes", "machine-utilisation"):
            drawn(page, chart)
        assert page.locator("#heat-ranks canvas").count() >= 1
        assert page.locator("#heat-modules canvas").count() >= 1
        assert page.locator("#chart-attention_logit.empty").count() == 1
        page.locator("#top button").first.click()
        page.wait_for_function(
            "(text) => document.querySelector('#chart-loss h3')?.textContent === text",
            arg="Loss" if locale == "zh-CN" else "损失",
        )


def test_axis_logarithms_and_smoothing_each_change_the_picture(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path)

    def picture(page: Page) -> str:
        return str(page.evaluate("document.querySelector('#chart-loss canvas').toDataURL()"))

    with served(tmp_path) as address, page_at(chromium, address) as page:
        drawn(page)
        pictures = [picture(page)]

        def changed() -> None:
            """Wait for a picture that is none of those before."""
            page.wait_for_function(
                "(known) => !known.includes(document.querySelector('#chart-loss canvas')?.toDataURL())",
                arg=pictures,
            )
            pictures.append(picture(page))

        for name in ("log y", "log x"):
            page.get_by_label(name).click()
            changed()
        page.get_by_label("Smoothing").fill("0")  # raw alone; before, the smoothed curve lay over it
        changed()
        for unit in ("Tokens", "Time"):
            page.get_by_role("button", name=unit, exact=True).click()
            changed()
            assert page.get_by_role("button", name=unit, exact=True).get_attribute("aria-pressed") == "true"


def test_stretches_of_samples_are_told_once_and_in_order(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    singles = [[sample, sample] for sample in range(12_007, 11_991, -1)]
    found = with_words({
        "kind": "spike", "cause": "html_text", "severity": "warning", "first_step": SPIKE, "last_step": SPIKE,
        "evidence": [], "alternatives": [], "documents": [[11_992, 11_999], *singles, [30, 30]], "ranks": [],
        "sources": [], "names": [], "remedy": {"action": "none", "arguments": {}},
    })  # fmt: skip

    async def diagnosed(run: WatchedRun) -> dict[str, Any]:
        return {"state": "done", "findings": [found]}

    monkeypatch.setattr(doctor, "_diagnosed", diagnosed)
    monkeypatch.setattr(doctor, "_BEGIN_AFTER_SECONDS", 0.0)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        page.wait_for_selector("#findings .finding", timeout=30_000)
        assert "sample 30 · samples 11,992 to 12,007" in page.inner_text("#findings .finding")


def test_a_name_that_turns_its_letters_around_is_shown_in_the_order_written(
    chromium: Browser, tmp_path: Path
) -> None:
    write_run(tmp_path / "one", name="safe\u202egnp.exe")
    write_run(tmp_path / "two")
    with served(tmp_path) as address, page_at(chromium, address) as page:
        page.wait_for_selector("table.runs tbody tr")
        assert sorted(page.locator("table.runs a.name").all_inner_texts()) == ["anvil", "safe\\u202egnp.exe"]


ENGLISH_UNIT = re.compile(r"\d[\d.,]* ?(?:µs|ms|s|min|h|d)(?![\w/.-])")


def test_a_chinese_page_has_chinese_units_of_time_everywhere(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    write_run(tmp_path / "two")
    with served(tmp_path) as address, page_at(chromium, address, locale="zh-CN") as page:
        page.wait_for_selector("table.runs tbody tr")
        listed = page.inner_text("body")
        page.locator("table.runs a.name").first.click()
        drawn(page)
        for section in ("optimisation", "modules", "speed", "machine", "data", "events"):
            page.locator(f"#{section}").scroll_into_view_if_needed()
            page.wait_for_timeout(200)
        run = page.inner_text("body")
        page.evaluate("document.querySelector('#overview').scrollIntoView()")
        click_in(page, "loss", (SPIKE - 1) / 99)
        page.wait_for_selector("#panel-timeline canvas", timeout=60_000)
        panel = page.inner_text("#panel")
    assert re.search(r"\d 天前", listed), "of a record that was written long ago"
    assert re.search(r"\d (毫秒|秒) / 步", run)
    for text in (listed, run, panel):
        assert ENGLISH_UNIT.findall(text) == []


def test_zooming_in_one_chart_zooms_all_and_goes_into_the_address(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        drawn(page)
        box = page.locator("#chart-loss .u-over").bounding_box()
        assert box is not None
        for share in (0.2, 0.6):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 50)
            page.mouse.down() if share == 0.2 else page.mouse.up()
        page.wait_for_function("() => location.hash.includes('zoom=')")
        begin, end = (
            float(one) for one in page.evaluate("location.hash.split('zoom=')[1].split('%7E').join('~').split('~')")
        )
        assert begin == pytest.approx(1 + 0.2 * 99, abs=1.5)
        assert end == pytest.approx(1 + 0.6 * 99, abs=1.5)
        page.locator("#chart-loss .plot").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            f"() => decodeURIComponent(location.hash).split('zoom=')[1].split('~')[0] > {begin + 1}"
        )
        page.keyboard.press("0")
        page.wait_for_function("() => !location.hash.includes('zoom=')")


def test_a_click_on_a_spike_shows_its_documents_and_ranks(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        drawn(page)
        click_in(page, "loss", (SPIKE - 1) / 99)
        page.wait_for_selector("#panel-timeline canvas", timeout=60_000)
        panel = page.inner_text("#panel")
        assert f"step {SPIKE}" in panel
        assert f"sample {8 * SPIKE}" in panel
        assert "does not say where its corpus is" in panel
        assert f"stoker data show {tmp_path} --step {SPIKE}" in panel
        page.keyboard.press("Escape")
        assert page.locator("#panel").is_hidden()


def test_two_runs_are_laid_over_each_other_and_compared(chromium: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "a", name="first")
    write_run(tmp_path / "b", name="second", steps=60)
    with served(tmp_path) as address, page_at(chromium, address) as page:
        for box in page.locator("table.runs input[type=checkbox]").all():
            box.check()
        page.locator(".bar a.plain").click()
        drawn(page)
        assert page.locator("#chart-loss .legend button").count() == 2
        page.locator("#difference").scroll_into_view_if_needed()
        page.wait_for_selector("#difference table", timeout=30_000)
        assert "60 steps in both" in page.inner_text("#difference")


def test_of_runs_laid_over_each_other_the_one_on_the_map_and_in_the_funnel_is_chosen(
    chromium: Browser, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", name="first", ranks=(0, 1))
    write_run(tmp_path / "b", name="second", steps=60, ranks=(0, 1, 2))
    funnel = [
        {"source": "only in the second", "stage": stage, "reason": "", "documents": 9, "bytes": 99}
        for stage in ("read", "kept")
    ]
    (tmp_path / "b" / "corpus.json").write_text(json.dumps({"funnel": funnel}))
    with served(tmp_path) as address, page_at(chromium, address) as page:
        assert page.locator("select.which").count() == 0
        for box in page.locator("table.runs input[type=checkbox]").all():
            box.check()
        page.locator(".bar a.plain").click()
        drawn(page)
        page.locator("#heat-ranks").scroll_into_view_if_needed()
        page.wait_for_selector("#heat-ranks canvas", timeout=30_000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        with page.expect_request(lambda request: "/heat" in request.url):
            page.locator("#heat-ranks select.which").select_option(label="second")
        page.wait_for_function("() => document.querySelector('#data').innerText.includes('only in the second')")
        page.wait_for_function(
            "() => document.querySelector('#heat-ranks select.which').selectedOptions[0].text === 'second'"
        )
        second = page.locator("#heat-ranks select.which").input_value()
        assert page.locator("#data select.which").input_value() == second
        page.wait_for_function("() => document.querySelector('#heat-ranks canvas').height >= 3 * 18 + 16")
        assert any(f"/run/{second}/heat" in url for url in asked)
        assert not any("/lines" in url for url in asked)
        page.locator("#data select.which").select_option(label="first")
        page.wait_for_function("() => !document.querySelector('#data').innerText.includes('only in the second')")


def test_on_the_chinese_page_a_finding_is_told_in_chinese(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    evidence = {"measure": "loss", "expected": "the same", "observed": 9.0, "step": SPIKE}
    weighed = {"cause": "hard_documents", "score": 1.0, "speaks_for": [evidence], "speaks_against": []}
    found = with_words({
        "kind": "spike", "cause": "garbled_text", "severity": "warning", "first_step": SPIKE, "last_step": SPIKE,
        "evidence": [evidence], "alternatives": [weighed], "documents": [], "ranks": [], "sources": [], "names": [],
        "remedy": {"action": "leave_out_documents", "arguments": {"step": SPIKE}},
    })  # fmt: skip

    async def diagnosed(run: WatchedRun) -> dict[str, Any]:
        return {"state": "done", "findings": [found]}

    monkeypatch.setattr(doctor, "_diagnosed", diagnosed)
    monkeypatch.setattr(doctor, "_BEGIN_AFTER_SECONDS", 0.0)
    with served(tmp_path) as address, page_at(chromium, address, locale="zh-CN") as page:
        page.wait_for_selector("#findings .finding", timeout=30_000)
        text = page.inner_text("#findings .finding")
        for chinese in (
            "尖峰：乱码文本",
            found["chinese"]["meanings"]["garbled_text"],
            "损失：9，预期 相同",
            "剔除这些文档",
        ):
            assert chinese in text
        assert f"stoker data show {tmp_path} --step {SPIKE}" in text
        assert "leave these documents out" not in text
        page.locator("#top button").first.click()
        page.wait_for_function(
            "() => document.querySelector('#findings').innerText.includes('leave these documents out')"
        )
        assert found["meanings"]["garbled_text"] in page.inner_text("#findings .finding")


def test_what_is_written_meanwhile_appears(chromium: Browser, tmp_path: Path) -> None:
    (writer,) = write_run(tmp_path, ranks=(0,), close=False)
    writer.flush()
    with served(tmp_path) as address, page_at(chromium, address) as page:
        drawn(page)
        append_steps(writer, 0, 101, 130)
        writer.flush()
        page.wait_for_function("() => document.querySelector('.figures').innerText.includes('130')", timeout=30_000)
        page.wait_for_function(
            "() => document.querySelector('#chart-loss .at').innerText.includes('130')", timeout=30_000
        )
    writer.close()


def test_hostile_text_is_shown_and_never_run(chromium: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "<script>window.ran = 1<" / "run"
    write_run(folder, name=HOSTILE, sources=(HOSTILE, "b"))
    with served(tmp_path) as address, page_at(chromium, address) as page:
        drawn(page)
        click_in(page, "loss", (SPIKE - 1) / 99)
        page.wait_for_selector("#panel-timeline canvas", timeout=60_000)
        assert "<script>" in page.inner_text("#panel")
        page.locator("#chart-loss_by_source").scroll_into_view_if_needed()
        drawn(page, "loss_by_source")
        assert HOSTILE in page.inner_text("#chart-loss_by_source .legend")
        assert HOSTILE in page.title()
        assert page.evaluate("window.ran") is None
        assert page.locator("main img, #panel img, main script").count() == 0
