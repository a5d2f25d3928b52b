"""A mixture in stages through the command line: killed at a boundary, and changed while the run is on."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.checkpoint import latest, read_weights
from stoker.recipe.loading import load_recipe
from stoker.record import Record, samples_seen
from stoker.run_directory import RunDirectory
from tests.end_to_end.small_job import command, recipe, stoker, write_job
from tests.preloaded import environment

STAGES: list[dict[str, Any]] = [
    {"until": 4, "weights": {"english": 0.7, "chinese": 0.3}},
    {"until": 8, "change": "linear", "weights": {"english": 0.2, "code": 0.5, "mathematics": 0.3}},
    {"weights": {"mathematics": 1.0}, "documents": {"minimum_tokens": 300}},
]
_QUIET: dict[str, Any] = {"evaluation__prompts": [], "checkpoint__every": 2}


def _run(folder: Path) -> RunDirectory:
    return RunDirectory(folder / "runs" / "small")


def _weights(run: RunDirectory) -> dict[str, bytes]:
    checkpoint = latest(run.checkpoints)
    assert checkpoint is not None
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in read_weights(checkpoint).items()}


def _digests(run: RunDirectory) -> list[str]:
    return Record(run.record).steps(["batch_digest"])["batch_digest"].to_list()


def _kill_after(step: int, path: Path, run: RunDirectory) -> None:
    """Kill the run once its record has a row of `step`."""
    process = subprocess.Popen(
        command("train", path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if run.record.is_dir() and step in Record(run.record).steps(["step"])["step"].to_list():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _change(folder: Path, mixture: dict[str, Any], **changes: Any) -> Path:
    path = folder / "recipe.yaml"
    content = recipe(data__mixture=mixture, **_QUIET, **changes)
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_run_killed_at_the_boundaries_of_its_stages_ends_bit_identical(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    slower = {"telemetry__flush_seconds": 0.0}
    for folder in (whole, killed):
        path = write_job(folder, data__mixture={"stages": STAGES}, **_QUIET, **slower)
        prepared = stoker("prepare", path)
        assert prepared.returncode == 0, prepared.stderr
    assert stoker("train", whole / "recipe.yaml").returncode == 0
    for step in (4, 8):
        _kill_after(step, killed / "recipe.yaml", _run(killed))
    ended = stoker("train", killed / "recipe.yaml")
    assert ended.returncode == 0, ended.stderr
    assert _digests(_run(killed)) == _digests(_run(whole))
    assert _weights(_run(killed)) == _weights(_run(whole))
    assert samples_seen(Record(_run(killed).record)).exact
    assert any(event["event"] == "resumed" for event in Record(_run(killed).record).events())


def test_weights_changed_while_a_run_is_on_hold_from_then_on_and_the_record_says_when(tmp_path: Path) -> None:
    path = write_job(tmp_path, data__mixture={"stages": STAGES}, training__steps=6, **_QUIET)
    first = stoker("run", path)
    assert first.returncode == 0, first.stderr
    before = _digests(_run(tmp_path))

    # The past may not change …
    other = [{**STAGES[0], "weights": {"english": 0.5, "chinese": 0.5}}, *STAGES[1:]]
    refused = stoker("train", _change(tmp_path, {"stages": other}, training__steps=10))
    assert refused.returncode == 2
    assert (
        "6 steps are trained, and from step 1 on the shares would be english 50.0%, chinese 50.0%" in refused.stderr
    )
    assert "`until: 6`" in refused.stderr

    # … what comes after the ramp that is under way may.
    later = [*STAGES[:2], {"weights": {"chinese": 1.0}}]
    done = stoker("train", _change(tmp_path, {"stages": later}, training__steps=10))
    assert done.returncode == 0, done.stderr
    record = Record(_run(tmp_path).record)
    assert _digests(_run(tmp_path))[:6] == before
    (changed,) = [event for event in record.events() if event["event"] == "mixture_changed"]
    assert changed["detail"]["from_step"] == 9
    assert changed["detail"]["new"]["chinese"] == 1.0
    assert changed["detail"]["old"]["mathematics"] == 1.0
    tokens = record.steps(["tokens_by_source"])
    by_source = {name.split(".")[1]: tokens[name].to_list() for name in tokens.columns if "." in name}
    assert all(by_source["english"][step] for step in range(5))
    assert [by_source["chinese"][step] is None for step in (8, 9)] == [False, False]
    assert [by_source[name][8] for name in ("english", "code", "mathematics")] == [None] * 3

    shown = stoker("data", "show", _run(tmp_path).path, "--step", "9", "--json")
    assert json.loads(shown.stdout)["shares"] == {"english": 0.0, "chinese": 1.0, "code": 0.0, "mathematics": 0.0}
    told = stoker("data", "show", _run(tmp_path).path, "--step", "9")
    assert "mixture in force: chinese 100%" in told.stdout

    losses = stoker("data", "mixture", path, "--losses-of", _run(tmp_path).path, "--json")
    evaluated = record.evaluations()
    last = evaluated.filter(evaluated["step"] == evaluated["step"].max())
    assert json.loads(losses.stdout)["losses"] == pytest.approx(
        dict(zip(last["source"], last["loss"], strict=True)), abs=1e-6
    )
    table = stoker("data", "mixture", path)
    assert "stage 2: steps 5 to 8, shares changing linearly" in table.stdout
    assert "whole run: 10 steps, 5,120 tokens" in table.stdout


def test_a_run_is_mixed_by_how_hard_another_found_its_sources_and_keeps_what_it_began_with(tmp_path: Path) -> None:
    brief: dict[str, Any] = {"training__steps": 2, "training__schedule__warmup_steps": 0, "evaluation__every": 2}
    path = write_job(tmp_path, **brief, **_QUIET)
    done = stoker("run", path)
    assert done.returncode == 0, done.stderr
    given = json.loads(stoker("data", "mixture", path, "--losses-of", _run(tmp_path).path, "--json").stdout)[
        "losses"
    ]

    begun_with = {"weights": "difficulty", "from_run": "runs/small"}
    changed = {**brief, "run": "runs/next"}
    account = stoker("data", "mixture", _change(tmp_path, begun_with, **changed), "--json")
    assert account.returncode == 0, account.stderr
    shares = {one["source"]: one["share"] for one in json.loads(account.stdout)["sources"]}
    weights = {source["name"]: source.get("weight", 1.0) for source in recipe()["data"]["sources"]}
    wanted = {name: weights[name] * math.exp(loss) for name, loss in given.items()}
    # Shares of the whole run: 16 samples are too few to hold them closer.
    assert shares == pytest.approx({name: own / sum(wanted.values()) for name, own in wanted.items()}, abs=0.1)

    trained = stoker("train", path)
    assert trained.returncode == 0, trained.stderr
    mixture = load_recipe(tmp_path / "runs" / "next" / "recipe.yaml").recipe.data.mixture
    assert (mixture.from_run, mixture.losses) == (None, given)
    elsewhere = {**begun_with, "from_run": "runs/gone"}
    again = stoker("train", _change(tmp_path, elsewhere, **{**changed, "training__steps": 3}))
    assert again.returncode == 0, again.stderr
    refused = stoker("data", "mixture", _change(tmp_path, elsewhere, **{**changed, "run": "runs/third"}))
    assert refused.returncode != 0
    assert "data.mixture.from_run:" in refused.stderr
