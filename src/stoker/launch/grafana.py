"""Grafana's dashboard of a run, from the panels that are declared beside the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stoker.monitoring.definitions import ACCELERATOR_PANELS, PANELS, SEVERAL_RANKS_PANELS, Panel, Unit

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24
_SCHEMA_VERSION = 39
_UNITS: dict[Unit, str] = {
    "": "short",
    "seconds": "s",
    "bytes": "bytes",
    "bytes_per_second": "Bps",
    "tokens_per_second": "short",
    "ratio": "percentunit",
    "celsius": "celsius",
    "watts": "watt",
    "timestamp": "dateTimeAsIso",
}


def every_panel() -> tuple[Panel, ...]:
    """In the order of the dashboard."""
    return (*PANELS, *ACCELERATOR_PANELS, *SEVERAL_RANKS_PANELS)


def dashboard() -> dict[str, Any]:
    """As Grafana imports it; the data source and the runs are chosen there."""
    return {
        "title": "Stoker",
        "uid": "stoker",
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["stoker"],
        "templating": {"list": [_datasource(), _runs()]},
        "panels": list(_placed(every_panel())),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _runs() -> dict[str, Any]:
    return {
        "name": "run",
        "type": "query",
        "label": "Run",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(stoker_step, run)", "refId": "run"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Iterable[Panel]) -> Iterable[dict[str, Any]]:
    in_a_row = _COLUMNS // _WIDTH
    for index, panel in enumerate(panels):
        row, column = divmod(index, in_a_row)
        scale = {"type": "log", "log": 10} if panel.logarithmic else {"type": "linear"}
        yield {
            "id": index + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {
                "defaults": {
                    "unit": _UNITS[panel.unit],
                    "custom": {"scaleDistribution": scale, "showPoints": "never", "lineWidth": 1},
                },
                "overrides": [],
            },
            "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}},
            "targets": [
                {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "range": True}
                for number, (query, legend) in enumerate(panel.queries)
            ],
        }
