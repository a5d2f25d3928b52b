"""Commands on several nodes, all on this machine: forked, watched, and killed as a node that goes dark is.

They are forked from a server that computes nothing: what tests have done in this process has left threads in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import psutil
import yaml

from stoker.checkpoint import latest, read_weights
from stoker.child_processes import fork_server
from stoker.data.prepare import prepare
from stoker.errors import StokerError
from stoker.main_job import run_main_job
from stoker.progress import Progress, Silent
from stoker.recipe.loading import load_recipe
from stoker.record import SUPERVISOR, Record, samples_seen
from stoker.recovery import several_nodes, standby, train
from stoker.recovery.faults import parse_fault
from stoker.run_directory import RunDirectory
from stoker.training.signals import let_through
from tests.end_to_end.small_job import write_job


@cache
def _server() -> ForkServerContext:
    return fork_server(__name__)


class _Printing(Progress):
    """Says everything on standard output."""

    def say(self, line: str) -> None:
        print(line, flush=True)


class Command:
    """`stoker train` on one node."""

    def __init__(
        self,
        recipe: Path,
        node: str | None,
        nodes: int,
        *,
        run: str = "runs/small",
        job: str = "job",
        fault: str = "",
        overrides: Sequence[str] = (),
        other_job_seconds: float | None = None,
        frozen_seconds: float | None = None,
        whole_job: bool = False,
    ) -> None:
        """`node` None: an ordinary command, on one node. `whole_job`: `stoker run` instead.

        `other_job_seconds`: its patience with another job; `frozen_seconds`: with a leader that shows nothing.
        """
        self.node = node
        self.run = RunDirectory(recipe.parent / run)
        self._output = recipe.parent / f"{self.run.path.name}-{node}-{time.monotonic_ns()}.txt"
        environment = {
            **({"STOKER_NODES": str(nodes), "STOKER_NODE": node, "STOKER_JOB": job} if node is not None else {}),
            "STOKER_ADDRESS": "127.0.0.1",
        }
        self.process = _server().Process(
            target=_main,
            args=(recipe, overrides, self.run, environment, self._output, fault, other_job_seconds, frozen_seconds),
            kwargs={"whole_job": whole_job},
        )
        self.process.start()

    def wait(self, seconds: float = 120) -> int:
        """Its exit code."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running:\n{self.said}"
        return self.process.exitcode

    @property
    def said(self) -> str:
        """What it has printed."""
        return self._output.read_text(encoding="utf-8") if self._output.exists() else ""

    def wait_for(self, words: str, seconds: float = 90) -> None:
        """Until it has said `words`."""
        until = time.monotonic() + seconds
        while words not in self.said:
            assert self.process.is_alive(), self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)

    def everything(self) -> list[psutil.Process]:
        """The command and all processes under it."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _main(
    recipe: Path,
    overrides: Sequence[str],
    run: RunDirectory,
    environment: dict[str, str],
    output: Path,
    fault: str,
    other_job_seconds: float | None,
    frozen_seconds: float | None,
    whole_job: bool,
) -> None:
    let_through(signal.SIGTERM)  # the server is deaf to it
    os.environ.update(environment)
    sys.stdout = sys.stderr = open(output, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    code = 0
    if other_job_seconds is not None:
        several_nodes._OTHER_JOB_SECONDS = other_job_seconds
    if frozen_seconds is not None:
        several_nodes._FROZEN_SECONDS = frozen_seconds
    try:
        with standby(forked=True) as ready:
            faults = tuple(parse_fault(one) for one in fault.split("+") if one)
            if whole_job:
                loaded = load_recipe(recipe, [*overrides, f"run={run.path}"])
                print(run_main_job(loaded, _Printing(), ready).as_text(), flush=True)
                os._exit(0)
            train(load_recipe(recipe, overrides), run, _Printing(), ready, faults)
    except StokerError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        code = error.exit_code
    os._exit(code)


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function`, of a module's own, returns in a process that has computed nothing."""
    ours, theirs = _server().Pipe(duplex=False)
    process = _server().Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _answer(to: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    to.send(function(*arguments))


def prepared(folder: Path, **changes: Any) -> Path:
    """A small job whose corpus is prepared; returns its recipe."""
    recipe = write_job(folder, evaluation={"every": 0, "sequences": 2}, **changes)
    prepare(load_recipe(recipe), Silent())
    return recipe


def with_steps(recipe: Path, folder: Path, steps: int) -> Path:
    """The same job with so many steps, in another folder and with the same prepared corpus."""
    shutil.copytree(recipe.parent / "text", folder / "text")
    shutil.copytree(recipe.parent / "prepared", folder / "prepared")
    content = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    content["training"]["steps"] = steps
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return path


def weights(run: RunDirectory) -> dict[str, str]:
    """Digests of the newest checkpoint's weights, and its name."""
    checkpoint = latest(run.checkpoints)
    assert checkpoint is not None
    found = {
        name: hashlib.sha256(one.numpy().tobytes()).hexdigest() for name, one in read_weights(checkpoint).items()
    }
    return {"checkpoint": checkpoint.name, **found}


def events(run: RunDirectory) -> list[dict[str, Any]]:
    """What the supervisor has recorded of what happened; not the ordinary end of the ranks."""
    return [event for event in Record(run.record).events(SUPERVISOR) if event["event"] != "ranks_ended"]


def resumed(run: RunDirectory) -> list[int]:
    """From which step each start of the ranks went on, as rank 0 says."""
    return [e["step"] for e in Record(run.record).events(0) if e["event"] in ("started", "resumed")]


def samples_are_exact(run: RunDirectory) -> bool:
    """Whether every sample was seen once in the final history."""
    return samples_seen(Record(run.record)).exact
