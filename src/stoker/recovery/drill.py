"""Rehearses faults: the same run undisturbed and with each fault, and what the fault cost.

Every run has a process of its own, forked from this one, which computes nothing itself.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stoker.checkpoint import latest, read_weights
from stoker.checkpoint.place import Place, abandon, checkpoints_of, place
from stoker.data.prepare import prepare
from stoker.durable_files import write_text
from stoker.errors import StokerError, Terminated
from stoker.progress import Progress, Silent, Task
from stoker.recipe import Recipe
from stoker.recipe.loading import LoadedRecipe, dump_recipe, load_recipe
from stoker.record import SUPERVISOR, Record, samples_seen
from stoker.recovery.drill_doctor import PREPARED, Examined, examined, spoiled, with_own_corpus, with_own_name
from stoker.recovery.drill_network import DrillNetwork, why_not
from stoker.recovery.drill_nodes import run_on_nodes
from stoker.recovery.dynamics.possible import require_possible_course
from stoker.recovery.faults import (
    KINDS,
    SURVIVED_BY_ITSELF,
    Fault,
    as_written,
    parse_fault,
    require_no_network,
    require_possible,
)
from stoker.recovery.forked import Forked, Stopped
from stoker.recovery.standby import standby
from stoker.recovery.supervised import train
from stoker.run_directory import RunDirectory

_END_THE_COMMAND = ("sigterm", "kill_command", "drop_node")
_NOTICED_BY_RANKS = ("replayed", "replicas_differ", "silent_corruption", "save_failed", "slow_rank")
_OUTPUT = "output.log"
_NOBODY = Silent()
_OTHER_LAYOUT = ("shrunk", "grown")
_ROUNDING = {"fp32": 1e-5}
_COARSE_ROUNDING = 2**-8
"""By how much weights may differ that another layout's order of sums has rounded otherwise, of the largest of their
tensor; the latter, one rounding of bf16, in any precision but fp32."""


@dataclass(frozen=True)
class Rehearsal:
    """What came of one run with faults."""

    faults: tuple[str, ...]
    nodes: int
    came: int
    """How many of them came: a restart that is not needed cannot be disturbed."""
    finished: bool
    commands: int
    """How often the command had to be given."""
    seconds: float
    restarts: int
    detect_seconds: tuple[float, ...]
    """From each fault until it was noticed; of those that were."""
    recover_seconds: tuple[float, ...]
    """From each failure until the next step was complete."""
    steps_lost: int
    """Steps that had to be done again."""
    samples_lost: int
    samples_repeated: int
    blamed: tuple[tuple[str, tuple[int, ...]], ...]
    """Each failure's fault, and the ranks that it was put down to."""
    useful: float | None
    """Share of the sequences whose forward passes were begun which the undisturbed run needs as well; None when a
    supervisor took the count with it, or it cannot be said how many they were."""
    weights: str
    """`bit-identical` to the undisturbed run's, or by how much they differ at most."""
    difference: float
    """The same as a number; infinite when there are no weights to compare."""
    other_layout: bool
    """Whether any steps were done in another layout, with fewer ranks."""
    allowed_difference: float
    """What such steps may make of the weights by rounding otherwise; 0 when bits must be the same."""
    said: str
    """Why it did not finish; empty when it did."""
    output: str
    """File with what the run and its ranks printed."""
    examined: tuple[Examined, ...] = ()
    """Faults that break nothing, and what the doctor said of them."""

    @property
    def survived(self) -> bool:
        """Whether it ended, by itself where the fault did not end the command, and in the same place where that is
        to be expected."""
        same = self.weights == "bit-identical" or 0 < self.difference <= self.allowed_difference
        exact = same and not self.samples_lost and not self.samples_repeated
        exact = exact or self.goes_elsewhere
        ending = sum(_ends_the_command(fault, self.nodes) for fault in self.faults)
        return self.finished and exact and self.commands <= 1 + ending

    @property
    def goes_elsewhere(self) -> bool:
        """Whether a fault that breaks nothing was to take it to other weights."""
        return any(not one.keeps_weights for one in self.examined)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "examined": [one.as_json() for one in self.examined], "survived": self.survived}


def _ends_the_command(fault: str, nodes: int) -> bool:
    """Whether it has to be given again: on one node when that is dropped, on several when all are asked to stop."""
    kind = fault.partition("@")[0]
    return kind in _END_THE_COMMAND and (nodes == 1 or kind == "sigterm")


