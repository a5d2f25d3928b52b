"""Watches a run from beside it: alerts, live diagnosis, and the figures that others get.

One process on the node of rank 0 follows the record; training knows nothing of it and never waits for it.
"""

from __future__ import annotations

from stoker.monitoring.beside import LAST_LOOK_SECONDS, Beside
from stoker.monitoring.looked_after import monitored
from stoker.monitoring.notices import webhook_of
from stoker.monitoring.trackers import require_installed
from stoker.recipe import Recipe

__all__ = ["LAST_LOOK_SECONDS", "Beside", "monitored", "require_watchable"]


def require_watchable(recipe: Recipe) -> None:
    """Raise `BadInput` for what would fail only once the run is under way: a library that an exporter needs is not
    installed, the environment variable that holds the webhook is not set."""
    require_installed(recipe.exporters)
    webhook_of(recipe.alerts)
