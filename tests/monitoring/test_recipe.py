"""What the sections `alerts` and `exporters` refuse, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker.errors import BadInput
from stoker.recipe.loading import dump_recipe, load_recipe
from tests.end_to_end.small_job import stoker
from tests.monitoring.watched_run import make_run, steps
from tests.recipe.recipes import SMALL, write, write_with_text


def refused(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        load_recipe(write(folder, SMALL + text))
    return str(caught.value)


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("gradient_nrom", "near it: gradient_norm"),
        ("machine.temperature", "near it: machine.temperature_celsius"),
        ("loss_by_source", "it holds figures by name: write loss_by_source.NAME"),
        ("loss.english", "no row of the record holds a figure 'loss.english'"),
        ("loss_by_source.klingon", "no source is called 'klingon'; there are english, 中文"),
    ],
)
def test_a_rule_on_a_figure_that_there_is_not_is_refused_where_it_stands(
    tmp_path: Path, figure: str, words: str
) -> None:
    said = refused(tmp_path, f"alerts:\n  own:\n    - {{name: mine, figure: {figure}, above: 1}}\n")
    assert words in said
    if "klingon" not in figure:
        assert "recipe.yaml:22:20: alerts.own.0.figure" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alerts: {own: [{name: mine, figure: loss}]}", "needs either `above` or `below`"),
        ("alerts: {own: [{name: mine, figure: loss, above: 1, below: 0}]}", "needs either `above` or `below`"),
        ("alerts: {own: [{name: slow_rank, figure: loss, above: 1}]}", "there is a rule 'slow_rank' already"),
        ("alerts: {webhook: example.org/hook}", "expected http://"),
        ("alerts: {webhook: ftp://example.org/hook}", "expected http://"),
        ("alerts: {rules: {slow_ranks: {limit: 1}}}", "did you mean `slow_rank`?"),
        ("alerts: {rules: {host_memory: {limit: 90}}}", "expected a number of at most 1"),
        ("exporters: {mlflow: {tracking_uri: 'file:///x'}}", "sqlite:///FILE, got 'file:///x'"),
        ("exporters: {mlflow: {tracking_uri: mlruns}}", "sqlite:///FILE, got 'mlruns'"),
        ("exporters: {prometheus: {port: 99999}}", "expected a number of at most 65535"),
        ("exporters: {wandb: {mode: dryrun}}", "expected one of online, offline"),
    ],
)
def test_mistakes_are_told_with_what_was_expected(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text + "\n")


def test_a_recipe_with_rules_and_exporters_is_read_back_as_it_was(tmp_path: Path) -> None:
    text = (
        "alerts:\n  webhook: $HOOK\n  command: [page, now]\n  own:\n"
        "    - {name: mine, figure: loss_by_source.中文, above: 9, severity: critical}\n"
        "exporters: {mlflow: {enabled: true, tracking_uri: 'sqlite:///a.db'}}\n"
    )
    loaded = load_recipe(write(tmp_path, SMALL + text)).recipe
    again = load_recipe(write(tmp_path, dump_recipe(loaded), "again.yaml")).recipe
    assert again == loaded
    assert again.alerts.tells_somebody
    assert again.exporters.any_enabled


def test_own_rules_can_be_overridden_by_name(tmp_path: Path) -> None:
    text = "alerts: {own: [{name: mine, figure: loss, above: 9}]}\n"
    path = write(tmp_path, SMALL + text)
    assert load_recipe(path, ["alerts.own.mine.above=3"]).recipe.alerts.own[0].above == 3


def test_a_webhook_whose_variable_is_not_set_is_told_before_anything_is_done(tmp_path: Path) -> None:
    recipe = write_with_text(tmp_path)
    done = stoker("train", recipe, "alerts.webhook=$STOKER_NOT_SET")
    assert done.returncode == 2
    assert "environment variable $STOKER_NOT_SET, which is not set" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_files_for_prometheus_are_written_by_the_command(tmp_path: Path) -> None:
    done = stoker("launch", "monitoring", write(tmp_path), "exporters.prometheus.port=9999", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    names = ["alertmanager.yml", "grafana-dashboard.json", "prometheus.yml", "stoker-rules.yml"]
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == names
    assert "127.0.0.1:9999" in (tmp_path / "out" / "prometheus.yml").read_text()


def test_a_run_is_looked_at_by_the_command(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps(run, 1, 30, gradient_norm=2e5)
    done = stoker("monitor", run.path, "--once", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["step"] == 30
    assert [one["rule"] for one in found["alerts"]] == ["gradient_norm"]
    quiet = stoker("monitor", make_run(tmp_path / "other").path, "--once")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "nothing fires" in quiet.stdout
    assert stoker("monitor", tmp_path).returncode == 2
