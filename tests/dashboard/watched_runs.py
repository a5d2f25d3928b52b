"""Run folders made up for the tests of the dashboard: several ranks, and every kind of row there is."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from starlette.testclient import TestClient

from stoker.dashboard.application import Watching, application_for
from stoker.dashboard.guard import Guard, names_of_host
from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory

NEVER = 3600.0
BEGAN = 1_795_900_000.0
SPIKE = 70
SLOW = 40


def write_run(
    folder: Path,
    *,
    name: str = "anvil",
    steps: int = 100,
    ranks: Iterable[int] = (0, 1),
    world: int = 2,
    sources: tuple[str, str] = ("english", "中文"),
    old: bool = False,
    close: bool = True,
) -> list[RecordWriter]:
    """Write a run of `steps` steps: the loss spikes at `SPIKE`, rank 1 is slow at `SLOW`. An `old` one has only the
    rows and fields of earlier versions. The writers, open where `close` is false."""
    run = RunDirectory(folder)
    folder.mkdir(parents=True, exist_ok=True)
    recipe = {"name": name, "training": {"steps": 200, "gradient_clip": 1.0, "sequence_length": 64}}
    run.recipe.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8")
    run.plan.write_text("{}")
    writers = [RecordWriter(run.record, rank, NEVER) for rank in ranks]
    for rank, writer in zip(ranks, writers, strict=True):
        append_steps(writer, rank, 1, steps, world=world, sources=sources, old=old)
        if close:
            assert writer.close()
    return writers


def append_steps(
    writer: RecordWriter,
    rank: int,
    first: int,
    last: int,
    *,
    world: int = 2,
    sources: tuple[str, str] = ("english", "中文"),
    old: bool = False,
    attempt: int = 1,
) -> None:
    """Append what a rank records of steps `first` to `last`."""
    if first == 1:
        writer.append("event", _event(0, "started", attempt))
        if not old:
            writer.append("event", _event(0, "clock", attempt, ahead_seconds=5.0 * rank, uncertain_seconds=1e-4))
    for step in range(first, last + 1):
        writer.append("step", step_row(step, rank, world, sources, old, attempt))
        if not old:
            _more_rows(writer, step, rank, sources, attempt)
        if rank == 0 and step % 50 == 0:
            writer.append("event", _event(step, "saved", attempt, seconds=0.5))
            for source in sources:
                score = {
                    "step": step,
                    "source": source,
                    "loss": 3.0,
                    "tokens": 100,
                    "bytes": 400,
                    "time": BEGAN + step,
                }
                writer.append("evaluation", score)


def step_row(
    step: int, rank: int, world: int, sources: tuple[str, str], old: bool, attempt: int = 1
) -> dict[str, Any]:
    """The row of one step on one rank."""
    loss = 2 + 3 / math.sqrt(step) + (4.0 if step == SPIKE else 0.0)
    compute = 2.0 if (step == SLOW and rank == 1) else 1.0
    row: dict[str, Any] = {
        "attempt": attempt,
        "step": step,
        "time": BEGAN + step + 5.0 * rank,
        "loss": loss,
        "loss_by_source": {sources[0]: loss - 0.1, sources[1]: loss + 0.1},
        "gradient_norm": 0.5,
        "learning_rate": 1e-3 * (1 - step / 400),
        "tokens": 1024,
        "tokens_seen": 1024 * step,
        "first_sample": 8 * (step - 1),
        "last_sample": 8 * step,
        "batch_digest": f"{step:08x}",
        "seconds": {
            "data": 0.1,
            "forward": compute,
            "backward": 2 * compute,
            "communication": 3.2 - compute,
            "total": 5.0,
        },
        "memory_peak_bytes": 2**30 + 2**20 * rank,
        "ranks": world,
    }
    if not old:
        row |= {
            "began": BEGAN + 5.0 * step + 5.0 * rank,
            "arrived": {"gradients": 3 * compute},
            "waited": {"gradients": 3.2 - compute},
            "work_seconds": 0.1 + 3 * compute,
            "loss_by_position": {"0-31": loss + 0.2, "32-63": loss - 0.2},
            "update_norm": 0.01,
            "weight_norm": 30.0,
            "host_memory_bytes": 2**31,
        }
    return row


def _more_rows(writer: RecordWriter, step: int, rank: int, sources: tuple[str, str], attempt: int) -> None:
    about = {"attempt": attempt, "step": step, "time": BEGAN + step}
    if step in (SLOW, SPIKE):
        worst = {
            "sample": 8 * step + rank,
            "source": sources[0],
            "first_token": 3,
            "tokens": 20,
            "loss": 9.0 - rank,
        }
        writer.append("document", {**about, **worst})
        spans = [["data", 0.0, 0.1], ["forward", 0.1, 1.0]]
        writer.append("timeline", {**about, "began": BEGAN + 5.0 * step + 5.0 * rank, "spans": spans})
    if step % 10 == 0:
        writer.append("machine", {**about, "utilisation": 0.9, "power_watts": 300.0})
        if rank == 0:
            for module in ("embedding", "blocks.0", "blocks.10", "blocks.2.attention"):
                writer.append("module", {**about, "module": module, "update_to_weight": 1e-3, "weight_rms": 0.02})


def _event(step: int, name: str, attempt: int, **detail: Any) -> dict[str, Any]:
    return {"step": step, "event": name, "attempt": attempt, "time": BEGAN + step, "detail": detail}


@contextmanager
def dashboard(*folders: Path, token: str | None = None, host: str = "127.0.0.1") -> Iterator[TestClient]:
    """A client of the guarded dashboard over `folders`."""
    application = Guard(application_for(Watching(folders)), names_of_host(host), token, "stoker_watch")
    with TestClient(application, base_url="http://127.0.0.1:8420") as client:
        yield client


def identifiers(client: TestClient) -> dict[str, str]:
    """Names of the runs, and what the dashboard calls them."""
    return {row["name"]: row["id"] for row in client.get("/api/runs").json()["runs"]}


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Header and columns of a binary answer."""
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    at, columns = 4 + length, {}
    for column in header["columns"]:
        kind = np.dtype("<" + column["type"])
        columns[column["name"]] = np.frombuffer(content, kind, column["length"], at)
        at += -(-column["length"] * kind.itemsize // 8) * 8
    assert at == len(content)
    return header, columns
