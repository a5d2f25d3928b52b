"""What Prometheus and Alertmanager need for a run, generated from the definitions that the endpoint answers by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from stoker.durable_files import write_text
from stoker.launch.grafana import dashboard
from stoker.monitoring.definitions import ALARMS, OWN_FIGURE
from stoker.recipe.monitoring import Alerts, Exporters, OwnRule, Rule

JOB = "stoker"
RULES_FILE = "stoker-rules.yml"
_SCRAPE_SECONDS = 15
_SILENT_FOR = "5m"
_RECEIVER = "http://127.0.0.1:5001/"
_NOTE = "# Written by `stoker launch monitoring`.\n"


def write_monitoring(folder: Path, alerts: Alerts, exporters: Exporters) -> list[Path]:
    """Write every file into `folder`, in place of earlier ones; returns their paths."""
    texts = {
        "prometheus.yml": _NOTE + _as_yaml(prometheus_config(exporters)),
        RULES_FILE: _NOTE + _as_yaml(alert_rules(alerts)),
        "alertmanager.yml": _NOTE + _as_yaml(alertmanager_config(alerts)),
        "grafana-dashboard.json": json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def prometheus_config(exporters: Exporters, scrape_seconds: int = _SCRAPE_SECONDS) -> dict[str, Any]:
    """A whole configuration; of one that exists already, `scrape_configs` is the part to add."""
    options = exporters.prometheus
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    return {
        "global": {"scrape_interval": f"{scrape_seconds}s", "evaluation_interval": f"{scrape_seconds}s"},
        "rule_files": [RULES_FILE],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": [f"{host}:{options.port}"]}]}],
    }


def alert_rules(alerts: Alerts) -> dict[str, Any]:
    """The recipe's rules for a Prometheus server; a rule that is off is left out."""
    rules = []
    for alarm in ALARMS:
        rule: Rule = getattr(alerts.rules, alarm.rule)
        if not rule.enabled:
            continue
        limit = getattr(rule, "limit", None)
        values = {
            "limit": f"{limit:g}" if isinstance(limit, float) else limit,
            "window": _duration(rule.for_seconds),
            "times": alerts.rules.loss_moves.times,
            "steps": f"{alerts.rules.no_progress.steps:g}",
            "severities": "alarm" if alerts.rules.finding.limit == "alarm" else "warning|alarm",
        }
        expression = alarm.expression.format_map(values)
        # A mean over a window has waited already.
        waits = 0.0 if "{window}" in alarm.expression else rule.for_seconds
        rules.append(_rule(alarm.rule, expression, waits, rule.severity, alarm.summary.format_map(values)))
    rules += [_own_rule(rule) for rule in alerts.own if rule.enabled]
    gone = _rule(
        "endpoint_gone", f'up{{job="{JOB}"}} == 0', 0.0, "critical", "{{ $labels.instance }} does not answer"
    )
    return {"groups": [{"name": "stoker", "rules": [*rules, {**gone, "for": _SILENT_FOR}]}]}


def alertmanager_config(alerts: Alerts) -> dict[str, Any]:
    """An example that sends everything to one webhook; its URL is to be put in."""
    receiver = {"url": _RECEIVER, "send_resolved": alerts.resolved}
    return {
        "route": {
            "receiver": "webhook",
            "group_by": ["run"],
            "group_wait": "10s",
            "repeat_interval": _duration(alerts.repeat_seconds),
        },
        "receivers": [{"name": "webhook", "webhook_configs": [receiver]}],
    }


def alert_name(rule: str) -> str:
    """`gradient_norm` as `StokerGradientNorm`."""
    return "Stoker" + "".join(word.capitalize() for word in rule.split("_"))


def _own_rule(rule: OwnRule) -> dict[str, Any]:
    sign, limit = (">", rule.above) if rule.above is not None else ("<", rule.below)
    expression = f'{OWN_FIGURE}{{rule="{rule.name}"}} {sign} {limit:g}'
    summary = f"{rule.figure} of {{{{ $labels.run }}}} is {{{{ $value | humanize }}}}"
    return _rule(rule.name, expression, rule.for_seconds, rule.severity, summary)


def _rule(name: str, expression: str, seconds: float, severity: str, summary: str) -> dict[str, Any]:
    found: dict[str, Any] = {"alert": alert_name(name), "expr": expression}
    if seconds:
        found["for"] = _duration(seconds)
    return {**found, "labels": {"severity": severity, "rule": name}, "annotations": {"summary": summary}}


def _duration(seconds: float) -> str:
    """Prometheus's spelling; it knows no fractions of a millisecond."""
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{max(1, round(seconds * 1000))}ms"


def _as_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