def rehearse(
    loaded: LoadedRecipe,
    drills: Sequence[tuple[Fault, ...]],
    folder: Path,
    progress: Progress,
    nodes: int = 1,
    told: Progress = _NOBODY,
) -> list[Rehearsal]:
    """Run the recipe undisturbed, and once for each of `drills`, in folders of `folder`.

    Each run tells `told` how it gets on, in its own process, where standard error is the run's `output`.

    With more than one of `nodes` each drill is a run over so many nodes, all on this machine; the undisturbed run
    is on one. Raises `BadInput` when a fault cannot be, `StokerError` when the undisturbed run fails, and
    `Terminated` when this process is asked to stop, or a run is, by anything but a fault.
    """
    for faults in drills:
        for fault in faults:
            require_possible(fault, loaded.recipe, nodes)
            require_possible_course(fault, loaded.recipe)
    why_not = _why_no_network(loaded.recipe) if nodes > 1 else ""
    if why_not:
        require_no_network(why_not, drills)
        progress.say(f"all nodes share this machine's loopback: {why_not}")
    progress.say(
        f"{len(drills) + 1} whole runs, one after another: one undisturbed, {len(drills)} with faults; "
        f"what they print goes to {folder}/*/{_OUTPUT}"
    )
    _in_a_process(_prepare, loaded, what="preparing the corpus")
    _clear(folder)
    reference = RunDirectory(folder / "undisturbed")
    with progress.task("drill", len(drills) + 1, "runs") as task:
        _announce(progress, task, 1, len(drills) + 1, "undisturbed")
        undisturbed = _rehearse_one(loaded, reference, (), None, told=told)
        if not undisturbed.finished:
            said = f"the run fails without any fault: {undisturbed.said}"
            raise StokerError(f"{said} (its output: {undisturbed.output})")
        task.advance()
        found = []
        for number, faults in enumerate(drills, 1):
            _announce(progress, task, number + 1, len(drills) + 1, " + ".join(map(str, faults)))
            run = RunDirectory(folder / f"drill-{number:03d}")
            found.append(_rehearse_one(loaded, run, faults, reference, nodes, not why_not, told))
            task.advance()
    return found


def _clear(folder: Path) -> None:
    """Delete the runs of earlier drills in `folder`: beside fewer new ones they would pass for theirs."""
    for left in folder.glob("drill-[0-9][0-9][0-9]*"):
        if (left / _OUTPUT).is_file():
            shutil.rmtree(left, ignore_errors=True)


def _announce(progress: Progress, task: Task, number: int, runs: int, what: str) -> None:
    task.describe(what)
    progress.say(f"run {number} of {runs}: {what}")


def every_kind(
    loaded: LoadedRecipe, seed: int, kinds: Sequence[str] = SURVIVED_BY_ITSELF
) -> list[tuple[Fault, ...]]:
    """One drill for each of `kinds`, at drawn steps and ranks; by default those that a run survives by itself."""
    dice, recipe = random.Random(seed), loaded.recipe
    faults: list[tuple[Fault, ...]] = []
    for kind in KINDS:
        if kind not in kinds:
            continue
        step = dice.randint(2, max(2, recipe.training.steps - 1))
        faults.append((parse_fault(f"{kind}@{step}:{dice.randrange(recipe.layout.world_size)}"),))
    return faults


def drawn(
    loaded: LoadedRecipe, kinds: Sequence[str], count: int, per_run: int, seed: int
) -> list[tuple[Fault, ...]]:
    """`count` faults of drawn `kinds`, at drawn ranks and instants, `per_run` of them in each run.

    Kills come at any instant, from start-up to saving and restarting; other kinds in any phase of a step.
    """
    dice = random.Random(seed)
    faults = [_drawn_fault(loaded.recipe, dice, dice.choice(list(kinds)), at % per_run) for at in range(count)]
    return [tuple(faults[at : at + per_run]) for at in range(0, count, per_run)]


def _drawn_fault(recipe: Recipe, dice: random.Random, kind: str, earlier: int) -> Fault:
    """One fault of a run in which there are `earlier` ones."""
    step, rank = dice.randint(1, recipe.training.steps), dice.randrange(recipe.layout.world_size)
    phases = ["data", "forward", "backward", "optimizer", "between phases"]
    if kind not in ("kill", "freeze", "hang", "spin", "error"):
        return parse_fault(f"{kind}@{step}:{rank}")
    if kind != "kill":
        return parse_fault(f"{kind}@{step}:{rank}:phase={as_written(dice.choice(phases))}")
    delay = round(dice.random() ** 3 * 0.5, 4)
    phase = dice.choice([*phases, "checkpoint", "loading"])
    if phase == "loading":  # of the first start, or of a restart that an earlier fault has made necessary
        return parse_fault(f"kill@0:{rank}:attempt={earlier + 1},delay={delay:g}")
    if phase == "checkpoint":
        every = recipe.checkpoint.every
        step = dice.randrange(every, recipe.training.steps + 1, every) if every <= recipe.training.steps else step
        phase = phase if every <= recipe.training.steps else "forward"
    nth = dice.randint(1, recipe.accumulation_at(step)) if phase in ("forward", "backward") else 1
    return parse_fault(f"kill@{step}:{rank}:phase={as_written(phase)},delay={delay:g},nth={nth}")


