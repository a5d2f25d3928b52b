"""`stoker plan evaluate`: how good predictions are, and what it says of a table that cannot be judged by."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoker.cli import application
from stoker.errors import BadInput
from stoker.planning.cluster.evaluation import Evaluation, evaluate
from stoker.planning.cluster.fitting import fit, samples_of, thinned
from stoker.planning.cluster.measurements import read_measurements
from stoker.planning.cluster.parameters import parameter_table
from stoker.planning.cluster.ranking import ranking, spearman
from stoker.progress import Silent
from tests.planning.cluster.cases import MEASUREMENTS

runner = CliRunner()


@pytest.fixture(scope="module")
def judged() -> Evaluation:
    return evaluate(read_measurements(MEASUREMENTS), False, Silent())


def test_step_times_are_within_8_percent_of_what_was_measured(judged: Evaluation) -> None:
    assert judged.as_json()["macro"]["time_mean"] <= 0.08
    for one in judged.sources:
        if one.time is not None and one.time.rows >= 20:
            assert one.time.mean <= 0.15, one.source


def test_memory_is_within_8_percent_of_what_was_measured(judged: Evaluation) -> None:
    assert judged.as_json()["macro"]["memory_mean"] <= 0.08


def test_the_layout_it_would_pick_is_nearly_the_best(judged: Evaluation) -> None:
    assert judged.as_json()["macro"]["regret"] <= 0.03
    assert judged.as_json()["macro"]["spearman"] >= 0.85
    ranked = {one.source: one.spearman for one in judged.sources if one.spearman is not None}
    for source in ("InternEvo train performance", "SimuMax B200 release v1.2", "DLPerf V100 (Megatron-LM)"):
        assert ranked[source] >= 0.85


def test_no_row_is_dropped_silently(judged: Evaluation) -> None:
    assert len(judged.judged) == 2303
    without = [one for one in judged.judged if one.prediction is None]
    assert all(one.reason for one in without)
    assert sum(judged.reasons.values()) == len(without)
    assert judged.reasons["not pretraining"] == 28


def _table(path: Path, change: Callable[[dict[str, str]], None] | None = None, rows: int = 40) -> Path:
    with MEASUREMENTS.open(encoding="utf-8") as file:
        kept = [row for _, row in zip(range(rows), csv.DictReader(file), strict=False)]
    if change is not None:
        change(kept[1])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(kept[0]))
        writer.writeheader()
        writer.writerows(kept)
    return path


def test_the_command_prints_errors_and_writes_predictions(tmp_path: Path) -> None:
    table, out = _table(tmp_path / "table.csv", lambda row: row.update(hidden="")), tmp_path / "predictions.csv"
    result = runner.invoke(application, ["plan", "evaluate", str(table), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "MosaicML llm-foundry" in result.output
    assert "no hidden" in result.output
    lines = list(csv.DictReader(out.read_text().splitlines()))
    assert len(lines) == 40
    assert lines[1]["not_modelled"] == "no hidden"
    assert float(lines[0]["predicted_step_s"]) > 0
    assert float(lines[0]["matmul_s"]) > 0


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    result = runner.invoke(application, ["plan", "evaluate", str(_table(tmp_path / "table.csv")), "--json"])
    found = json.loads(result.output)
    assert found["modelled"] == 40
    assert 0 < found["macro"]["time_mean"] < 0.3


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("layers", "many", "column layers: 'many'; expected a whole number"),
        ("layers", "2.5", "column layers: '2.5'; expected a whole number"),
        ("step_time_s", "-1", "column step_time_s: '-1'; expected seconds"),
        ("step_time_s", "15830", "tokens_per_s_per_gpu 1035 means 15.83 s"),
        ("peak_mem_gib", "64000000000", "expected GiB"),
        ("gpu", "", "no gpu"),
    ],
)
def test_a_wrong_value_costs_its_own_row_alone(tmp_path: Path, column: str, value: str, expected: str) -> None:
    path = _table(tmp_path / "table.csv", lambda row: row.update({column: value}))
    found = evaluate(read_measurements(path), False, Silent())
    (reason,) = found.reasons
    assert expected in reason
    assert [one.reason for one in found.judged].count("") == 39


def test_a_row_with_utilisation_alone_is_predicted_and_counted_apart(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("step_time_s", "step_time_s_derived", "tokens_per_s_per_gpu"), "")
    path = _table(
        tmp_path / "table.csv", lambda row: row.update({**nothing, "tokens_per_s_per_gpu_derived": ""}), rows=5
    )
    found = evaluate(read_measurements(path), False, Silent())
    assert found.unmeasured == 1
    assert "1 rows are predicted, but have neither" in found.as_text()


def test_a_row_of_too_few_fields_costs_itself_alone(tmp_path: Path) -> None:
    path = _table(tmp_path / "table.csv")
    lines = path.read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0]
    path.write_text("\n".join(lines) + "\n")
    found = evaluate(read_measurements(path), False, Silent())
    assert sum(found.reasons.values()) == 1


def test_a_column_in_another_unit_is_refused_with_line_and_column(tmp_path: Path) -> None:
    path = _table(tmp_path / "table.csv", lambda row: row.update({"hidden": "0.5"}), rows=2)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2]]) + "\n")
    with pytest.raises(BadInput, match=r"line 2: column hidden: '0.5'; expected a whole number"):
        read_measurements(path)


def test_every_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,source,gpu\n1,a,A100\n")
    with pytest.raises(BadInput) as caught:
        read_measurements(path)
    for column in ("layers", "hidden", "seq_len", "dp_kind", "micro_batch", "nothing measured"):
        assert column in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\n\n"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"table\.csv"):
        read_measurements(path)


def test_a_missing_table_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_measurements(tmp_path / "none.csv")


def test_an_unknown_accelerator_is_a_reason_and_no_failure(tmp_path: Path) -> None:
    path = _table(tmp_path / "table.csv", lambda row: row.update(gpu="Q9000"))
    found = evaluate(read_measurements(path), False, Silent())
    assert any("Q9000" in reason for reason in found.reasons)


def test_rank_correlation_and_regret() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [5, 5, 9]) == pytest.approx(1)
    assert ranking("s", "m", [1.0, 1.1, 2.0], [3.0, 2.0, 4.0]).regret == pytest.approx(0.1)


def test_a_fit_lowers_the_error_and_keeps_to_the_bounds(judged: Evaluation) -> None:
    samples = thinned(samples_of(judged.judged), 4)
    start = {line.name: line.prior for line in parameter_table()}
    fitted = fit(samples, start, rounds=2)
    for line in parameter_table():
        assert line.low <= fitted[line.name] <= line.high
    assert fitted != start
