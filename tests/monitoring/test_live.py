"""Real runs, watched: by a real Prometheus with a real Alertmanager, and by a monitor that sends a run back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from stoker.launch.grafana import PANELS
from stoker.launch.monitoring import alert_rules, prometheus_config
from stoker.monitoring.definitions import ALARMS
from stoker.recipe.loading import load_recipe
from stoker.record import MONITOR, Record
from stoker.run_directory import RunDirectory
from tests.dashboard.watched_runs import dashboard, identifiers
from tests.end_to_end.small_job import command, write_job
from tests.monitoring.watched_run import free_port, program, receiver, wait_for
from tests.preloaded import environment

pytestmark = pytest.mark.slow
FAST = {"diagnose_seconds": 0.5, "share_of_core": 0.5}


@contextmanager
def running(arguments: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def training(recipe: Path, *overrides: str) -> Iterator[RunDirectory]:
    with running(list(command("train", recipe, *overrides)), env=environment()) as process:
        run = RunDirectory(recipe.parent / "runs" / "small")
        yield run
        assert process.poll() in (None, 0)


def exporter(run: RunDirectory) -> str | None:
    found = [
        one["detail"]["prometheus"] for one in Record(run.record).events(MONITOR) if one["event"] == "exporter"
    ]
    return found[-1] if found else None


def answer(server: int, query: str) -> list[Any]:
    url = f"http://127.0.0.1:{server}/api/v1/query?{urlencode({'query': query})}"
    with urlopen(url, timeout=10) as reply:
        found = json.load(reply)
    assert found["status"] == "success"
    result: list[Any] = found["data"]["result"]
    return result


def is_up(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@contextmanager
def prometheus(folder: Path, recipe: Path, target: str, alertmanager: int) -> Iterator[int]:
    loaded = load_recipe(recipe).recipe
    config = prometheus_config(loaded.exporters, scrape_seconds=1)
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "stoker-rules.yml").write_text(yaml.safe_dump(alert_rules(loaded.alerts)))
    port = free_port()
    options = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'data'}"]
    with running([program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", *options]):
        yield port


@contextmanager
def alertmanager(folder: Path, hook: int) -> Iterator[int]:
    folder.mkdir()
    receivers = [{"name": "webhook", "webhook_configs": [{"url": f"http://127.0.0.1:{hook}/"}]}]
    route = {"receiver": "webhook", "group_by": ["run"], "group_wait": "1s"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump({"route": route, "receivers": receivers}))
    port = free_port()
    options = [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", f"--storage.path={folder}"]
    with running([program("prometheus-alertmanager"), f"--config.file={folder / 'alertmanager.yml'}", *options]):
        yield port


def test_a_real_prometheus_scrapes_a_real_run_and_an_alert_reaches_a_webhook_both_ways(tmp_path: Path) -> None:
    program("prometheus")
    with receiver() as own, receiver() as through:
        recipe = write_job(
            tmp_path / "job",
            training__steps=100_000,
            evaluation={"every": 20, "sequences": 2},
            checkpoint={"every": 10},
            telemetry={"machine_seconds": 1.0},
            exporters={"prometheus": {"enabled": True, "port": 0, "per_rank": True}},
            alerts={
                **FAST,
                "webhook": f"http://127.0.0.1:{own.port}/",
                "own": [{"name": "planted", "figure": "loss", "above": 0.01}],
            },
        )
        with training(recipe) as run:
            url = wait_for(lambda: exporter(run), 120)
            target = url.removeprefix("http://").removesuffix("/metrics")
            with (
                alertmanager(tmp_path / "am", through.port) as other,
                prometheus(tmp_path / "prom", recipe, target, other) as server,
            ):
                wait_for(lambda: is_up(server))
                wait_for(lambda: answer(server, "stoker_held_out_loss"), 90)
                wait_for(lambda: own.got)
                for panel in PANELS:
                    for query, _ in panel.queries:
                        asked = query.replace("$run", "small|other")
                        # A panel of alerts or of phases that have not come yet may take a scrape or two.
                        assert wait_for(lambda asked=asked: answer(server, asked), 30), panel.title
                expressions = " ".join(alarm.expression for alarm in ALARMS)
                for name in sorted(set(re.findall(r"stoker_\w+", expressions))):
                    # All but what one rank on one machine without an accelerator does not have.
                    if not re.search("accelerator|network_latency|slowest_rank", name):
                        assert wait_for(lambda name=name: answer(server, name), 30), name
                assert answer(server, "stoker_rank_work_seconds")[0]["metric"]["rank"] == "0"
                sent = wait_for(lambda: [alert for got in through.got for alert in got["alerts"]], 60)
    assert {(one["rule"], one["state"]) for one in own.got} >= {("planted", "firing")}
    planted = [one for one in sent if one["labels"]["alertname"] == "StokerPlanted"]
    assert planted[0]["labels"]["run"] == "small"


_TRAIN = """
import sys
from pathlib import Path
from stoker.console import progress_for
from stoker.recipe.loading import load_recipe
from stoker.recovery import train
from stoker.recovery.drill_doctor import PREPARED, spoiled, with_own_corpus
from stoker.recovery.faults import parse_fault
if __name__ == "__main__":
    loaded, fault = load_recipe(Path(sys.argv[1])), parse_fault(sys.argv[2])
    if fault.kind == "bad_data":
        print(*spoiled(loaded, loaded.run, [fault])[str(fault)])
        loaded = with_own_corpus(loaded, loaded.run.path.absolute() / PREPARED)
    train(loaded, loaded.run, progress_for(False), faults=(fault,))
