"""Goodput and cost of a training run of 1,000 to 100,000 accelerators, by formula and by Monte Carlo.

`description` says what a run is, `process` turns it into rates; `formula` and `runs` work out the same process, one
by renewal arguments, one by drawing events. `answer` puts them side by side. Derivations are in docs/simulate.md.
"""

from stoker.planning.reliability.answer import Answer, answer
from stoker.planning.reliability.changes import SWEEPS
from stoker.planning.reliability.description import RunDescription
from stoker.planning.reliability.reading import read_run

__all__ = ["SWEEPS", "Answer", "RunDescription", "answer", "read_run"]
