"""What the doctor said of a run with faults that break nothing, beside what was put in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stoker.data.prepare import prepare
from stoker.diagnosis import Finding, diagnose
from stoker.progress import Silent
from stoker.recipe.loading import LoadedRecipe
from stoker.recovery.dynamics.kinds import DYNAMICS
from stoker.recovery.dynamics.spoiled_corpus import spoil_corpus
from stoker.recovery.faults import Fault
from stoker.run_directory import RunDirectory

_NEAR = 3
"""Steps by which a finding may miss the step."""
_WINDOW = 32
"""Rows that a detector looks at together: a beginning that it places is no surer than that."""
_LONGEST_NAME = 128
"""Characters of a recipe's name."""
PREPARED = "prepared"
"""The folder of a run's own corpora, in its folder."""


@dataclass(frozen=True)
class Said:
    """One of the doctor's findings, in short."""

    kind: str
    cause: str
    severity: str
    first_step: int | None
    last_step: int | None
    ranks: tuple[int, ...]
    sources: tuple[str, ...]
    documents: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Examined:
    """A fault that was put in, and what the doctor said of the run."""

    fault: str
    cause: str
    """What was put in."""
    step: int
    rank: int | None
    """None where it was put into all."""
    samples: tuple[int, ...]
    """Numbers of the samples that were made bad."""
    keeps_weights: bool
    """Whether the run was to end in the same weights for all that."""
    said: Said | None
    """The finding that names the cause, or else the first that is more than a note; None when there is none. Of
    several that name it, one of the fault's steps and rank."""

    @property
    def named(self) -> bool:
        """Whether the doctor named the cause, and not of another rank or of other steps."""
        return (
            self.said is not None and self.said.cause == self.cause and _is_about(self.said, self.step, self.rank)
        )

    @property
    def elsewhere(self) -> bool:
        """Whether the doctor named the cause, but of another rank or of steps that the fault had no part in."""
        return self.said is not None and self.said.cause == self.cause and not self.named

    @property
    def in_time(self) -> bool:
        """Whether the finding begins where the fault did, to within three steps."""
        first = None if self.said is None else self.said.first_step
        return first is not None and abs(first - self.step) <= _NEAR

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "named": self.named, "elsewhere": self.elsewhere, "in_time": self.in_time}


def examined(
    run: RunDirectory, faults: Sequence[Fault], samples: Mapping[str, Sequence[int]]
) -> tuple[Examined, ...]:
    """What `stoker diagnose` says of the run, for each of `faults` that goes on; `samples` are bad, by fault."""
    own = [fault for fault in faults if fault.goes_on]
    findings = diagnose(run).findings if own else ()
    return tuple(
        Examined(
            fault=str(fault),
            cause=fault.cause,
            step=fault.step,
            rank=_rank(fault),
            samples=tuple(samples.get(str(fault), ())),
            keeps_weights=DYNAMICS[fault.kind].keeps_weights,
            said=_about(fault, findings),
        )
        for fault in own
    )


def _rank(fault: Fault) -> int | None:
    return None if DYNAMICS[fault.kind].everywhere else fault.rank


def _about(fault: Fault, findings: Sequence[Finding]) -> Said | None:
    named = [one for one in findings if one.cause == fault.cause]
    here = [one for one in named if _is_about(one, fault.step, _rank(fault))]
    grave = [one for one in findings if one.severity != "note"]
    for one in [*here, *named, *grave]:
        return Said(
            kind=one.kind,
            cause=one.cause,
            severity=one.severity,
            first_step=one.first_step,
            last_step=one.last_step,
            ranks=one.ranks,
            sources=one.sources,
            documents=one.documents,
        )
    return None


def _is_about(one: Finding | Said, step: int, rank: int | None) -> bool:
    """Whether a finding can be of a fault at `step`: it does not begin a window earlier, nor end before it, and of
    the ranks it names, if any, that of the fault is one."""
    first, last = one.first_step, one.last_step
    in_its_steps = (first is None or first > step - _WINDOW) and (last is None or last >= step - _NEAR)
    return in_its_steps and (rank is None or not one.ranks or rank in one.ranks)


def spoiled(loaded: LoadedRecipe, run: RunDirectory, faults: Sequence[Fault]) -> dict[str, list[int]]:
    """Write bad text into a copy of the corpus in the run's folder, which `with_own_corpus` has it read."""
    corpus = prepare(loaded, Silent())
    bad = [fault for fault in faults if fault.kind == "bad_data"]
    own = run.path.absolute() / PREPARED
    own.mkdir(parents=True, exist_ok=True)
    return spoil_corpus(corpus.folder, loaded.recipe, bad, own / corpus.folder.name)


def with_own_corpus(loaded: LoadedRecipe, folder: Path) -> LoadedRecipe:
    """The same recipe, with prepared corpora in `folder`."""
    data = loaded.recipe.data.model_copy(update={"prepared": str(folder), "prepared_cache": None})
    return replace(loaded, recipe=loaded.recipe.model_copy(update={"data": data}))


def with_own_name(loaded: LoadedRecipe, faults: Sequence[Fault]) -> LoadedRecipe:
    """The same recipe, named by what is put in and when: nobody takes a drill for the run that it rehearses."""
    said = [
        [
            fault.kind,
            *(word for _, word in fault.words),
            str(fault.step),
            *([f"rank{fault.rank}"] * (fault.rank > 0)),
        ]
        for fault in faults
    ]
    name = "-".join([loaded.recipe.name, *(part for one in said or [["undisturbed"]] for part in one)])
    allowed = re.sub(r"[^\w.-]", "_", name)[:_LONGEST_NAME]
    return replace(loaded, recipe=loaded.recipe.model_copy(update={"name": allowed}))
