"""Metrics, rules and panels agree with each other, the recipe, the docs, and Prometheus's own tools."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from stoker.launch import write_monitoring
from stoker.launch.grafana import dashboard, every_panel
from stoker.launch.monitoring import alert_name, alert_rules
from stoker.monitoring.alerts import Notice
from stoker.monitoring.definitions import ALARMS, METRICS, OF_THE_MONITOR
from stoker.monitoring.picture import Picture
from stoker.monitoring.prometheus import Endpoint, Snapshot
from stoker.recipe import Alerts, Exporters
from stoker.recipe.figures import OTHERS, STEP
from stoker.recipe.loading import load_recipe
from stoker.recipe.monitoring import BuiltIn, Prometheus
from stoker.record.framing import Entry
from stoker.record.rows import KINDS
from tests.monitoring.watched_run import NOW, event, program
from tests.recipe.recipes import SMALL, write
from tests.record.step_rows import step_row

DOCS = Path(__file__).parents[2] / "docs"
OWN = {"own": [{"name": "hot", "figure": "machine.temperature_celsius", "above": 80, "for_seconds": 30}]}
MACHINE = {
    "utilisation": 0.4, "memory_used_bytes": 95, "memory_total_bytes": 100, "temperature_celsius": 90.0,
    "host_memory_used_bytes": 20, "host_memory_total_bytes": 100, "network_sent_bytes": 1, "power_watts": 300.0,
    "network_received_bytes": 1, "network_latency_seconds": 0.001,
}  # fmt: skip


def full_picture(folder: Path) -> Picture:
    """A run of two ranks for which every figure is known."""
    picture = Picture(load_recipe(write(folder, SMALL + "layout: {dp_shard: 2}\n")).recipe)
    picture.take(0, Entry("event", 1, {"time": NOW, **event("saved", 10)}))
    for rank in (0, 1):
        for step in range(1, 21):
            row = step_row(
                step, host_memory_bytes=5, read_ahead=2, waited={"loss": 0.1}, update_norm=0.1, weight_norm=9.0,
                loss_scale=1.0, work_seconds=0.3,
            )  # fmt: skip
            picture.take(rank, Entry("step", step, row))
        for second in (0, 10):
            sent = {"network_sent_bytes": 10**9 * (second + 1)}
            picture.take(rank, Entry("machine", 1, {"time": NOW + second, **MACHINE, **sent}))
    picture.take(0, Entry("module", 1, {"step": 1, "module": "blocks.0.attention", "attention_logit": 9.0}))
    picture.take(0, Entry("routing", 1, {"step": 1, "module": "blocks.0", "largest_load": 1.5}))
    picture.take(0, Entry("evaluation", 1, {"step": 1, "source": "english", "loss": 3.0}))
    return picture


def snapshot(picture: Picture, per_rank: bool) -> Snapshot:
    notice = Notice("gradient_norm", "firing", "critical", 1.0, 1.0, "", NOW, NOW)
    found = Snapshot(per_rank)
    found.take(picture, {"gradient_norm": notice}, [], {"hot": 90.0})
    return found


@pytest.fixture
def exposition(tmp_path: Path) -> str:
    endpoint = Endpoint(Prometheus(port=0, per_rank=True), snapshot(full_picture(tmp_path), True))
    try:
        return str(urlopen(endpoint.url, timeout=10).read().decode())
    finally:
        endpoint.close()


def test_promtool_has_nothing_to_say_about_the_metrics(exposition: str) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=exposition, text=True, capture_output=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_metric_is_there_with_its_labels_and_help(exposition: str) -> None:
    declared = {m.name: m.labels for m in METRICS} | {name: one[2] for name, one in OF_THE_MONITOR.items()}
    for name, labels in declared.items():
        found = re.search(rf"^{name}\{{(.*)\}} ", exposition, re.M)
        assert found, name
        assert {part.split("=")[0] for part in found[1].split(",")} == {"run", *labels}
        assert f"# HELP {name} " in exposition
    assert 'stoker_rank_work_seconds{rank="1",run="small",stage="0"} 0.3' in exposition


def test_series_of_each_rank_are_only_where_they_are_asked_for(tmp_path: Path) -> None:
    picture = full_picture(tmp_path)
    names = {family.name for family in snapshot(picture, False).collect()}
    assert not [name for name in names if name.startswith("stoker_rank_")]
    assert "stoker_loss" in names


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"stoker_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        for unit in ("seconds", "bytes", "ratio", "celsius", "watts"):
            if metric.unit == unit:
                assert metric.name.endswith(f"_{unit}"), metric.name


def test_a_port_that_is_taken_gives_way_to_a_free_one(tmp_path: Path) -> None:
    found = snapshot(full_picture(tmp_path), False)
    first = Endpoint(Prometheus(port=0), found)
    port = int(first.url.split(":")[-1].split("/")[0])
    second = Endpoint(Prometheus(port=port), found)
    try:
        assert (first.wanted_port_was_taken, second.wanted_port_was_taken) == (False, True)
        assert "stoker_loss" in urlopen(second.url, timeout=10).read().decode()
    finally:
        first.close()
        second.close()


def test_every_built_in_rule_is_also_one_of_prometheus() -> None:
    assert [alarm.rule for alarm in ALARMS] == list(BuiltIn.model_fields)


def test_queries_and_rules_name_only_metrics_that_there_are() -> None:
    known = {metric.name for metric in METRICS} | set(OF_THE_MONITOR)
    expressions = [alarm.expression for alarm in ALARMS] + [q for panel in every_panel() for q, _ in panel.queries]
    for expression in expressions:
        names = set(re.findall(r"stoker_\w+", expression))
        assert names
        assert names <= known, names - known


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_monitoring(tmp_path / "out", Alerts.model_validate(OWN), Exporters())
    return tmp_path / "out"


def test_promtool_takes_the_rules_and_the_configuration(files: Path) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "config", str(files / "prometheus.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALARMS) + 2} rules found" in done.stdout


def test_amtool_takes_the_example_of_alertmanager(files: Path) -> None:
    command = [program("amtool"), "check-config", str(files / "alertmanager.yml")]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_rules_that_are_off_are_left_out_and_limits_are_the_recipes() -> None:
    alerts = Alerts.model_validate(
        {"rules": {"gradient_norm": {"limit": 7}, "slow_rank": {"enabled": False}, "finding": {"limit": "warning"}}}
    )
    rules = {rule["alert"]: rule for rule in alert_rules(alerts)["groups"][0]["rules"]}
    assert "StokerSlowRank" not in rules
    assert "> 7 or" in rules["StokerGradientNorm"]["expr"]
    assert "warning|alarm" in rules["StokerFinding"]["expr"]


def _series(name: str, values: str, **labels: str) -> dict[str, str]:
    inside = ",".join(f'{key}="{value}"' for key, value in {"run": "small", **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


_CASES: dict[str, list[dict[str, str]]] = {
    "accelerator_utilisation": [_series("stoker_accelerator_utilisation_ratio", "0.4x80")],
    "accelerator_memory": [_series("stoker_accelerator_memory_ratio", "0.95x80")],
    "host_memory": [_series("stoker_host_memory_ratio", "0.95x80")],
    "network_rate": [
        _series("stoker_network_bytes_per_second", "1000000x80"), _series("stoker_several_nodes", "1x80"),
    ],
    "network_latency": [_series("stoker_network_latency_seconds", "0.01x80")],
    "loss_moves": [_series("stoker_loss_moves_in_a_row", "0x70 3x10")],
    "gradient_norm": [_series("stoker_gradient_norm", "1x70 200000x10")],
    "no_progress": [
        _series("stoker_last_progress_timestamp_seconds", "0x80"), _series("stoker_step_seconds", "1x80"),
        _series("stoker_step", "5x80"), _series("stoker_planned_steps", "100x80"),
    ],
    "slow_rank": [_series("stoker_slowest_rank_ratio", "0.3x80")],
    "checkpoint_age": [_series("stoker_checkpoint_age_ratio", "3x80")],
    "finding": [_series("stoker_findings", "1x80", severity="alarm")],
    "hot": [_series("stoker_own_rule_value", "90x80", rule="hot")],
    "endpoint_gone": [{"series": 'up{job="stoker",instance="x"}', "values": "0x80"}],
}  # fmt: skip
_QUIET: dict[str, list[dict[str, str]]] = {
    "accelerator_utilisation": [_series("stoker_accelerator_utilisation_ratio", "0.6x80")],
    "accelerator_memory": [_series("stoker_accelerator_memory_ratio", "0.85x80")],
    "network_rate": [_series("stoker_network_bytes_per_second", "1x80"), _series("stoker_several_nodes", "0x80")],
    "loss_moves": [_series("stoker_loss_moves_in_a_row", "2x80")],
    "gradient_norm": [_series("stoker_gradient_norm", "1000x80")],
    "no_progress": [
        _series("stoker_last_progress_timestamp_seconds", "0x80"), _series("stoker_step_seconds", "1x80"),
        _series("stoker_step", "100x80"), _series("stoker_planned_steps", "100x80"),
    ],
    "checkpoint_age": [_series("stoker_checkpoint_age_ratio", "2x80")],
    "finding": [_series("stoker_findings", "1x80", severity="warning")],
    "hot": [_series("stoker_own_rule_value", "70x80", rule="hot")],
}  # fmt: skip


def _rule_tests(cases: dict[str, list[dict[str, str]]], fires: bool, rules: Any) -> Iterator[dict[str, Any]]:
    labels = {rule["labels"]["rule"]: rule["labels"] for rule in rules["groups"][0]["rules"]}
    summaries = {rule["labels"]["rule"]: rule["annotations"] for rule in rules["groups"][0]["rules"]}
    for rule, series in cases.items():
        own = {"run": "small"} if rule != "endpoint_gone" else {"job": "stoker", "instance": "x"}
        extra = {"rule": "hot"} if rule == "hot" else {}
        expected = [{"exp_labels": {**own, **extra, **labels[rule]}}] if fires else []
        for one in expected:
            one["exp_annotations"] = {"summary": _spelled(summaries[rule]["summary"], rule)}
        case = {"eval_time": "19m", "alertname": alert_name(rule), "exp_alerts": expected}
        yield {"interval": "15s", "input_series": series, "alert_rule_test": [case]}


def _spelled(summary: str, rule: str) -> str:
    """The summary with what Prometheus puts in."""
    value = {
        "accelerator_utilisation": "40%", "accelerator_memory": "95%", "host_memory": "95%", "network_rate": "8M",
        "network_latency": "10ms", "loss_moves": "3", "gradient_norm": "200k", "no_progress": "19m 0s",
        "slow_rank": "30%", "checkpoint_age": "3", "finding": "1", "hot": "90",
    }.get(rule, "")  # fmt: skip
    summary = summary.replace("{{ $labels.run }}", "small").replace("{{ $labels.instance }}", "x")
    return re.sub(r"\{\{ \$value[^}]*\}\}", value, summary)


def test_each_rule_fires_on_its_series_and_not_on_healthy_ones(files: Path) -> None:
    rules = alert_rules(Alerts.model_validate(OWN))
    assert set(_CASES) == {rule["labels"]["rule"] for rule in rules["groups"][0]["rules"]}
    tests = [*_rule_tests(_CASES, True, rules), *_rule_tests(_QUIET, False, rules)]
    content = {"rule_files": ["stoker-rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (files / "tests.yml").write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [program("promtool"), "test", "rules", "tests.yml"], cwd=files, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_json_with_panels_side_by_side(files: Path) -> None:
    written = json.loads((files / "grafana-dashboard.json").read_text())
    assert written == dashboard()
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in written["panels"]}
    assert len(places) == len(written["panels"]) == len(every_panel())
    assert len({panel["id"] for panel in written["panels"]}) == len(written["panels"])


def test_the_docs_list_every_metric_and_every_rule() -> None:
    page = (DOCS / "monitor.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(stoker_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.M))
    wanted = {(m.name, m.kind, ", ".join(("run", *m.labels)), m.help) for m in METRICS}
    wanted |= {(name, one[0], ", ".join(("run", *one[2])), one[1]) for name, one in OF_THE_MONITOR.items()}
    assert {tuple(cell.strip() for cell in row) for row in rows} == wanted
    for rule in BuiltIn.model_fields:
        assert f"| `{rule}` |" in page


def test_the_figures_that_rules_may_name_are_those_of_the_record() -> None:
    figures = ("integer", "number", "integers", "numbers")
    apart = {"attempt", "step", "time", "first_sample", "last_sample", "began", "parameters"}

    def recorded(kind: str) -> dict[str, bool]:
        return {n: t.endswith("s") for n, t in KINDS[kind].items() if t in figures and n not in apart}

    assert recorded("step") == STEP
    for kind, names in OTHERS.items():
        plain = {name for name, by_name in recorded(kind).items() if not by_name}
        assert plain == set(names), kind
