"""Rehearses faults: the same run undisturbed and with each fault, and what the fault cost.

Every run has a process of its own, forked from this one, which computes nothing itself.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stoker.checkpoint import latest, read_weights
from stoker.checkpoint.place import place
from stoker.data.prepare import prepare
from stoker.errors import StokerError, Terminated
from stoker.progress import Progress, Silent
from stoker.recipe import Recipe
from stoker.recipe.loading import LoadedRecipe
from stoker.record import SUPERVISOR, Record, samples_seen
from stoker.recovery.drill_network import DrillNetwork, why_not
from stoker.recovery.drill_nodes import run_on_nodes
from stoker.recovery.faults import KINDS, Fault, parse_fault, require_no_network, require_possible
from stoker.recovery.forked import Forked, Stopped
from stoker.recovery.standby import standby
from stoker.recovery.supervised import train
from stoker.run_directory import RunDirectory

_END_THE_COMMAND = ("sigterm", "kill_command", "drop_node")
_NOTICED_BY_RANKS = ("replayed", "replicas_differ", "silent_corruption", "save_failed", "slow_rank")
_SURVIVED_BY_ITSELF = (
    *("kill", "error", "freeze", "hang", "spin", "slow", "memory", "disk", "corrupt_checkpoint", "nan"),
    *("network", "kill_supervisor"),
)


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
    """Share of the forward passes that were begun which the undisturbed run needs as well; None when a supervisor
    took the count with it."""
    weights: str
    """`bit-identical` to the undisturbed run's, or by how much they differ at most."""
    said: str
    """Why it did not finish; empty when it did."""

    @property
    def survived(self) -> bool:
        """Whether it ended in the same place, by itself where the fault did not end the command."""
        exact = self.weights == "bit-identical" and not self.samples_lost and not self.samples_repeated
        ending = sum(_ends_the_command(fault, self.nodes) for fault in self.faults)
        return self.finished and exact and self.commands <= 1 + ending

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "survived": self.survived}


def _ends_the_command(fault: str, nodes: int) -> bool:
    """Whether it has to be given again: on one node when that is dropped, on several when all are asked to stop."""
    kind = fault.partition("@")[0]
    return kind in _END_THE_COMMAND and (nodes == 1 or kind == "sigterm")


def rehearse(
    loaded: LoadedRecipe, drills: Sequence[tuple[Fault, ...]], folder: Path, progress: Progress, nodes: int = 1
) -> list[Rehearsal]:
    """Run the recipe undisturbed, and once for each of `drills`, in folders of `folder`.

    With more than one of `nodes` each drill is a run over so many nodes, all on this machine; the undisturbed run
    is on one. Raises `BadInput` when a fault cannot be, `StokerError` when the undisturbed run fails, and
    `Terminated` when this process is asked to stop, or a run is, by anything but a fault.
    """
    for faults in drills:
        for fault in faults:
            require_possible(fault, loaded.recipe, nodes)
    why_not = _why_no_network(loaded.recipe) if nodes > 1 else ""
    if why_not:
        require_no_network(why_not, drills)
        progress.say(f"all nodes share this machine's loopback: {why_not}")
    _in_a_process(_prepare, loaded, what="preparing the corpus")
    reference = RunDirectory(folder / "undisturbed")
    with progress.task("drill", len(drills) + 1, "runs") as task:
        task.describe("undisturbed")
        undisturbed = _rehearse_one(loaded, reference, (), None)
        if not undisturbed.finished:
            raise StokerError(f"the run fails without any fault: {undisturbed.said}")
        task.advance()
        found = []
        for number, faults in enumerate(drills, 1):
            task.describe(" + ".join(map(str, faults)))
            run = RunDirectory(folder / f"drill-{number:03d}")
            found.append(_rehearse_one(loaded, run, faults, reference, nodes, not why_not))
            task.advance()
    return found


