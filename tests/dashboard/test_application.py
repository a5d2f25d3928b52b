"""What the server answers: curves, heat maps, single steps, comparisons; without a browser."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from starlette.testclient import TestClient

from stoker.dashboard import runs_at
from stoker.dashboard.columns import RankColumns
from stoker.errors import BadInput
from stoker.recipe import Model
from stoker.recipe.size import flops_per_token
from stoker.record import MONITOR, RecordWriter
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import (
    BEGAN,
    NEVER,
    SLOW,
    SPIKE,
    append_steps,
    dashboard,
    identifiers,
    unpacked,
    write_run,
)


def lines(client: TestClient, run: str, *names: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = client.get(f"/api/run/{run}/lines", params={"line": list(names), **options})
    assert answer.status_code == 200, answer.text
    return unpacked(answer.content)


def test_a_folder_of_runs_lists_each_with_its_figures(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "runs" / "one", name="one")
    write_run(tmp_path / "b" / "two", name="two", steps=40)
    with dashboard(tmp_path) as client:
        rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
        assert set(rows) == {"one", "two"}
        assert (rows["two"]["step"], rows["two"]["planned"], rows["two"]["state"]) == (40, 200, "interrupted")
        assert rows["two"]["tokens_per_second"] == pytest.approx(1024 / 5)
        write_run(tmp_path / "later", name="later")
        assert "later" in identifiers(client)


def test_the_list_reads_only_runs_that_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (writer,) = write_run(tmp_path / "one", name="one", ranks=(0,), close=False)
    write_run(tmp_path / "two", name="two")
    writer.flush()
    read: list[str] = []
    recent = RankColumns.recent

    def counted(columns: RankColumns, kind: str, count: int) -> pl.DataFrame:
        read.append(columns.folder.parts[-3])
        return recent(columns, kind, count)

    with dashboard(tmp_path) as client:
        first = client.get("/api/runs").json()
        monkeypatch.setattr(RankColumns, "recent", counted)
        assert client.get("/api/runs").json() == first
        assert read == []
        append_steps(writer, 0, 101, 103)
        writer.flush()
        rows = {row["name"]: row for row in client.get("/api/runs").json()["runs"]}
        assert (rows["one"]["step"], set(read)) == (103, {"one"})
        (tmp_path / "two" / "recipe.yaml").write_text("name: renamed\ntraining: {steps: 300}\n")
        assert {(row["name"], row["planned"]) for row in client.get("/api/runs").json()["runs"]} == {
            ("one", 200),
            ("renamed", 300),
        }
    writer.close()


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no run and holds none"):
        runs_at([tmp_path])
    with pytest.raises(BadInput, match="is not a run"):
        runs_at([tmp_path / "nowhere"])


def test_a_short_curve_is_sent_whole(tmp_path: Path) -> None:
    write_run(tmp_path)
    with dashboard(tmp_path) as client:
        header, columns = lines(client, identifiers(client)["anvil"], "step:0:loss", "step:0:learning_rate")
    (loss, rate) = header["lines"]
    assert loss["x"] == rate["x"]
    np.testing.assert_array_equal(columns[loss["x"]], np.arange(1, 101))
    np.testing.assert_allclose(columns[rate["raw"]], 1e-3 * (1 - np.arange(1, 101) / 400), rtol=1e-6)
    assert header["span"] == [1, 100]


def test_a_spike_of_one_step_survives_thinning_out(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=())
    writer = RecordWriter(RunDirectory(tmp_path).record, 0, NEVER)
    for step in range(1, 6001):
        writer.append("step", {"step": step, "loss": 100.0 if step == 3456 else 2 + step % 7 / 10})
        if step % 2000 == 0:
            writer.flush()
    assert writer.close()
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        header, columns = lines(client, run, "step:0:loss", pixels=200)
        (line,) = header["lines"]
        raw, x = columns[line["raw"]], columns[line["x"]]
        assert len(raw) <= 800
        assert raw.max() == 100
        assert abs(x[raw.argmax()] - 3456) <= 6000 / 100
        assert raw.min() == 2
        header, columns = lines(client, run, "step:0:loss", pixels=200, begin=3400, end=3500)
        (line,) = header["lines"]
        assert columns[line["x"]][columns[line["raw"]].argmax()] == 3456
        near = client.get(f"/api/run/{run}/near", params={"at": 3420, "reach": 60}).json()
        assert near == {"step": 3456}


@pytest.mark.parametrize(("unit", "last"), [("tokens", 102_400), ("hours", 99 / 3600)])
def test_curves_of_other_rows_stand_where_their_steps_do(tmp_path: Path, unit: str, last: float) -> None:
    write_run(tmp_path)
    names = (
        "step:0:loss",
        "evaluation:0:loss:中文",
        "module:0:update_to_weight:blocks.10",
        "step:1:memory_peak_bytes",
    )
    with dashboard(tmp_path) as client:
        header, columns = lines(client, identifiers(client)["anvil"], *names, unit=unit)
    by_name = {line["name"]: columns[line["x"]] for line in header["lines"]}
    assert set(by_name) == set(names)
    for name in names:
        assert by_name[name][-1] == pytest.approx(last), name
    assert len(by_name[names[1]]) == 2


def test_the_axis_of_flops_is_the_models_arithmetic_over_the_tokens_seen(tmp_path: Path) -> None:
    write_run(tmp_path)
    run = RunDirectory(tmp_path)
    model = {"hidden_size": 16, "layers": 2, "heads": 2, "ffn_hidden_size": 32}
    recipe = yaml.safe_load(run.recipe.read_text(encoding="utf-8"))
    run.recipe.write_text(yaml.safe_dump(recipe | {"model": model}), encoding="utf-8")
    run.corpus.write_text(json.dumps({"tokenizer": {"vocabulary_size": 320}}))
    with dashboard(tmp_path) as client:
        header, columns = lines(client, identifiers(client)["anvil"], "step:0:loss", unit="flops")
    [line] = header["lines"]
    each = flops_per_token(Model(**model), 320, 64).causal
    assert columns[line["x"]][-1] == pytest.approx(102_400 * each)


def test_what_is_not_finite_is_marked_where_it_was(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=())
    writer = RecordWriter(RunDirectory(tmp_path).record, 0, NEVER)
    for step, loss in enumerate((1.0, math.nan, 2.0, math.inf), start=1):
        writer.append("step", {"step": step, "loss": loss})
    assert writer.close()
    with dashboard(tmp_path) as client:
        header, _ = lines(client, identifiers(client)["anvil"], "step:0:loss")
    assert header["lines"][0]["not_finite"] == [[2, 2], [4, 4]]


def test_a_tag_holds_until_something_is_written(tmp_path: Path) -> None:
    (writer,) = write_run(tmp_path, ranks=(0,), close=False)
    writer.flush()
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        whole, closed = (
            f"/api/run/{run}/lines?line=step:0:loss",
            f"/api/run/{run}/lines?line=step:0:loss&begin=5&end=50",
        )
        tags = [client.get(address).headers["etag"] for address in (whole, closed)]
        ask = lambda address, tag: client.get(address, headers={"if-none-match": tag}).status_code  # noqa: E731
        assert [ask(whole, tags[0]), ask(closed, tags[1])] == [304, 304]
        append_steps(writer, 0, 101, 102)
        writer.flush()
        client.get("/api/runs")
        assert [ask(whole, tags[0]), ask(closed, tags[1])] == [200, 304]
    writer.close()


def test_the_map_of_ranks_shows_who_was_slow_when(tmp_path: Path) -> None:
    write_run(tmp_path)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        answer = client.get(f"/api/run/{run}/heat", params={"measure": "step:work_seconds", "pixels": 500})
        header, columns = unpacked(answer.content)
        cells = columns["cells"].reshape(len(header["rows"]), -1)
        assert header["rows"] == ["0", "1"]
        assert columns["edges"][np.nanargmax(cells[1])] == SLOW
        assert np.ptp(cells[0]) == 0
        few = client.get(f"/api/run/{run}/heat", params={"measure": "step:work_seconds", "pixels": 10})
        header, columns = unpacked(few.content)
        assert columns["cells"].reshape(2, -1)[1].max() == pytest.approx(6.1)


def test_the_map_of_modules_has_blocks_in_their_order(tmp_path: Path) -> None:
    write_run(tmp_path)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        answer = client.get(f"/api/run/{run}/heat", params={"of": "modules", "measure": "module:update_to_weight"})
    header, columns = unpacked(answer.content)
    assert header["rows"] == ["embedding", "blocks.0", "blocks.2.attention", "blocks.10"]
    assert header["columns_of_steps"] == 10
    assert not np.isnan(columns["cells"]).any()


def test_a_step_is_told_from_all_sides(tmp_path: Path) -> None:
    write_run(tmp_path)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        told = client.get(f"/api/run/{run}/moment", params={"step": SPIKE}).json()
        assert told["figures"]["loss"] == pytest.approx(6.36, abs=0.01)
        assert told["usual"]["loss"] < 3
        assert told["samples"] == [8 * (SPIKE - 1), 8 * SPIKE - 1]
        assert [(one["rank"], one["loss"]) for one in told["documents"]] == [(0, 9.0), (1, 8.0)]
        documents = client.get(f"/api/run/{run}/documents", params={"step": SPIKE}).json()
        assert "does not say where its corpus is" in documents["missing"]
        absent = client.get(f"/api/run/{run}/moment", params={"step": 5000})
        assert (absent.status_code, absent.json()["error"]) == (400, "step 5000 has no row in the record")


def test_a_timeline_sets_clocks_right_and_names_ranks_that_left_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, world=3)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        told = client.get(f"/api/run/{run}/timeline", params={"step": SLOW}).json()
        phases = client.get(f"/api/run/{run}/timeline", params={"step": SLOW + 1}).json()
        facts = client.get(f"/api/run/{run}").json()
    assert [rank["began"] for rank in told["ranks"]] == [0, 0]  # five seconds apart by their own clocks
    assert [rank["recorded"] for rank in told["ranks"]] == [True, True]
    assert told["missing"] == [2]
    assert [span[0] for span in phases["ranks"][0]["spans"]] == ["data", "forward", "backward", "communication"]
    assert not phases["ranks"][0]["recorded"]
    assert facts["missing"][0] == {"kind": "ranks", "ranks": [2], "count": 1}


def test_a_rank_without_a_record_is_an_empty_row_of_the_map_in_its_place(tmp_path: Path) -> None:
    write_run(tmp_path, ranks=(0, 1, 3), world=4)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        asked = {"of": "ranks", "measure": "step:seconds.total"}
        header, columns = unpacked(client.get(f"/api/run/{run}/heat", params=asked).content)
        assert (header["rows"], header["missing"]) == (["0", "1", "2", "3"], ["2"])
        cells = columns["cells"].reshape(4, header["columns_of_steps"])
        assert np.isnan(cells[2]).all()
        assert np.isfinite(cells[[0, 1, 3]]).all()
        nothing, _ = unpacked(client.get(f"/api/run/{run}/heat", params={**asked, "measure": "step:no"}).content)
        assert nothing["rows"] == []


def test_two_runs_are_compared_down_to_the_first_step_that_differs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", name="a")
    write_run(tmp_path / "b", name="b", ranks=())
    writer = RecordWriter(RunDirectory(tmp_path / "b").record, 0, NEVER)
    append_steps(writer, 0, 1, 33)
    writer.append("step", {"step": 34, "loss": 1.5, "batch_digest": f"{34:08x}", "gradient_norm": 0.5})
    assert writer.close()
    with dashboard(tmp_path) as client:
        runs = identifiers(client)
        told = client.get("/api/compare", params={"run": [runs["a"], runs["b"]]}).json()
        alone = client.get("/api/compare", params={"run": runs["a"]})
    measures = {one["measure"]: one for one in told["measures"]}
    assert told["steps"] == 34
    assert measures["batch_digest"]["first_step"] is None
    assert measures["loss"]["first_step"] == 34
    assert measures["loss"]["values"][1] == 1.5
    assert alone.status_code == 400


def test_a_record_of_an_older_version_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    write_run(tmp_path, old=True, ranks=(0,), world=1)
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        facts = client.get(f"/api/run/{run}").json()
        assert (facts["documents"], facts["timelines"], facts["machine"], facts["missing"]) == (
            False,
            False,
            [],
            [],
        )
        header, _ = lines(
            client, run, "step:0:loss", "step:0:update_norm", "machine:0:utilisation", "derived:0:waited"
        )
        assert [line["name"] for line in header["lines"]] == ["step:0:loss"]
        assert client.get(f"/api/run/{run}/moment", params={"step": SPIKE}).json()["documents"] == []


@pytest.mark.parametrize("what", ["nothing", "no rows", "garbage"])
def test_a_run_without_a_readable_record_has_a_page(tmp_path: Path, what: str) -> None:
    write_run(tmp_path, ranks=())
    if what != "nothing":
        folder = tmp_path / "record" / "rank-00000"
        folder.mkdir(parents=True)
        if what == "garbage":
            (folder / "live.frames").write_bytes(b"\xff" * 300)
            (tmp_path / "recipe.yaml").write_bytes(b"\xff\xfe: [")
    with dashboard(tmp_path) as client:
        ((_, run),) = identifiers(client).items()
        assert client.get(f"/api/run/{run}").json()["step"] is None
        for path in (
            "lines?line=step:0:loss",
            "heat?measure=step:seconds.total",
            "events",
            "funnel",
            "timeline?step=1",
        ):
            assert client.get(f"/api/run/{run}/{path}").status_code == 200, path


@pytest.mark.parametrize(
    "path",
    [
        "lines?line=loss", "lines?line=what:0:loss", "lines?line=step:zero:loss", "lines?line=derived:0:x",
        "lines?pixels=0", "lines?pixels=many",
        "lines?pixels=" + "9" * 5000, "lines?unit=miles", "lines?begin=nan", "moment?step=x", "moment",
        "near?at=1", "lines?" + "&".join(["line=step:0:loss"] * 65),
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_answered_with_400(tmp_path: Path, path: str) -> None:
    write_run(tmp_path, steps=3)
    with dashboard(tmp_path) as client:
        answer = client.get(f"/api/run/{identifiers(client)['anvil']}/{path}")
        assert (answer.status_code, bool(answer.json()["error"])) == (400, True)


def test_nothing_in_the_runs_folder_changes(tmp_path: Path) -> None:
    write_run(tmp_path)

    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")}

    before = state()
    with dashboard(tmp_path) as client:
        run = identifiers(client)["anvil"]
        for path in (
            "",
            "/lines?line=step:0:loss",
            "/events",
            "/findings",
            f"/moment?step={SPIKE}",
            "/timeline?step=3",
        ):
            assert client.get(f"/api/run/{run}{path}").status_code == 200
    assert state() == before


def test_alerts_of_the_monitor_are_among_what_happened(tmp_path: Path) -> None:
    write_run(tmp_path)
    writer = RecordWriter(RunDirectory(tmp_path).record, MONITOR, NEVER)
    detail = {"rule": "loss_moves", "state": "firing", "value": 9.0, "limit": 3.0, "summary": "the loss moves"}
    writer.append("event", {"step": SPIKE, "event": "alert", "time": BEGAN + SPIKE, "detail": detail})
    writer.append("event", {"step": SPIKE, "event": "finding", "time": BEGAN + SPIKE, "detail": {}})
    assert writer.close()
    with dashboard(tmp_path) as client:
        events = client.get(f"/api/run/{identifiers(client)['anvil']}/events").json()["events"]
    assert [event["event"] for event in events if event["step"] == SPIKE] == ["alert"]
