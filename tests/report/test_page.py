from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import math
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stoker.errors import BadInput
from stoker.record import SUPERVISOR, RecordWriter
from stoker.report import write_report
from stoker.report.page import embedded_json
from stoker.report.run_facts import RunFacts
from stoker.report.story import model_words
from stoker.run_directory import RunDirectory
from tests.report.synthetic_run import SyntheticRun

HOSTILE = "</script><img src=x onerror=document.title='run'><script>document.title='run'</script>\u2028'\"&"


class Page(HTMLParser):
    """The page as a browser would take it apart: elements, attributes, visible text, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text += " "
        if tag in ("script", "style"):
            self._inside.append(tag)
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data
        elif self._inside[-1] == "script":
            self.scripts[-1] += data

    @property
    def payload(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.scripts_of_type("application/json")[0])
        return content

    def scripts_of_type(self, kind: str | None) -> list[str]:
        places = [attrs for tag, attrs in self.elements if tag in ("script", "style")]
        return [
            text for text, attrs in zip(self.scripts, places, strict=True) if text and attrs.get("type") == kind
        ]


def page_of(*runs: RunDirectory) -> Page:
    return Page(write_report(runs).read_text(encoding="utf-8"))


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def floats(packed: str, kind: str = "<f4") -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(packed), dtype=kind).astype(np.float64)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(SyntheticRun().write(tmp_path_factory.mktemp("run")))


def test_the_page_needs_nothing_else(whole: Page) -> None:
    for tag, attributes in whole.elements:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    [policy] = [a["content"] or "" for t, a in whole.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]
    for script in whole.scripts_of_type(None):
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_a_model_of_one_layer_and_one_head_has_no_heads() -> None:
    recipe = {"model": {"layers": 1, "heads": 1, "hidden_size": 32}, "training": {"sequence_length": 128}}
    facts = RunFacts(RunDirectory(Path("run")), "", recipe, {}, {}, {})
    assert model_words(facts) == "1 layer, width 32, 1 head, context 128"


def test_headline_and_tables_say_what_the_run_did(whole: Page) -> None:
    text = words(whole.text)
    for expected in (
        "bellows-30m", "finished", "27.8M", "6.55M", "400 of 400 steps", "2 attempts", "AMD EPYC 9J14",
        "8 layers, width 512, 8 heads (4 kv), context 512", "peak memory per rank 1.80 GiB 1.98 GiB 1.10",
        "time of all steps 6 min 48 s 7 min", "little memory is left", "27,814,400 parameters",
        "all sources: 13,200 documents", "too short", "BSD-3-Clause", "public domain", "chinese prose zh",
        "sample numbers 0 to 12,799, each exactly once; 15 steps were done again", "resumed", "step-00000400",
        "torch 2.13.0", "furnace-01", "从前有一座山", "山上有一座庙", "gradient_clip: 1.0", "Vocabulary of 8,192",
    ):  # fmt: skip
        assert expected in text, expected
    assert "unaccounted for" not in text
    assert "The record has gaps" not in text


def test_every_chart_on_the_page_has_data_and_every_data_a_chart(whole: Page) -> None:
    placed = {attributes["data-chart"] for _, attributes in whole.elements if "data-chart" in attributes}
    assert placed == set(whole.payload["charts"])
    assert {name.removeprefix("run-0-") for name in placed if name} == {
        "loss", "loss-by-source", "gradient-norm", "gradient-norm-by-module", "learning-rate",
        "tokens-per-second", "time-per-step", "memory", "held-out-loss", "bits-per-byte",
    }  # fmt: skip
    for chart in whole.payload["charts"].values():
        for line in chart.get("lines", []):
            axis = whole.payload["axes"][line["axis"]]
            assert set(axis) == {"step", "tokens", "hours"}
            assert len(floats(line["raw"])) == len(floats(axis["step"], "<f8"))


def test_the_loss_curve_is_the_recorded_loss(whole: Page, tmp_path: Path) -> None:
    run = SyntheticRun()
    expected = [run.step_row(step, 1, 0.0)["loss"] for step in range(1, 401)]
    drawn = floats(whole.payload["charts"]["run-0-loss"]["lines"][0]["raw"])
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


def test_hours_are_those_spent_stepping_in_the_final_history(whole: Page) -> None:
    hours = floats(whole.payload["axes"]["run-0-steps"]["hours"], "<f8")
    run = SyntheticRun()
    seconds = sum(run.step_row(step, 1, 0.0)["seconds"]["total"] for step in range(1, 401))
    assert hours[-1] * 3600 == pytest.approx(seconds)
    assert (np.diff(hours) > 0).all()


def test_held_out_scores_and_their_sum_are_shown(tmp_path: Path) -> None:
    page = page_of(SyntheticRun(steps=50, resume_from=None).write(tmp_path))
    rows = {}
    for name, _, tokens, size in zip(
        ("english", "chinese", "code", "mathematics"),
        range(4),
        (12e3, 11e3, 10e3, 9e3),
        (48e3, 45e3, 42e3, 39e3),
        strict=True,
    ):
        lines = page.payload["charts"]["run-0-held-out-loss"]["lines"]
        [line] = [line for line in lines if line["label"] == name]
        rows[name] = (floats(line["raw"])[-1], tokens, size)
    nats = sum(loss * tokens for loss, tokens, _ in rows.values())
    loss = nats / sum(tokens for _, tokens, _ in rows.values())
    bits = nats / math.log(2) / sum(size for *_, size in rows.values())
    assert f"all sources {loss:.3f}" in words(page.text)
    assert f"{bits:.3f}" in words(page.text)


# --- runs that lack something ----------------------------------------------------------------------


def test_a_run_of_one_step_has_a_page(tmp_path: Path) -> None:
    run = SyntheticRun(steps=1, planned_steps=1, evaluate_every=1, resume_from=None, checkpoints=(1,))
    page = page_of(run.write(tmp_path))
    assert "1 of 1 step" in page.text
    assert len(floats(page.payload["charts"]["run-0-loss"]["lines"][0]["raw"])) == 1


def test_a_run_that_has_recorded_nothing_yet_has_a_page(tmp_path: Path) -> None:
    run = SyntheticRun(
        steps=0, resume_from=None, plan=False, corpus=False, environment=False, ending=None, checkpoints=()
    ).write(tmp_path)
    shutil.rmtree(run.record)
    run.record.mkdir()
    page = page_of(run)
    for expected in (
        "not started", "No step has been recorded yet", "has not been evaluated", "This run has no plan",
        "No text was generated", "no description of its corpus", "no description of its machine",
        "rank 0 has left no record", "hidden_size: 512",
    ):  # fmt: skip
        assert expected in words(page.text), expected
    assert page.payload["charts"] == {}


def test_a_run_without_evaluation_or_plan_has_a_page(tmp_path: Path) -> None:
    run = SyntheticRun(steps=30, evaluate_every=0, plan=False, resume_from=None).write(tmp_path)
    page = page_of(run)
    assert "has not been evaluated" in page.text
    assert "This run has no plan" in page.text
    assert "run-0-loss" in page.payload["charts"]


def test_a_loss_that_was_not_finite_is_marked_and_named(tmp_path: Path) -> None:
    run = SyntheticRun(steps=60, not_finite=(31, 60), ending="non_finite", resume_from=None).write(tmp_path)
    page = page_of(run)
    assert page.payload["marks"]["run-0-steps"]["non_finite"] == [31.0, 60.0]
    drawn = floats(page.payload["charts"]["run-0-loss"]["lines"][0]["raw"])
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [30, 59]
    assert "stopped: not finite at step 60" in words(page.text)
    assert "training loss NaN" in words(page.text)


def test_a_run_that_never_had_a_finite_loss_has_a_page(tmp_path: Path) -> None:
    steps = tuple(range(1, 6))
    page = page_of(SyntheticRun(steps=5, not_finite=steps, resume_from=None, ending=None).write(tmp_path))
    assert page.payload["marks"]["run-0-steps"]["non_finite"] == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("held", "expected"), [(True, "still running at step 20"), (False, "interrupted at step 20")]
)
def test_a_run_that_goes_on_says_so(tmp_path: Path, held: bool, expected: str) -> None:
    run = SyntheticRun(steps=20, ending=None, resume_from=None).write(tmp_path)
    with open(run.lock_file, "w") as lock:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert expected in words(page_of(run).text)


def test_what_the_supervisor_recorded_is_told_in_order_and_its_findings_with_their_remedies(tmp_path: Path) -> None:
    """Rank 1 is killed at step 40; then the whole command at 60, and two ranks become four at step 51."""
    run = SyntheticRun(steps=0, checkpoints=(400,), evaluate_every=0).write(tmp_path)
    made = SyntheticRun()
    writer = RecordWriter(run.record, 0, 3600.0)
    for attempt, (first, last, ranks) in enumerate([(1, 40, 2), (41, 60, 2), (51, 70, 4)], 1):
        began = 1.8e9 + 1000 * attempt
        happened: dict[str, Any] = {"attempt": attempt, "time": began, "detail": {}}
        writer.append("event", {**happened, "step": first - 1, "event": "resumed" if first > 1 else "started"})
        for step in range(first, last + 1):
            writer.append("step", {**made.step_row(step, attempt, began + step), "ranks": ranks})
            if step == 50 and attempt == 2:
                saved = {**happened, "time": began + 50, "detail": {"bytes": 2048, "seconds": 0.5}}
                writer.append("event", {**saved, "step": 50, "event": "saved"})
        if attempt == 3:
            writer.append("event", {**happened, "time": began + 99, "step": 70, "event": "terminated"})
    assert writer.close()
    supervisor = RecordWriter(run.record, SUPERVISOR, 3600.0)
    detail = {"kind": "killed", "ranks": [1], "message": "rank 1 was killed by SIGKILL.", "retried": True}
    supervisor.append(
        "event", {"attempt": 1, "time": 1.8e9 + 1050, "step": 40, "event": "failure", "detail": detail}
    )
    assert supervisor.close()
    page = page_of(run)
    text = words(page.text)
    told = text[text.index("What happened") :]
    expected = [
        "failure rank 1 was killed by SIGKILL; the ranks are started again",
        "resumed from copies in memory (no checkpoint of this step is recorded); no step lost",
        "saved 2.00 KiB of rank 0 alone, in 500 ms",
        "command ended the whole command ended and could record nothing of it",
        "resumed from this step's checkpoint, or its copies in memory; 10 steps to do again",
        "the layout changed: 2 ranks before, 4 ranks since",
        "terminated asked to stop",
        "what all ranks wrote",
    ]
    places = [told.index(line) for line in expected]
    assert places == sorted(places)
    assert "largest of any rank; 2 ranks up to step 50, then 4" in text
    assert "note failure, steps 40 to 41" in text
    assert "nothing: the run went on by itself; only if it repeats" in text
    assert {"failure", "command ended", "ranks changed"} <= {
        event["label"] for event in page.payload["marks"]["run-0-steps"]["events"]
    }


def test_a_torn_record_and_broken_files_are_named(tmp_path: Path) -> None:
    run = SyntheticRun(steps=20, resume_from=None).write(tmp_path)
    with open(run.record / "rank-00000/live.frames", "ab") as stream:
        stream.write(b"\x99\x00\x00\x00torn")
    run.plan.write_text('{"peak_memory_gib": {"to')
    run.corpus.write_text("[]")
    text = words(page_of(run).text)
    assert "8 bytes of an unfinished last row left out" in text
    assert "plan.json cannot be read" in text
    assert "corpus.json is not a JSON object" in text


def test_steps_that_could_not_be_recorded_are_told(tmp_path: Path) -> None:
    run = SyntheticRun().write(tmp_path)
    (run.checkpoints / "step-00000450").mkdir()
    assert "The record ends at step 400, but a checkpoint of step 450 was saved" in words(page_of(run).text)


def test_odd_shapes_in_files_do_not_end_the_report(tmp_path: Path) -> None:
    run = SyntheticRun(steps=5, resume_from=None).write(tmp_path)
    run.plan.write_text(
        json.dumps(
            {
                "peak_memory_gib": 3,
                "reasons": "x",
                "total_hours": "y",
                "step_seconds": {"total": None},
                "mfu": "high",
            }
        )
    )
    run.corpus.write_text(json.dumps({"funnel": [1, {"stage": "read"}], "sources": [None, {}], "tokenizer": []}))
    run.environment.write_text(json.dumps({"device": "cpu", "list": [1, {"a": None}]}))
    run.recipe.write_text("model: [1, 2]\ntraining: 7\n")
    assert "training: 7" in page_of(run).text
    run.recipe.write_text("{ not: [yaml")
    assert "recipe.yaml cannot be read as YAML" in page_of(run).text


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run"):
        write_report([RunDirectory(tmp_path)])
    with pytest.raises(BadInput, match="at least one"):
        write_report([])
    run = SyntheticRun(steps=1, resume_from=None).write(tmp_path / "run")
    with pytest.raises(BadInput, match="is a folder"):
        write_report([run], tmp_path)


# --- hostile text ----------------------------------------------------------------------------------


def hostile_run(folder: Path) -> RunDirectory:
    made_up = SyntheticRun(
        name=HOSTILE,
        steps=20,
        resume_from=None,
        evaluate_every=5,
        planned_steps=20,
        prompts=(HOSTILE,),
        source_names=(HOSTILE, "b" + HOSTILE),
        continuation=HOSTILE,
        ending="finished" + HOSTILE,
        changed_recipe={"training.optimizer.name": HOSTILE},
    )
    run = made_up.write(folder)
    environment = json.loads(run.environment.read_text()) | {"host": HOSTILE, HOSTILE: HOSTILE}
    run.environment.write_text(json.dumps(environment))
    return run


def test_hostile_text_is_shown_and_never_run(tmp_path: Path) -> None:
    harmless = page_of(
        SyntheticRun(steps=20, evaluate_every=5, planned_steps=20, resume_from=None).write(tmp_path / "a")
    )
    page = page_of(hostile_run(tmp_path / "b"))
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in harmless.elements}
    assert len(page.scripts) == len(harmless.scripts)
    assert page.text.count(HOSTILE) >= 10
    assert page.payload["charts"]["run-0-loss-by-source"]["lines"][0]["label"] == HOSTILE


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded_json({"a": HOSTILE, HOSTILE: "<!--"})
    assert not set("<>&") & set(text)
    assert "\u2028" not in text
    assert json.loads(text) == {"a": HOSTILE, HOSTILE: "<!--"}


def test_several_runs_are_compared(tmp_path: Path) -> None:
    first = SyntheticRun(steps=60, resume_from=None).write(tmp_path / "a")
    second = SyntheticRun(
        name="other", steps=40, final_loss=-0.2, resume_from=None, changed_recipe={"training.gradient_clip": 0.5}
    ).write(tmp_path / "b")
    third = SyntheticRun(name="empty", steps=0, resume_from=None, plan=False, ending=None).write(tmp_path / "c")
    path = write_report([first, second, third])
    assert path == tmp_path / "a/comparison.html"
    page = Page(path.read_text())
    labels = [line["label"] for line in page.payload["charts"]["all-loss"]["lines"]]
    assert labels == ["bellows-30m", "other"]
    assert [line["label"] for line in page.payload["charts"]["all-held-out"]["lines"]] == labels
    text = words(page.text)
    assert "training.gradient_clip 1.0 0.5 1.0" in text
    assert "steps 60 of 400 40 of 400 0 of 400" in text
    placed = {attributes["data-chart"] for _, attributes in page.elements if "data-chart" in attributes}
    assert placed == set(page.payload["charts"])


def test_a_source_has_one_colour_in_every_chart_and_run(tmp_path: Path) -> None:
    first = SyntheticRun(steps=20, resume_from=None, evaluate_every=10).write(tmp_path / "first")
    second = SyntheticRun(steps=20, resume_from=None, evaluate_every=10).write(tmp_path / "second")
    text = second.recipe.read_text()
    recipe = yaml.safe_load(text)
    recipe["data"]["sources"] = list(reversed(recipe["data"]["sources"]))
    second.recipe.write_text(yaml.safe_dump(recipe, allow_unicode=True))
    seen: dict[str, set[int]] = {}
    for name, chart in page_of(first, second).payload["charts"].items():
        if name.endswith(("loss-by-source", "held-out-loss", "bits-per-byte")):
            for curve in chart["lines"]:
                seen.setdefault(curve["label"], set()).add(curve["colour"])
    assert {"english", "code", "all sources"} <= set(seen)
    assert all(len(colours) == 1 for colours in seen.values()), seen
    assert len({min(colours) for colours in seen.values()}) == len(seen)


def test_a_source_with_nothing_held_out_keeps_the_others_colours_and_is_named(tmp_path: Path) -> None:
    run = SyntheticRun(steps=20, resume_from=None, evaluate_every=10).write(tmp_path)
    recipe = yaml.safe_load(run.recipe.read_text())
    recipe["data"]["sources"].insert(0, {"name": "unheld", "paths": ["x"]})
    run.recipe.write_text(yaml.safe_dump(recipe, allow_unicode=True))
    page = page_of(run)
    assert "Nothing was held out of unheld." in words(page.text)
    by_source, held_out = (
        {curve["label"]: curve["colour"] for curve in page.payload["charts"][f"run-0-{name}"]["lines"]}
        for name in ("loss-by-source", "held-out-loss")
    )
    assert by_source.items() <= held_out.items()
    assert 0 not in held_out.values()


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [SyntheticRun(steps=2, resume_from=None).write(tmp_path / name) for name in ("a", "b")]
    page = Page(write_report(runs, tmp_path / "both.html").read_text())
    labels = [line["label"] for line in page.payload["charts"]["all-loss"]["lines"]]
    assert len(set(labels)) == 2
    assert all(label.startswith("bellows-30m (") for label in labels)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_report_of_a_hundred_thousand_steps_is_small_and_quick(tmp_path: Path) -> None:
    spike = 77_777
    run = SyntheticRun(
        steps=100_000, planned_steps=100_000, evaluate_every=1000, resume_from=None, spikes=(spike,)
    ).write(tmp_path)
    begun = time.perf_counter()
    path = write_report([run])
    print(f"{time.perf_counter() - begun:.2f} s, {path.stat().st_size / 1e6:.2f} MB")
    assert path.stat().st_size < 3_000_000
    page = Page(path.read_text())
    loss = floats(page.payload["charts"]["run-0-loss"]["lines"][0]["raw"])
    steps = floats(page.payload["axes"]["run-0-steps"]["step"], "<f8")
    highest = int(np.nanargmax(np.where(steps > 10_000, loss, 0)))
    assert abs(steps[highest] - spike) <= 100_000 / 1500
    assert loss[highest] == pytest.approx(
        SyntheticRun(planned_steps=100_000, spikes=(spike,)).step_row(spike, 1, 0)["loss"], rel=1e-6
    )