"""


def trained_with(recipe: Path, fault: str) -> subprocess.CompletedProcess[str]:
    """Train as `stoker drill` does, until it is over; what was made bad, as sample numbers, is on stdout."""
    script = recipe.parent / "faulty.py"
    script.write_text(_TRAIN)
    arguments = [sys.executable, str(script), str(recipe), fault]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_run_whose_monitor_finds_a_divergence_goes_back_by_itself(tmp_path: Path) -> None:
    """The run's own guard is told to wait: what sends it back is what the monitor found."""
    recipe = write_job(
        tmp_path,
        training__steps=230,
        training__schedule={"name": "constant"},
        evaluation={"every": 0},
        checkpoint={"every": 20, "keep_last": 100},
        recovery={"on_finding": "rollback", "on_spike": "wait", "on_divergence": "wait", "on_large_update": "wait"},
        alerts=FAST,
    )
    trained_with(recipe, "lr_jump@150:strength=2,steps=6")
    record = Record(tmp_path / "runs/small/record")
    asked = [one["detail"] for one in record.events(MONITOR) if one["event"] == "asked_back"]
    answered = [one["detail"] for one in record.events() if one["event"] == "asked_back"]
    back = [one["step"] for one in record.events() if one["event"] == "went_back"]
    assert 145 <= asked[0]["finding"]["first_step"] <= 170
    assert answered[0]["response"] == "rollback"
    assert back[0] in (120, 140)
    loss = dict(record.steps(["loss"]).select("step", "loss").iter_rows())
    assert loss[230] < loss[150], "it went on from where all was well"


STEPS = 400


def test_while_the_run_goes_on_bad_text_is_named_with_its_documents_wherever_people_look(tmp_path: Path) -> None:
    """In the finding, in the log, in the notice, in the JSON log and among the page's events."""
    with receiver() as hook:
        recipe = write_job(
            tmp_path,
            training__steps=STEPS,
            evaluation={"every": 0},
            checkpoint={"every": 200},
            exporters={"json_logs": {"enabled": True}},
            alerts={
                **FAST,
                "webhook": f"http://127.0.0.1:{hook.port}/",
                "rules": {"finding": {"limit": "warning"}},
            },
        )
        done = trained_with(recipe, "bad_data@120:what=garbled,steps=2,strength=0.5")
    bad = set(map(int, done.stdout.split()))
    run = RunDirectory(tmp_path / "runs" / "small")
    events = [one for one in Record(run.record).events(MONITOR) if one["event"] == "finding"]
    [found] = [one for one in events if one["detail"]["cause"] == "garbled_text"]
    assert found["step"] < STEPS, "it was found while the run went on"
    detail = found["detail"]
    assert 120 <= detail["first_step"] <= 121
    assert {number for first, last in detail["documents"] for number in range(first, last + 1)} <= bad
    name = detail["names"][0]
    assert name.startswith("text/")
    said = [line for line in done.stderr.splitlines() if "garbled_text" in line]
    assert said
    assert name in said[0]
    assert any(name in one["summary"] for one in hook.got if one["rule"] == "finding")
    log = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    [line] = [one for one in log if one.get("event.action") == "finding" and "garbled_text" in one["message"]]
    assert name in line["message"]
    assert line["log.level"] == "warn"
    with dashboard(run.path) as client:
        [identifier] = identifiers(client).values()
        told = client.get(f"/api/run/{identifier}/events").json()["events"]
    assert any(name in one["words"] for one in told if one["event"] == "alert")
