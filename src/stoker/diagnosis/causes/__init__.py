"""The catalogue of causes: what can be wrong with a run, how it shows itself, and what to do about it.

Each cause is one section of about thirty lines in `data.py`, `machine.py` or `recipe.py`; `docs/diagnosis.md` is
made from them, and says how one is added.
"""

from __future__ import annotations

from stoker.diagnosis.causes.cause import Cause, Sign
from stoker.diagnosis.causes.data import DATA
from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.causes.machine import MACHINE
from stoker.diagnosis.causes.recipe import RECIPE

CATALOGUE: tuple[Cause, ...] = (*DATA, *MACHINE, *RECIPE)

__all__ = ["CATALOGUE", "Cause", "Incident", "Sign"]