def every_kind(loaded: LoadedRecipe, seed: int) -> list[tuple[Fault, ...]]:
    """One drill for each kind that a run survives by itself, at drawn steps and ranks."""
    dice, recipe = random.Random(seed), loaded.recipe
    faults: list[tuple[Fault, ...]] = []
    for kind in KINDS:
        if kind not in _SURVIVED_BY_ITSELF:
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
        return parse_fault(f"{kind}@{step}:{rank}:phase={dice.choice(phases).replace(' ', '_')}")
    delay = round(dice.random() ** 3 * 0.5, 4)
    phase = dice.choice([*phases, "checkpoint", "loading"])
    if phase == "loading":  # of the first start, or of a restart that an earlier fault has made necessary
        return parse_fault(f"kill@0:{rank}:attempt={earlier + 1},delay={delay:g}")
    if phase == "checkpoint":
        every = recipe.checkpoint.every
        step = dice.randrange(every, recipe.training.steps + 1, every) if every <= recipe.training.steps else step
        phase = phase if every <= recipe.training.steps else "forward"
    nth = dice.randint(1, recipe.accumulation_at(step)) if phase in ("forward", "backward") else 1
    return parse_fault(f"kill@{step}:{rank}:phase={phase.replace(' ', '_')},delay={delay:g},nth={nth}")


def _rehearse_one(
    loaded: LoadedRecipe,
    run: RunDirectory,
    faults: tuple[Fault, ...],
    reference: RunDirectory | None,
    nodes: int = 1,
    on_network: bool = False,
) -> Rehearsal:
    shutil.rmtree(run.path, ignore_errors=True)
    if reference is not None:  # the same recipe on the same machine: it need not be planned again
        run.path.mkdir(parents=True)
        for ours, theirs in ((run.recipe, reference.recipe), (run.plan, reference.plan)):
            shutil.copyfile(theirs, ours)
    began, commands, left, said = time.time(), 0, faults, ""
    finished = False
    # Some faults end the command, which goes on when it is given again.
    while commands <= sum(_ends_the_command(str(fault), nodes) for fault in faults) and not finished:
        commands += 1
        finished, said, done = _command(loaded, run, left, nodes, on_network)
        left = tuple(fault for fault in left if str(fault) not in done)
    took = time.time() - began
    found: Rehearsal = _in_a_process(_judge, loaded, run, faults, reference, what="reading the record")
    said = "" if finished else said
    return replace(found, nodes=nodes, finished=finished, commands=commands, seconds=took, said=said)


def _command(
    loaded: LoadedRecipe, run: RunDirectory, faults: tuple[Fault, ...], nodes: int, on_network: bool
) -> tuple[bool, str, set[str]]:
    """Train as the command does. Whether it finished, why not, and which faults have come by then."""
    before = _in_a_process(_faults_done, run, what="reading the record")
    try:
        if nodes > 1:
            network = DrillNetwork() if on_network else None
            with closing(network) if network is not None else nullcontext():
                run_on_nodes(nodes, partial(_train, loaded, run, faults), faults, network)
        else:
            _in_a_process(_train, loaded, run, faults, what="the command")
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


def _train(loaded: LoadedRecipe, run: RunDirectory, faults: tuple[Fault, ...]) -> None:
    with standby(forked=True) as ready:
        train(loaded, run, Silent(), ready, faults)


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
        weights="" if reference is None else _compared(run, reference),
        said="",
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
    needed, begun = _forwards(undisturbed), _forwards(record)
    return needed / begun if needed and begun else None


def _forwards(record: Record) -> int | None:
    """Forward passes that all ranks began in all attempts; None when some attempt was not counted."""
    ended = [event["detail"]["forwards"] for event in record.events(SUPERVISOR) if event["event"] == "ranks_ended"]
    return sum(ended) if len(ended) == len(record.attempts()) else None


def _how_many(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _compared(run: RunDirectory, reference: RunDirectory) -> str:
    ours, theirs = latest(run.checkpoints), latest(reference.checkpoints)
    if ours is None or theirs is None or ours.name != theirs.name:
        return f"none of {theirs.name}" if theirs is not None else "none"
    found, expected = read_weights(ours), read_weights(theirs)
    worst = 0.0
    identical = True
    for name, tensor in expected.items():
        identical &= torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8))
        largest = max(float(tensor.double().abs().max()), 1e-300)
        worst = max(worst, float((found[name].double() - tensor.double()).abs().max()) / largest)
    return "bit-identical" if identical else f"differ by {worst:.1e} of the largest"
