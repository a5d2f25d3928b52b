"""Whatever a record holds, every question about it is answered, and none costs more for what a row claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from stoker.dashboard import watched
from stoker.dashboard.columns import RankColumns
from stoker.record import Record, RecordWriter
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import NEVER, dashboard, identifiers

STEPS = 40


def write_odd(folder: Path, recipe: str, row: dict[str, Any], *others: tuple[str, dict[str, Any]]) -> Path:
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    run.recipe.write_text(recipe)
    run.plan.write_text("{}")
    writer = RecordWriter(run.record, 0, NEVER)
    for step in range(1, STEPS + 1):
        values = {name: value(step) if callable(value) else value for name, value in row.items()}
        writer.append("step", {"step": step, "attempt": 1, "time": 1.7e9 + step, **values})
    for kind, other in others:
        writer.append(kind, other)
    assert writer.close()
    return folder


def not_finite(folder: Path) -> Path:
    odd = [math.nan, math.inf, -math.inf, 2.0]
    return write_odd(
        folder,
        "name: odd\n",
        {
            "time": lambda step: math.nan if step % 3 else 1.7e9 + step, "loss": lambda step: odd[step % 4],
            "gradient_norm": math.inf, "learning_rate": math.nan, "tokens": 100, "first_sample": -5,
            "last_sample": 2**62, "seconds": {"total": math.nan, "forward": -1.0},
            "loss_by_source": {"a/b:c": math.nan, "": 1.0, '😀"<': 2.0},
        },
        ("event", {"step": "x", "event": ["list"], "attempt": None, "time": "never", "detail": "text"}),
        ("event", {"step": 5, "event": "clock", "time": 1.0, "detail": {"ahead_seconds": math.nan}}),
        ("timeline", {"step": 5, "time": 1.0, "spans": [[1], "x", ["forward", math.nan, "y"], None]}),
        ("document", {"step": 5, "sample": 1, "source": "x", "first_token": "bad", "loss": math.nan}),
        ("module", {"step": 5, "module": "x" * 5000, "update_to_weight": 0.0}),
        ("routing", {"step": 5, "module": None, "largest_load": math.inf}),
        ("evaluation", {"step": None, "source": None, "loss": math.nan}),
        ("machine", {"step": 5, "time": 1.0, "utilisation": math.nan}),
    )  # fmt: skip


def of_other_types(folder: Path) -> Path:
    run = RunDirectory(write_odd(
        folder,
        "[1, 2",
        {
            "loss": lambda step: str(step) if step % 2 else step, "time": None, "seconds": "x", "waited": 3,
            "loss_by_source": [1, 2], "ranks": "two", "tokens": lambda step: 2.5 if step % 5 else 100,
            "first_sample": "a", "last_sample": None,
        },
    ))  # fmt: skip
    run.plan.write_text("[]")
    run.corpus.write_text('{"funnel": [1, {"source": 3, "documents": "x"}], "tokenizer": 4}')
    return folder


def questions(client: TestClient, run: str) -> list[tuple[str, dict[str, Any]]]:
    """Every address, and every curve that the run's page offers."""
    page = client.get(f"/api/run/{run}").json()
    found: list[tuple[str, dict[str, Any]]] = [(path, {}) for path in ("", "/events", "/findings", "/funnel")]
    found += [
        (f"/{one}", {"step": step}) for one in ("moment", "documents", "timeline") for step in (0, 5, 40, 10**9)
    ]
    columns = [*(f"step:0:{column}" for column in page["columns"].get("step", ())), "machine:0:utilisation"]
    columns += [f"derived:0:{name}" for name in ("step_seconds", "tokens_per_second", "waited")]
    for kind, keys in page["keys"].items():
        columns += [f"{kind}:0:{column}:{key}" for key in keys for column in page["columns"].get(kind, ())]
    found += [("/lines", {"line": [one], "unit": unit}) for one in columns for unit in ("step", "hours", "tokens")]
    measures = ("step:seconds.total", "derived:waited", "module:update_to_weight", "routing:largest_load", "step:")
    return found + [("/heat", {"of": of, "measure": one}) for of in ("ranks", "modules") for one in measures]


@pytest.mark.parametrize("write", [not_finite, of_other_types])
def test_every_question_about_an_odd_record_is_answered(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "奇怪 的 训练")
    with dashboard(tmp_path) as client:
        (run,) = identifiers(client).values()
        for path, given in questions(client, run):
            answer = client.get(f"/api/run/{run}{path}", params=given)
            assert answer.status_code in (200, 400), (path, given, answer.text)
        assert client.get("/api/compare", params={"run": [run, run]}).status_code == 200


def test_a_row_that_claims_more_ranks_than_can_be_costs_nothing(tmp_path: Path) -> None:
    """A list of them all would take the machine's memory."""
    write_odd(tmp_path / "run", "name: many\n", {"loss": 1.0, "ranks": 2**40, "seconds": {"total": 1.0}})
    with dashboard(tmp_path) as client:
        (run,) = identifiers(client).values()
        (gap,) = client.get(f"/api/run/{run}").json()["missing"]
        assert (gap["kind"], gap["count"], gap["ranks"][:2]) == ("ranks", 2**40 - 1, [1, 2])
        assert len(client.get(f"/api/run/{run}/timeline", params={"step": 3}).json()["missing"]) == 64
    gaps = Record(tmp_path / "run" / "record").gaps()
    assert len(gaps) == 1025
    assert gaps[0].detail == "rank 1 has left no record"
    assert gaps[-1].detail.endswith("more ranks have left no record")


def test_ranks_that_there_are_not_cost_nothing_however_many_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are kept of each rank that is read."""
    read: set[int] = set()

    def columns(record: Path, rank: int, *most: int) -> RankColumns:
        read.add(rank)
        return RankColumns(record, rank, *most)

    monkeypatch.setattr(watched, "RankColumns", columns)
    write_odd(tmp_path / "run", "name: few\n", {"loss": 1.0, "seconds": {"total": 1.0}})
    with dashboard(tmp_path) as client:
        (run,) = identifiers(client).values()
        names = ("derived:{}:waited", "step:{}:loss", "machine:{}:utilisation", "module:{}:update_to_weight:head")
        lines = [name.format(rank) for rank in (0, 1, 2, 9_999_999) for name in names]
        assert client.get(f"/api/run/{run}/lines", params={"line": lines}).status_code == 200
    assert read == {0}
