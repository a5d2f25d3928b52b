"""Files with which others take a run in: for Prometheus, Alertmanager and Grafana."""

from __future__ import annotations

from stoker.launch.monitoring import write_monitoring

__all__ = ["write_monitoring"]
