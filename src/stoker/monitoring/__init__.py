"""Watches a run from beside it: alerts, live diagnosis, and the figures that others get.

One process on the node of rank 0 follows the record; training knows nothing of it and never waits for it.
"""

from __future__ import annotations

from stoker.monitoring.beside import Beside
from stoker.monitoring.trackers import require_installed

__all__ = ["Beside", "require_installed"]
