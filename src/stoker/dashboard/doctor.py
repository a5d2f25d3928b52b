"""What `stoker diagnose` says of the watched runs, asked in a process of its own so that the page stays quick."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from stoker.dashboard.chinese import MEANINGS, in_chinese, remedy_in_chinese
from stoker.dashboard.watched import WatchedRun
from stoker.diagnosis.causes import CATALOGUE
from stoker.diagnosis.finding import Remedy
from stoker.diagnosis.remedies import in_words

_LEAST_PAUSE_SECONDS = 20.0
_PAUSE_FOR_EACH_SECOND = 10.0
"""A diagnosis that took a second is asked for again ten seconds later: a tenth of one processor at most."""
_LONGEST_SECONDS = 600.0
_BEGIN_AFTER_SECONDS = 2.0
"""Whoever has just opened the page sees the curves first."""
_NICENESS = 19
_SIGNATURES = {cause.name: cause.signature for cause in CATALOGUE}


@dataclass
class Opinion:
    """The last diagnosis of a run."""

    version: str = ""
    """The run's version it is of."""
    asked: float = 0.0
    seconds: float = 0.0
    content: dict[str, Any] = field(default_factory=lambda: {"state": "waiting", "findings": []})


class Doctor:
    """Diagnoses one run at a time, those that somebody looks at first."""

    def __init__(self, changed: Callable[[WatchedRun], None]) -> None:
        """`changed` is called when there is a new diagnosis of a run."""
        self._changed = changed
        self._opinions: dict[str, Opinion] = {}
        self._waiting: dict[str, WatchedRun] = {}
        self._task: asyncio.Task[None] | None = None

    def of(self, run: WatchedRun) -> dict[str, Any]:
        """The last diagnosis: `state` is waiting, done or failed."""
        return self._opinions.setdefault(run.id, Opinion()).content

    def ask(self, run: WatchedRun) -> None:
        """See to it that there will be a diagnosis of the run as it is now, unless one was made just before."""
        opinion = self._opinions.setdefault(run.id, Opinion())
        pause = max(_LEAST_PAUSE_SECONDS, _PAUSE_FOR_EACH_SECOND * opinion.seconds)
        early = opinion.asked and time.monotonic() - opinion.asked < pause
        if run.removed or opinion.version == run.version or early or run.id in self._waiting:
            return
        self._waiting[run.id] = run
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """End what is being asked."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        await asyncio.sleep(_BEGIN_AFTER_SECONDS)
        while self._waiting:
            run = self._waiting.pop(next(iter(self._waiting)))
            opinion = self._opinions[run.id]
            version, begun = run.version, time.monotonic()
            before, opinion.content = opinion.content["findings"], await _diagnosed(run)
            # One that failed is asked for again, also of a run that has ended; what is known stays known.
            if opinion.content["state"] == "failed":
                opinion.content = {**opinion.content, "findings": before}
            opinion.version = version if opinion.content["state"] == "done" else ""
            opinion.asked = time.monotonic()
            opinion.seconds = opinion.asked - begun
            self._changed(run)


async def _diagnosed(run: WatchedRun) -> dict[str, Any]:
    command = [sys.executable, "-m", "stoker", "diagnose", str(run.directory.path.resolve()), "--json"]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_step_back,
    )
    try:
        output, error = await asyncio.wait_for(process.communicate(), _LONGEST_SECONDS)
    except (asyncio.CancelledError, TimeoutError) as why:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if isinstance(why, asyncio.CancelledError):
            raise
        return {"state": "failed", "why": f"no answer within {_LONGEST_SECONDS:.0f} seconds", "findings": []}
    try:
        told = json.loads(output)
        findings = [with_words(finding) for finding in told["findings"]]
    except (ValueError, KeyError, TypeError):
        lines = error.decode(errors="replace").strip().splitlines()
        return {"state": "failed", "why": lines[-1] if lines else "no answer", "findings": []}
    return {"state": "done", "findings": findings, "gaps": told.get("gaps", []), "missing": told.get("missing", [])}


def _step_back() -> None:
    """The training and the page go first."""
    os.nice(_NICENESS)


def with_words(finding: dict[str, Any]) -> dict[str, Any]:
    """The finding with its remedy as a sentence, and the meaning of its causes: in English and in Chinese.

    `chinese.words` has what the evidence says. What this version does not know stays as it is recorded.
    """
    causes = [finding.get("cause"), *(one.get("cause") for one in finding.get("alternatives") or ())]
    said = {
        text
        for evidence in _evidence_of(finding)
        for text in (evidence.get("measure"), evidence.get("expected"), evidence.get("observed"))
        if isinstance(text, str)
    }
    try:
        remedy = Remedy.model_validate(finding["remedy"])
        sentence, chinese = in_words(remedy), remedy_in_chinese(remedy)
    except (ValidationError, KeyError, IndexError, TypeError):
        sentence = chinese = ""
    return {
        **finding,
        "remedy_words": sentence,
        "meanings": {cause: _SIGNATURES[cause] for cause in causes if cause in _SIGNATURES},
        "chinese": {
            "remedy_words": chinese,
            "meanings": {cause: MEANINGS[cause] for cause in causes if cause in MEANINGS},
            "words": {text: found for text in sorted(said) if (found := in_chinese(text)) is not None},
        },
    }


def _evidence_of(finding: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from finding.get("evidence") or ()
    for one in finding.get("alternatives") or ():
        yield from one.get("speaks_for") or ()
        yield from one.get("speaks_against") or ()


def counts_of(findings: list[dict[str, Any]]) -> dict[str, int]:
    """How many findings there are of each severity."""
    return {
        severity: sum(finding.get("severity") == severity for finding in findings)
        for severity in ("alarm", "warning", "note")
    }
