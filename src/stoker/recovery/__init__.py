"""Keeps a run going without a person: watches its ranks, finds out what fails and where, and starts them again."""

from stoker.recovery.standby import Standby, standby
from stoker.recovery.supervised import train

__all__ = ["Standby", "standby", "train"]
