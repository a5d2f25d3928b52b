"""Trains the runs of the doctor's examination, each in a process forked from one that has computed nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from benchmarks.examination_cases import Case
from benchmarks.examination_text import write_text

from stoker.checkpoint.place import checkpoints_of
from stoker.data.corpus import Corpus
from stoker.data.prepare import prepare
from stoker.diagnosis import RunRows, diagnose
from stoker.diagnosis.causes.incident import LOSS_KINDS
from stoker.diagnosis.diagnose import find_all
from stoker.diagnosis.loss_spike import find_spikes
from stoker.diagnosis.step_parts import find_longer_parts, within
from stoker.durable_files import write_bytes, write_json
from stoker.durable_files import write_text as write_file
from stoker.progress import Silent
from stoker.recipe.loading import LoadedRecipe, dump_recipe, load_recipe
from stoker.record import Record
from stoker.recovery.drill_doctor import PREPARED, with_own_corpus
from stoker.recovery.dynamics.possible import require_possible_course
from stoker.recovery.dynamics.spoiled_corpus import spoil_corpus
from stoker.recovery.faults import parse_fault
from stoker.recovery.processes import end_ranks, start_ranks
from stoker.recovery.standby import standby
from stoker.recovery.supervised import train
from stoker.run_directory import RunDirectory
from stoker.training.marks import Board
from stoker.training.origin import write_origin
from stoker.training.rank import Job

SAMPLES, SAID = "bad_samples.json", "said.json"
WARNED_OF = ("attention_logit_growth", "router_collapse", "memory_leak")
SLOW = "slow_compute"
_FOUND_WITHIN, _LOOKED_EVERY = 5, 5
_LONGEST_SECONDS = 600.0


def prepare_text(folder: Path, case: Case) -> None:
    """Write the text, and prepare the one corpus that all runs are trained on."""
    if not (folder / "text" / "few.jsonl").is_file():
        write_text(folder / "text")
    prepare(_loaded(folder, case), Silent())


def _loaded(folder: Path, case: Case) -> LoadedRecipe:
    path = folder / "recipes" / f"{case.name}.yaml"
    path.parent.mkdir(exist_ok=True)
    data = {**case.recipe["data"], "prepared": str(folder / "prepared")}
    for source in data["sources"]:
        source["paths"] = [str(folder / "text" / f"{source['name']}.jsonl")]
    content = {**case.recipe, "run": str(folder / "runs" / case.name), "data": data}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_recipe(path)


def run_case(folder: Path, case: Case) -> None:
    """Train it. Prints into a file of its own. Raises what ends it."""
    loaded = _loaded(folder, case)
    run = loaded.run
    run.path.mkdir(parents=True)
    _print_to(run.path / "output.log")
    faults = tuple(map(parse_fault, case.faults))
    for fault in faults:
        require_possible_course(fault, loaded.recipe)
    corpus = prepare(loaded, Silent())
    bad = [fault for fault in faults if fault.kind == "bad_data"]
    if bad:
        own = run.path / PREPARED
        own.mkdir()
        spoiled = spoil_corpus(corpus.folder, loaded.recipe, bad, own / corpus.folder.name)
        write_json(run.path / SAMPLES, sorted(sample for samples in spoiled.values() for sample in samples))
        loaded = with_own_corpus(loaded, own)
        corpus = Corpus.open(own / corpus.folder.name)
    if case.supervised:
        with standby(forked=True) as ready:
            train(loaded, run, Silent(), ready, faults)
        return
    _train_ranks(loaded, run, corpus, faults)


class StoppedByItself(RuntimeError):
    """A rank has ended the run, and said why."""


def _train_ranks(loaded: LoadedRecipe, run: RunDirectory, corpus: Corpus, faults: tuple[Any, ...]) -> None:
    """The ranks alone, without what is measured and planned before."""
    recipe = loaded.recipe
    write_file(run.recipe, dump_recipe(recipe))
    write_bytes(run.corpus, (corpus.folder / "manifest.json").read_bytes())
    write_origin(run, loaded.path, corpus.folder)
    checkpoints_of(run, recipe.checkpoint)
    ranks = recipe.layout.world_size
    job = Job(recipe, run.path, corpus.folder, 1)
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    processes = start_ranks(
        job, range(ranks), Board(ranks), ("127.0.0.1", listener.getsockname()[1]), listener, faults
    )
    try:
        until = time.monotonic() + _LONGEST_SECONDS
        while listening := [one for one in processes if one.listening]:
            if time.monotonic() > until:
                raise RuntimeError(f"not done after {_LONGEST_SECONDS:.0f} s")
            for ready in connection.wait([one.messages for one in listening], timeout=1.0):
                next(one for one in listening if one.messages is ready).receive()
        for one in processes:
            if one.failure is not None:
                raise StoppedByItself(one.failure["message"])
    finally:
        end_ranks(processes)


def ask(run: Path) -> list[dict[str, Any]]:
    """What the doctor says of a run."""
    return [finding.model_dump(mode="json") for finding in diagnose(RunDirectory(run)).findings]


def live(case: Case, run: Path) -> dict[str, Any]:
    """What somebody who looks while the run is under way would see, and when.

    `noticed`: the first step behind which the doctor, asked after every fifth, has a finding of the right kind.
    `moved`: the first step from the fault on whose loss stands out, once all is known.
    """
    if case.cause not in (*WARNED_OF, SLOW) or case.step is None:
        return {}
    rows = RunRows.load(Record(RunDirectory(run).record), None, None, None)
    if case.cause == SLOW:
        own = within(rows.parts, int(rows.steps[0]), case.step + _FOUND_WITHIN - 1)
        last = int(rows.steps[0]) + own[0].steps.size - 1 if own else 0
        ranks = [one.ranks for one in find_longer_parts(own) if one.last_step is None or one.last_step >= last]
        return {"in_time": any(case.rank in found for found in ranks) if case.ranks > 1 else bool(ranks)}
    spikes = find_spikes(rows.curve("loss"))
    moved = min((one.first_step for one in spikes if one.first_step and one.first_step >= case.step), default=None)
    for step in range(case.step, int(rows.steps[-1]) + 1, _LOOKED_EVERY):
        if any(one.kind in case.kinds and one.kind not in LOSS_KINDS for one in find_all(_until(rows, step))):
            return {"moved": moved, "noticed": step}
    return {"moved": moved, "noticed": None}


def _until(rows: RunRows, step: int) -> RunRows:
    """As the record was when `step` was its last."""

    def cut(table: pl.DataFrame) -> pl.DataFrame:
        return table.filter(pl.col("step") <= step) if "step" in table.columns else table

    tables = {
        name: cut(getattr(rows, name)) for name in ("table", "routing", "evaluations", "modules", "documents")
    }
    by_rank = {rank: cut(own) for rank, own in rows.by_rank.items()}
    machines = {rank: cut(own) for rank, own in rows.machines.items()}
    return replace(rows, **tables, by_rank=by_rank, machines=machines, events=())


def _print_to(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(descriptor, number)
    os.close(descriptor)


def examine(folder: Path, again: bool, case: Case) -> None:
    """Train it, unless that has been done, ask the doctor, and write down what it says: `said` reads it."""
    found: dict[str, Any] = {"error": None, "findings": [], "samples": [], "live": {}}
    run = folder / "runs" / case.name
    (run / SAID).unlink(missing_ok=True)
    try:
        if not again:
            with suppress(StoppedByItself) if case.may_stop else nullcontext():
                run_case(folder, case)
        found["findings"] = ask(run)
        found["live"] = live(case, run)
        if (run / SAMPLES).is_file():
            found["samples"] = json.loads((run / SAMPLES).read_text(encoding="utf-8"))
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / SAID, found)
    os._exit(0)


def said(folder: Path, case: Case) -> dict[str, Any]:
    """What the doctor said of a case that was examined."""
    try:
        found: dict[str, Any] = json.loads((folder / "runs" / case.name / SAID).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"error": "its process was killed", "findings": [], "samples": [], "live": {}}
    return found


class Runs:
    """Works on cases at the same time, as many as there are processors for their ranks."""

    def __init__(self, work: Callable[[Case], None], processors: int, needs: Callable[[Case], int]) -> None:
        """`work` is called in a process of its own; `needs` says how many processors it takes."""
        self._work, self._free, self._needs = work, processors, needs
        self._working: dict[int, tuple[Case, Any]] = {}

    def all(self, cases: Sequence[Case], done: Callable[[Case], None]) -> None:
        """Work on all; `done` is called, here, with each that is over."""
        waiting = list(cases)
        while waiting or self._working:
            while waiting and self._needs(waiting[0]) <= self._free:
                self._start(waiting.pop(0))
            for sentinel in connection.wait(list(self._working)):
                assert isinstance(sentinel, int)
                case, process = self._working.pop(sentinel)
                process.join()
                self._free += self._needs(case)
                done(case)

    def _start(self, case: Case) -> None:
        process = get_context("fork").Process(target=self._work, args=(case,))
        process.start()
        self._free -= self._needs(case)
        self._working[process.sentinel] = (case, process)
