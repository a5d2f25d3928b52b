"""Faults that are put into a run on purpose: what there is, how it is written, and how a rank does it to itself.

`kind@step[:rank][:option=value,…]`, for instance `kill@12:1:phase=backward`. Step 0 is the start-up, before
anything is trained; `attempt=2` means the first restart; `nth=3` the third time that the phase begins in the step,
as forward and backward do once for each micro-batch. This is the only door by which faults come in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from stoker.errors import BadInput
from stoker.plural import first_of
from stoker.recipe import Recipe
from stoker.recovery.dynamics.kinds import DYNAMICS, cause_of
from stoker.recovery.kind import Kind
from stoker.training.marks import PHASES

_SPELLING = re.compile(r"(?P<kind>[a-z_]+)@(?P<step>\d+)(?::(?P<rank>\d+))?(?::(?P<options>[a-z_]+=.*))?")


KINDS: dict[str, Kind] = {
    "kill": Kind("the rank's process is killed (SIGKILL), `delay` seconds later", options={"delay": 0.0}),
    "error": Kind("the rank raises an exception that nothing expects"),
    "freeze": Kind("the rank's process is stopped (SIGSTOP) and never continues by itself"),
    "hang": Kind("the rank sleeps for ever in its own code"),
    "spin": Kind("the rank computes for ever without getting anywhere"),
    "memory": Kind("the rank gets no more memory than it has, so that its next request fails"),
    "disk": Kind(
        "the rank can write no file for `steps` steps, as on a full disk",
        phase="between phases",
        options={"steps": 5.0},
    ),
    "corrupt_checkpoint": Kind("a byte of the newest checkpoint changes, and the rank is killed"),
    "nan": Kind("a gradient of the rank becomes NaN", phase="communication"),
    "bitflip_gradient": Kind(
        "one bit of one gradient of the rank changes before the update", phase="optimizer", options={"bit": 30.0}
    ),
    "bitflip_local_gradient": Kind(
        "one bit of one gradient of the rank changes before it is summed with those of other ranks, every time for "
        "`steps` steps",
        phase="data",
        options={"bit": 20.0, "steps": 1.0},
    ),
    "bitflip_weight": Kind("one bit of one weight of the rank changes", phase="data", options={"bit": 30.0}),
    "network": Kind("all connections of the rank to others break off"),
    "delay": Kind(
        "every packet to and from the rank's node takes `ms` milliseconds longer, and up to `jitter` more, for "
        "`steps` steps",
        options={"ms": 50.0, "jitter": 0.0, "steps": 10.0},
    ),
    "bandwidth": Kind(
        "the rank's node sends and receives at most `mbit` Mbit a second, for `steps` steps",
        options={"mbit": 100.0, "steps": 10.0},
    ),
    "partition": Kind(
        "the rank's node and the others do not reach each other for `seconds`", options={"seconds": 15.0}
    ),
    "sigterm": Kind("the command gets SIGTERM, as from a scheduler that wants the machine back"),
    "kill_command": Kind("the command itself is killed (SIGKILL), and given once more"),
    "drop_node": Kind(
        "the rank's whole node goes dark: its processes and what is in its memory; its command is given again "
        "`back` seconds later, never when that is 0",
        options={"back": 0.0},
    ),
    "kill_supervisor": Kind("the process that watches over the ranks is killed (SIGKILL)"),
    **DYNAMICS,
}
BETWEEN_NODES = ("delay", "bandwidth", "partition")
"""Kinds that need a network between nodes."""
SURVIVED_BY_ITSELF = (
    *("kill", "error", "freeze", "hang", "spin", "slow_rank", "memory", "disk", "corrupt_checkpoint", "nan"),
    *("network", "kill_supervisor"),
)
"""Kinds after which a run on one node ends in the same place without a person: what is drilled by default."""
_COUNTS = ("attempt", "nth", "steps")
_HIGHEST_BIT = 31
AFTER_STEP = ("evaluation", "checkpoint")
"""Phases that belong to the step that has just been completed; all others to the one under way."""


@dataclass(frozen=True)
class Fault:
    """One fault, at one place of a run."""

    kind: str
    step: int
    rank: int = 0
    phase: str = "forward"
    options: tuple[tuple[str, float], ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    def option(self, name: str) -> float:
        """A number that was given, or its default."""
        return {**KINDS[self.kind].options, **dict(self.options)}[name]

    def word(self, name: str) -> str:
        """A word that was given, or its default; empty where there is none."""
        return dict(self.words).get(name) or next(iter(KINDS[self.kind].words[name]), "")

    @property
    def goes_on(self) -> bool:
        """Whether it breaks nothing."""
        return KINDS[self.kind].goes_on

    @property
    def cause(self) -> str:
        """What `stoker diagnose` should say of it, where the run goes on."""
        return cause_of(self.kind, self.word("what") if "what" in KINDS[self.kind].words else "")

    def concerns(self, rank: int) -> bool:
        """Whether it happens on this rank."""
        return KINDS[self.kind].everywhere or rank == self.rank

    def covers(self, step: int) -> bool:
        """Whether it lasts at `step`, where it lasts for `steps` steps; 0 of them are all to the end."""
        steps = self.option("steps")
        return step >= self.step and (not steps or step < self.step + steps)

    @property
    def attempt(self) -> int | None:
        """In which start of the ranks alone it comes; None in any."""
        given = dict(self.options).get("attempt")
        return None if given is None else int(given)

    @property
    def nth(self) -> int:
        """At which beginning of its phase in the step it comes; later ones count as well."""
        return int(dict(self.options).get("nth", 1))

    def is_due(self, completed: int, phase: str, attempt: int, times: int = 1) -> bool:
        """Whether it comes now: `phase` begins, for the `times`-th time since the rank completed so many steps."""
        if self.attempt not in (None, attempt) or times < self.nth:
            return False
        if self.step == 0:
            return phase == self.phase and (completed == 0 or self.attempt is not None)
        return phase == self.phase and completed == (self.step if phase in AFTER_STEP else self.step - 1)

    def __str__(self) -> str:
        usual = KINDS[self.kind].phase if self.step else "loading"
        options = [f"phase={as_written(self.phase)}"] if self.phase != usual else []
        options += [f"{name}={value:g}" for name, value in self.options]
        options += [f"{name}={word}" for name, word in self.words]
        return f"{self.kind}@{self.step}:{self.rank}" + (f":{','.join(options)}" if options else "")


def as_written(phase: str) -> str:
    """A phase's name as it is written in a fault, and shown: `between_phases`."""
    return phase.replace(" ", "_")


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes. Raises `BadInput` saying what cannot be."""
    match = _SPELLING.fullmatch(text)
    if match is None:
        raise BadInput(
            f"--fault {text}: expected kind@step[:rank][:option=value,…], such as kill@12:1:phase=backward"
        )
    kind = match["kind"]
    require_known(kind, f"--fault {text}")
    step, described = int(match["step"]), KINDS[kind]
    if described.goes_on and step == 0:
        raise BadInput(f"--fault {text}: {kind} comes in a step, and steps are counted from 1")
    phase = described.phase if step else "loading"
    options: list[tuple[str, float]] = []
    words: list[tuple[str, str]] = []
    given = set[str]()
    for part in (match["options"] or "").split(",") if match["options"] else []:
        name, _, value = part.partition("=")
        if name in given:
            raise BadInput(f"--fault {text}: {name} is given twice")
        given.add(name)
        if name == "phase" and not described.goes_on:
            phase = _phase(text, value)
        elif name in described.words:
            words.append((name, _word(text, described, name, value)))
        else:
            options.append((name, _number(text, kind, name, value)))
    return Fault(kind, step, int(match["rank"] or 0), phase, tuple(options), tuple(words))


def require_known(kind: str, given: str) -> None:
    """Raise `BadInput` when there is no such kind; `given` is what was typed."""
    if kind not in KINDS:
        begins = kind.partition("_")[0]
        alike = [name for name in KINDS if len(begins) > 2 and begins in name]
        near = alike or get_close_matches(kind, KINDS, 3)
        hint = f"did you mean {first_of(near, 3, ' or ')}? " if near else ""
        raise BadInput(f"{given}: there is no fault {kind!r}; {hint}`stoker drill --list` says what there is")


def _phase(text: str, value: str) -> str:
    name = value.replace("_", " ")
    if name not in PHASES:
        raise BadInput(
            f"--fault {text}: there is no phase {value!r}; there are {', '.join(map(as_written, PHASES))}"
        )
    return name


def _word(text: str, described: Kind, name: str, value: str) -> str:
    allowed = described.words[name]
    if not value or (allowed and value not in allowed):
        raise BadInput(f"--fault {text}: {name} must be {' or '.join(allowed) or 'a name'}, not {value!r}")
    return value


def _number(text: str, kind: str, name: str, value: str) -> float:
    described = KINDS[kind]
    known = ("attempt", *(() if described.goes_on else ("nth",)), *described.options)
    if name not in known:
        takes = (*(() if described.goes_on else ("phase",)), *known, *described.words)
        raise BadInput(f"--fault {text}: {kind} has no option {name!r}; it takes {', '.join(takes)}")
    try:
        number = float(value)
    except ValueError:
        raise BadInput(f"--fault {text}: {name} must be a number, not {value!r}") from None
    if not 0 <= number < 1e9:
        raise BadInput(f"--fault {text}: {name} must be a number from 0 on, not {value}")
    if name == "steps" and not number and described.options[name] == 0:
        return number
    if name == "strength" and not number:
        raise BadInput(f"--fault {text}: strength must be more than 0: without any there is no fault")
    if name in _COUNTS and (number < 1 or number != int(number)):
        raise BadInput(f"--fault {text}: {name} must be a whole number from 1 on, not {value}")
    if name == "bit" and (number > _HIGHEST_BIT or number != int(number)):
        raise BadInput(f"--fault {text}: bit must be a whole number from 0 to {_HIGHEST_BIT}, not {value}")
    return number


def require_no_network(why_not: str, drills: Sequence[Sequence[Fault]]) -> None:
    """Raise `BadInput` when a fault needs the network between nodes that there cannot be."""
    for fault in (fault for faults in drills for fault in faults):
        if fault.kind in BETWEEN_NODES:
            raise BadInput(f"--fault {fault}: there can be no network between the nodes here: {why_not}")


def require_possible(fault: Fault, recipe: Recipe, nodes: int) -> None:
    """Raise `BadInput` when a run over so many nodes has no such step or rank, or no network."""
    if fault.kind in BETWEEN_NODES and nodes == 1:
        raise BadInput(f"--fault {fault}: on one node there is no network between nodes; give --nodes 2 or more")
    for name in ("mbit", "steps"):
        if fault.kind in BETWEEN_NODES and name in KINDS[fault.kind].options and not fault.option(name):
            raise BadInput(f"--fault {fault}: {name} must be more than 0")
    steps, ranks = recipe.training.steps, recipe.layout.world_size
    if fault.step > steps:
        raise BadInput(f"--fault {fault}: the run has {steps} steps (training.steps), so none is {fault.step}")
    if fault.rank >= ranks:
        raise BadInput(
            f"--fault {fault}: the run has {ranks} ranks (layout), numbered from 0, so none is {fault.rank}"
        )
    if fault.phase in AFTER_STEP and fault.step:
        every = recipe.checkpoint.every if fault.phase == "checkpoint" else recipe.evaluation.every
        if fault.step != steps and (not every or fault.step % every):
            raise BadInput(
                f"--fault {fault}: there is no {fault.phase} after step {fault.step}, only every {every} steps"
                if every
                else f"--fault {fault}: there is an {fault.phase} only after the last step, {steps}"
            )
