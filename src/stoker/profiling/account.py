"""Where the time of one step went on one rank: each nanosecond in one category."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stoker.layout import Layout
from stoker.profiling.collectives import MESSAGES, dimension_of
from stoker.profiling.families import ATTENTION, family_of
from stoker.profiling.intervals import NONE, Intervals, nest, of_pairs, partition
from stoker.profiling.trace import Operator, Range, RankTrace, Transfer

COMPUTE, EXPOSED, BUBBLE, HOST = "compute", "exposed_communication", "pipeline_bubble", "host"
OWN_PHASES = ("data", "optimizer", "checkpoint", "evaluation")
"""Phases whose whole time, but for what is waited for in them, is a category."""
CATEGORIES = (COMPUTE, EXPOSED, BUBBLE, *OWN_PHASES, HOST)
"""Each moment of a step is in one of them. `host`: nothing is computed, and nobody waited for."""
_PIPELINE_WAIT = "stages"


class Work(NamedTuple):
    """A stretch of computation."""

    start: int
    end: int
    family: str
    phase: str
    repeated: bool
    """In a backward pass something of the forward pass, once more."""
    operator: Operator | None


@dataclass(frozen=True)
class StepAccount:
    """One step on one rank, in nanoseconds."""

    step: int
    window: tuple[int, int]
    categories: dict[str, int]
    """Every one of `CATEGORIES`; together the whole step."""
    compute: dict[str, int]
    """What `compute` is made of, by family."""
    exposed: dict[tuple[str, str], int]
    """What exposed communication is made of, by kind and dimension; `waiting` where nothing was on its way."""
    communication: int
    """Time in which something was on its way, or waited for."""
    overlapped: int
    """The part of it behind which something was computed."""
    repeated: int
    """The part of `compute` that was computed a second time."""
    exposed_when: Intervals = field(repr=False, default=NONE)

    @property
    def wall(self) -> int:
        """How long the step took."""
        return self.window[1] - self.window[0]


def account_of(trace: RankTrace, layout: Layout) -> list[StepAccount]:
    """The steps of `trace`, in order."""
    work = work_of(trace)
    return [_account(trace, layout, number, trace.steps[number], work) for number in sorted(trace.steps)]


def work_of(trace: RankTrace) -> list[Work]:
    """Everything that was computed: by the accelerator where there is one, otherwise by the operators."""
    phases, segments = _Phases(trace.phases), list[Work]()
    of_operator: dict[int, tuple[Operator, tuple[str, str, bool]]] = {}
    threads: dict[int, list[Operator]] = defaultdict(list)
    for operator in trace.operators:
        threads[operator.thread].append(operator)
    transferring = {transfer.place[1] for transfer in trace.transfers if transfer.kind not in MESSAGES}
    for thread, operators in threads.items():
        if thread in transferring and not trace.on_device:
            continue  # what a collective does to its own tensors
        # Of two that begin and end together the one that was called first is outside.
        operators.sort(key=lambda one: (one.start, -one.end, one.number, one.name))
        nested = nest([one.start for one in operators], [one.end for one in operators])
        kinds = _kinds(operators, nested.parents.tolist(), phases)
        if trace.on_device:
            of_operator |= {one.number: (one, kind) for one, kind in zip(operators, kinds, strict=True)}
            continue
        owners = zip(nested.starts.tolist(), nested.ends.tolist(), nested.owners.tolist(), strict=True)
        segments += [
            Work(start, end, kinds[owner][0], kinds[owner][1], kinds[owner][2], operators[owner])
            for start, end, owner in owners
            if operators[owner].computes
        ]
    for kernel in trace.kernels:
        launched = of_operator.get(kernel.operator)
        if launched is None:
            segments.append(Work(kernel.start, kernel.end, family_of(kernel.name), "", False, None))
            continue
        operator, (family, phase, repeated) = launched
        family = family if family not in ("other", "elementwise") else family_of(kernel.name)
        family = "elementwise" if family == "other" and operator.name.startswith("aten::") else family
        segments.append(Work(kernel.start, kernel.end, family, phase, repeated, operator))
    return segments


class _Phases:
    """Finds the phase of a moment. Phases do not lie in each other."""

    def __init__(self, phases: Sequence[Range]) -> None:
        self._phases = sorted(phases, key=lambda phase: phase.start)
        self._starts = [phase.start for phase in self._phases]

    def at(self, moment: int) -> str:
        place = bisect_right(self._starts, moment) - 1
        return self._phases[place].name if place >= 0 and moment < self._phases[place].end else ""


def _kinds(operators: Sequence[Operator], parents: Sequence[int], phases: _Phases) -> list[tuple[str, str, bool]]:
    """Family, phase and whether it is done again, of each operator: what is inside an attention is attention."""
    found = [("", "", False)] * len(operators)
    # Outer ones first: they begin earlier, or end later.
    for index in sorted(range(len(operators)), key=lambda i: (operators[i].start, -operators[i].end)):
        operator = operators[index]
        family, phase = family_of(operator.name), phases.at(operator.start)
        again = phase == "backward" and operator.kept_for_backward and not operator.name.startswith("autograd::")
        if parents[index] >= 0:
            above = found[parents[index]]
            family = ATTENTION if above[0] == ATTENTION else family
            again = again or above[2]
        found[index] = (family, phase, again)
    return found


def _account(trace: RankTrace, layout: Layout, number: int, step: Range, work: Sequence[Work]) -> StepAccount:
    window = (step.start, step.end)
    whole = of_pairs([window])
    here = [one for one in work if one.end > window[0] and one.start < window[1]]
    sent = [one for one in trace.transfers if one.end > window[0] and one.start < window[1]]
    computing = of_pairs((one.start, one.end) for one in here) & whole
    waiting, bubble = _waiting(trace, layout, sent)
    own = {name: of_pairs((p.start, p.end) for p in trace.phases if p.name == name) for name in OWN_PHASES}
    # On an accelerator what a phase launched may run after its end.
    working = [(name, of_pairs((w.start, w.end) for w in here if w.phase == name)) for name in OWN_PHASES]
    layers = [*working, (COMPUTE, computing), (BUBBLE, bubble), (EXPOSED, waiting), *own.items()]
    parts = partition(window, layers, HOST)
    communicating = (of_pairs((one.start, one.end) for one in sent) | waiting | bubble) & whole
    families = _by_family(here, parts[COMPUTE])
    again = of_pairs((one.start, one.end) for one in here if one.repeated) & parts[COMPUTE]
    return StepAccount(
        step=number,
        window=window,
        categories={name: parts[name].total for name in CATEGORIES},
        compute=families,
        exposed=_by_kind(sent, layout, parts[EXPOSED]),
        communication=communicating.total,
        overlapped=(communicating & computing).total,
        repeated=again.total,
        exposed_when=parts[EXPOSED] | parts[BUBBLE],
    )


def _waiting(trace: RankTrace, layout: Layout, sent: Sequence[Transfer]) -> tuple[Intervals, Intervals]:
    """When a rank does nothing but wait for others, if it does not compute; and for others of its pipeline.

    An accelerator waits inside the kernels of its collectives. On a processor collectives go on in the background,
    and a rank waits where it says so.
    """
    if trace.on_device:
        piped = [one for one in sent if dimension_of(layout, one) == "pp"]
        return of_pairs((one.start, one.end) for one in sent), of_pairs((one.start, one.end) for one in piped)
    spans = [(wait.start, wait.end) for wait in trace.waits]
    spans += [(phase.start, phase.end) for phase in trace.phases if phase.name == "communication"]
    spans += [(one.start, one.end) for one in trace.operators if one.communicates]
    piped_spans = of_pairs((wait.start, wait.end) for wait in trace.waits if wait.name == _PIPELINE_WAIT)
    return of_pairs(spans), piped_spans


def _by_family(work: Sequence[Work], when: Intervals) -> dict[str, int]:
    """The time of each family, and no moment twice where several threads or streams compute at once."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in work:
        spans[one.family].append((one.start, one.end))
    return _divided(when, {name: of_pairs(pairs) for name, pairs in sorted(spans.items())}, "other")


def _by_kind(sent: Sequence[Transfer], layout: Layout, when: Intervals) -> dict[tuple[str, str], int]:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for one in sent:
        spans[one.kind, dimension_of(layout, one)].append((one.start, one.end))
    named = {"\n".join(key): of_pairs(pairs) for key, pairs in sorted(spans.items())}
    found = _divided(when, named, "waiting\n")
    return {(key.partition("\n")[0], key.partition("\n")[2]): total for key, total in found.items()}


def _divided(when: Intervals, parts: dict[str, Intervals], rest: str) -> dict[str, int]:
    """How much of `when` is in each part, the first where several are, and in none."""
    found, left = {}, when
    for name, intervals in parts.items():
        found[name] = (left & intervals).total
        left = left - intervals
    found[rest] = found.get(rest, 0) + left.total
    return {name: total for name, total in found.items() if total}