def _rehearse_one(
    loaded: LoadedRecipe,
    run: RunDirectory,
    faults: tuple[Fault, ...],
    reference: RunDirectory | None,
    nodes: int = 1,
    on_network: bool = False,
    told: Progress = _NOBODY,
) -> Rehearsal:
    shutil.rmtree(run.path, ignore_errors=True)
    loaded = with_own_name(_with_own_checkpoints(loaded, run), faults)
    samples: dict[str, list[int]] = {}
    if any(fault.kind == "bad_data" for fault in faults):
        samples = _in_a_process(spoiled, loaded, run, faults, what="writing bad text")
        loaded = with_own_corpus(loaded, run.path.absolute() / PREPARED)
    if reference is not None:  # the same recipe on the same machine: it need not be planned again
        run.path.mkdir(parents=True, exist_ok=True)
        write_text(run.recipe, dump_recipe(loaded.recipe))
        shutil.copyfile(reference.plan, run.plan)
    began, commands, left, said = time.time(), 0, faults, ""
    finished = False
    # Some faults end the command, which goes on when it is given again.
    while commands <= sum(_ends_the_command(str(fault), nodes) for fault in faults) and not finished:
        commands += 1
        finished, said, done = _command(loaded, run, left, nodes, on_network, told)
        left = tuple(fault for fault in left if str(fault) not in done)
    took = time.time() - began
    found: Rehearsal = _in_a_process(_judge, loaded, run, faults, reference, what="reading the record")
    said = "" if finished else said
    if finished:
        found = replace(found, examined=_in_a_process(examined, run, faults, samples, what="asking the doctor"))
    return replace(found, nodes=nodes, finished=finished, commands=commands, seconds=took, said=said)


def _with_own_checkpoints(loaded: LoadedRecipe, run: RunDirectory) -> LoadedRecipe:
    """Where the recipe names a folder for checkpoints, a new one in it for `run`: no two runs may share one."""
    named = loaded.recipe.checkpoint.folder
    if named is None:
        return loaded
    own = f"{named.rstrip('/')}/{run.path.parent.name}-{run.path.name}"
    abandon(place(own))
    checkpoint = loaded.recipe.checkpoint.model_copy(update={"folder": own})
    return replace(loaded, recipe=loaded.recipe.model_copy(update={"checkpoint": checkpoint}))


def _command(
    loaded: LoadedRecipe,
    run: RunDirectory,
    faults: tuple[Fault, ...],
    nodes: int,
    on_network: bool,
    told: Progress = _NOBODY,
) -> tuple[bool, str, set[str]]:
    """Train as the command does. Whether it finished, why not, and which faults have come by then."""
    before = _in_a_process(_faults_done, run, what="reading the record")
    try:
        if nodes > 1:
            network = DrillNetwork() if on_network else None
            with closing(network) if network is not None else nullcontext():
                run_on_nodes(nodes, partial(_train, loaded, run, faults, told), faults, network)
        else:
            _in_a_process(_train, loaded, run, faults, told, what="the command")
        finished, said = True, ""
    except Terminated:  # it is these drills that were asked to stop
        raise
    except StokerError as error:
        finished, said = False, str(error)
        if isinstance(error, Stopped) and not any(fault.kind == "sigterm" for fault in faults):
            raise Terminated(f"the run in {run.path} was asked to stop from outside: {error}") from None
    return finished, said, _in_a_process(_faults_done, run, what="reading the record") - before


def _why_no_network(recipe: Recipe) -> str:
    folder = recipe.checkpoint.folder
    if folder is not None and not isinstance(place(folder), Path):
        return f"on a network of their own they could not reach {folder} (checkpoint.folder)"
    return why_not()


def _in_a_process(function: Callable[..., Any], *arguments: Any, what: str) -> Any:
    return Forked(what, function, *arguments).result()


def _prepare(loaded: LoadedRecipe) -> None:
    prepare(loaded, Silent())


def _train(loaded: LoadedRecipe, run: RunDirectory, faults: tuple[Fault, ...], told: Progress) -> None:
    _print_to(run.path / _OUTPUT)
    with standby(forked=True) as ready:
        train(loaded, run, told, ready, faults)


