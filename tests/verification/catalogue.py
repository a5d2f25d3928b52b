"""What `verify` makes of the catalogue: whether each bug is caught, and by what name.

`python -m tests.verification.catalogue` prints the table of `docs/numerics.md`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.layout import Layout
from stoker.verification import Difference, Subject
from stoker.verification.verify import _Verification
from stoker.verification.workers import Workers
from tests.verification.mutation import Plant
from tests.verification.planted.bug import PlantedBug
from tests.verification.planted_bugs import BUGS, CLEAN, TWINS
from tests.verification.tiny_models import MODELS, VOCABULARY

STEPS = 2
_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True)
class Verdict:
    """What the verifier said."""

    bug: PlantedBug
    first: Difference | None
    error: str | None

    @property
    def caught(self) -> bool:
        """Whether it said anything."""
        return self.first is not None or self.error is not None

    @property
    def named(self) -> bool:
        """Whether it named a right place."""
        return self.first is not None and self.bug.explains(self.first.kind, self.first.name)

    @property
    def row(self) -> str:
        """Of the table."""
        what = "—" if self.first is None else f"{self.first.kind}: `{self.first.name}`"
        named = "yes" if self.named else "**no**"
        return f"| {self.bug.name} | {self.bug.layout} | {'yes' if self.caught else '**no**'} | {named} | {what} |"


def judged(bugs: Iterable[PlantedBug], steps: int = STEPS) -> Iterator[Verdict]:
    """What the verifier says of each, one after another.

    `verify` begins anew at every call; here processes and references outlast each bug.
    """
    bugs = list(bugs)
    most_ranks = max(bug.layout.world_size for bug in bugs)
    with tempfile.TemporaryDirectory() as folder, Workers(_TIMEOUT_SECONDS, most_ranks) as workers:
        verifications: dict[str, _Verification] = {}
        for bug in bugs:
            if bug.model not in verifications:
                tiny = MODELS[bug.model]
                subject = Subject(tiny.model, tiny.training, VOCABULARY, name=bug.model)
                own = Path(folder) / bug.model
                own.mkdir()
                verifications[bug.model] = _Verification(subject, steps, own, workers, None)
            verifications[bug.model].plant = bug.plant
            result = verifications[bug.model].result(bug.layout, ["fp64"])
            yield Verdict(bug, result.first, result.error)


def nothing_planted(layout: Layout, model: str) -> PlantedBug:
    """A layout as it is."""
    return PlantedBug("nothing", layout, model, Plant(()).changes, (), "")


def harmless() -> Iterator[PlantedBug]:
    """All that must not be taken for a mistake."""
    yield from (nothing_planted(layout, model) for layout, model in CLEAN)
    yield from TWINS


def summary(verdicts: Sequence[Verdict]) -> str:
    """Of what was caught and named."""
    caught, named = (sum(getattr(one, what) for one in verdicts) for what in ("caught", "named"))
    return f"{len(verdicts)} planted, {caught} caught, {named} named at a right place"


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """In Markdown, line by line."""
    yield "| planted | layout | caught | named rightly | first difference |"
    yield "|---|---|---|---|---|"
    for verdict in verdicts:
        yield verdict.row


def _main() -> None:
    verdicts: list[Verdict] = []

    def kept() -> Iterator[Verdict]:
        for verdict in judged(BUGS):
            verdicts.append(verdict)
            yield verdict

    for line in table(kept()):
        print(line, flush=True)
    alarms = [one for one in judged(harmless()) if one.caught]
    print(f"\n{summary(verdicts)}; {len(alarms)} false alarms in {len(list(harmless()))} harmless runs")
    for alarm in alarms:
        print(alarm.bug.name, alarm.bug.layout, alarm.bug.model, alarm.first, alarm.error)


if __name__ == "__main__":
    _main()
