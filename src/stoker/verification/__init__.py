"""Holds layouts against one process: the same model, step for step, in real processes. `verify` is the door."""

from stoker.verification.figures import Difference
from stoker.verification.subject import Subject, VerifiedPrecision
from stoker.verification.verify import Result, subject_of, verify
from stoker.verification.work import Plant

__all__ = ["Difference", "Plant", "Result", "Subject", "VerifiedPrecision", "subject_of", "verify"]