def _print_to(file: Path) -> None:
    """Have this process, and those that it starts, print into `file` from now on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(descriptor, number)
    os.close(descriptor)


def _faults_done(run: RunDirectory) -> set[str]:
    events = Record(run.record).events(SUPERVISOR)
    return {event["detail"]["fault"] for event in events if event["event"] == "fault"}


def _judge(
    loaded: LoadedRecipe, run: RunDirectory, faults: tuple[Fault, ...], reference: RunDirectory | None
) -> Rehearsal:
    """What the record and the weights say."""
    record = Record(run.record)
    events = record.events(SUPERVISOR)
    failures = [event for event in events if event["event"] in ("failure", "supervisor_died", "gave_up")]
    noticed = [*failures, *(event for event in record.events() if event["event"] in _NOTICED_BY_RANKS)]
    injected = [(event["time"], event["detail"]["fault"]) for event in events if event["event"] == "fault"]
    steps = record.steps(["time"], all_attempts=True)
    times = steps["time"].to_list()
    detect, blamed = [], []
    for failure in sorted(noticed, key=lambda event: event["time"]):
        before = [one for one in injected if one[0] <= failure["time"]]
        if before:
            moment, fault = max(before)
            if failure["event"] != "silent_corruption":  # by then it has been noticed, and is put down to a rank
                detect.append(failure["time"] - moment)
            if failure["event"] not in ("replicas_differ", "save_failed"):  # which put it down to nobody
                blamed.append((fault, tuple(failure["detail"].get("ranks", ()))))
    recover = []
    for failure in failures:
        after = [moment for moment in times if moment > failure["time"]]
        if after:
            recover.append(min(after) - failure["time"])
    samples = samples_seen(record)
    weights, difference = ("", 0.0) if reference is None else _compared(_saved(run), _saved(reference))
    other_layout = any(event["event"] in _OTHER_LAYOUT for event in events)
    return Rehearsal(
        faults=tuple(map(str, faults)),
        nodes=1,
        came=len(injected),
        finished=False,
        commands=0,
        seconds=0.0,
        restarts=len(record.attempts()) - 1,
        detect_seconds=tuple(detect),
        recover_seconds=tuple(recover),
        steps_lost=_steps_lost(failures, record),
        samples_lost=_how_many(samples.lost),
        samples_repeated=_how_many(samples.repeated),
        blamed=tuple(blamed),
        useful=None if reference is None else _useful(record, Record(reference.record)),
        weights=weights,
        difference=difference,
        other_layout=other_layout,
        allowed_difference=_allowed_difference(loaded.recipe) if other_layout else 0.0,
        said="",
        output=str(run.path / _OUTPUT),
    )


def _steps_lost(failures: Sequence[dict[str, Any]], record: Record) -> int:
    """Steps that were complete when a rank failed, and that the next attempt had to do again."""
    began = {
        event["attempt"]: event["step"] for event in record.events() if event["event"] in ("started", "resumed")
    }
    lost = 0
    for failure in failures:
        later = [attempt for attempt in began if attempt > failure["attempt"]]
        if failure.get("step") is not None and later:
            lost += max(0, failure["step"] - began[min(later)])
    return lost


def _useful(record: Record, undisturbed: Record) -> float | None:
    needed, begun = _sequences(undisturbed), _sequences(record)
    # What a lost node did last is not seen: more than all of it is of use to nobody.
    return needed / begun if needed and begun and needed <= begun else None


def _sequences(record: Record) -> int | None:
    """Sequences whose forward passes all ranks began in all attempts; None when some attempt was not counted.

    Layouts with fewer data-parallel ranks have as many ranks for each sequence, so that these numbers compare.
    """
    ended = [event["detail"]["sequences"] for event in record.events(SUPERVISOR) if event["event"] == "ranks_ended"]
    return sum(ended) if len(ended) == len(record.attempts()) and None not in ended else None


def _allowed_difference(recipe: Recipe) -> float:
    """What another layout may make of the weights."""
    if recipe.training.deterministic == "across_layouts":
        return 0.0
    return _ROUNDING.get(recipe.training.precision, _COARSE_ROUNDING)


def _how_many(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _saved(run: RunDirectory) -> Place:
    return checkpoints_of(run, load_recipe(run.recipe).recipe.checkpoint)


def _compared(run: Place, reference: Place) -> tuple[str, float]:
    """In words, and by how much the weights differ at most, of the largest of their tensor."""
    ours, theirs = latest(run), latest(reference)
    if ours is None or theirs is None or ours.name != theirs.name:
        return (f"none of {theirs.name}" if theirs is not None else "none"), float("inf")
    found, expected = read_weights(ours), read_weights(theirs)
    worst = 0.0
    identical = True
    for name, tensor in expected.items():
        identical &= torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8))
        largest = max(float(tensor.double().abs().max()), 1e-300)
        gap = float((found[name].double() - tensor.double()).abs().max()) / largest
        worst = max(worst, gap if gap == gap else float("inf"))
    return ("bit-identical" if identical else f"differ by {worst:.1e} of the largest"), worst
