"""Explains what stands out in a run, from its record alone: detectors over curves, and findings as data.

Every detector is a function of arrays in a file of its own, and takes what is usual from the run's own recent past.
"""

from __future__ import annotations

from stoker.diagnosis.diagnose import Diagnosis, diagnose, find_all
from stoker.diagnosis.finding import Evidence, Finding, Remedy
from stoker.diagnosis.run_rows import RunRows

__all__ = ["Diagnosis", "Evidence", "Finding", "Remedy", "RunRows", "diagnose", "find_all"]
