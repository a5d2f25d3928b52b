"""Keeps a run going without a person: watches its ranks, finds out what fails and where, and starts them again."""

from stoker.recovery.supervised import Standby, standby, train

__all__ = ["Standby", "standby", "train"]
