"""When a rule's alert begins, goes on and is over, and when notice is given of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from stoker.monitoring.rules import Judgement

_CALM_SECONDS = 60.0
"""How long a condition must be gone before its alert is over: one that comes and goes is one alert."""


@dataclass(frozen=True)
class Notice:
    """What is told of an alert."""

    rule: str
    state: Literal["firing", "resolved"]
    severity: str
    value: float | None
    limit: float
    summary: str
    time: float
    since: float
    """Unix time at which it began to fire."""
    again: bool = False
    """It was told before and goes on, with nothing new."""

    def as_detail(self) -> dict[str, Any]:
        """As the record keeps it."""
        return {
            "rule": self.rule,
            "state": self.state,
            "severity": self.severity,
            "value": self.value,
            "limit": self.limit,
            "summary": self.summary,
            "since": self.since,
            "again": self.again,
        }


@dataclass
class _Alert:
    beyond_since: float | None = None
    calm_since: float | None = None
    firing: Notice | None = None
    """The notice that was given last."""
    newest: Judgement | None = None
    """The last judgement by which it fires."""
    news_since: float | None = None
    """When there was more to tell of than the last notice told."""


class Alerting:
    """Follows the judgements of every rule."""

    def __init__(self, repeat_seconds: float, resolved: bool) -> None:
        self._repeat = repeat_seconds
        self._resolved = resolved
        self._alerts: dict[str, _Alert] = {}

    @property
    def firing(self) -> dict[str, Notice]:
        """The alerts that fire now, by rule, as the newest figures have them."""
        return {
            rule: one.firing
            if one.newest is None
            else replace(one.firing, value=one.newest.value, summary=one.newest.summary)
            for rule, one in self._alerts.items()
            if one.firing is not None
        }

    def remember(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Learn from the record what an earlier monitor has told."""
        for event in events:
            detail, when = event.get("detail"), event.get("time")
            if event.get("event") != "alert" or not isinstance(detail, Mapping) or not isinstance(when, float):
                continue
            alert = self._alerts.setdefault(str(detail.get("rule")), _Alert())
            if detail.get("state") == "firing":
                alert.beyond_since = alert.beyond_since or when
                alert.firing = Notice(
                    str(detail.get("rule")), "firing", str(detail.get("severity")), detail.get("value"),
                    float(detail.get("limit") or 0), str(detail.get("summary")), when,
                    float(detail.get("since") or when),
                )  # fmt: skip
            else:
                self._alerts.pop(str(detail.get("rule")))

    def take(self, judgements: Sequence[Judgement], now: float) -> list[tuple[Notice, bool]]:
        """Notices that are due, each with whether people are to be told (all are recorded)."""
        found = []
        for one in judgements:
            alert = self._alerts.setdefault(one.rule, _Alert())
            notice = self._begin_or_go_on(alert, one, now) if one.beyond else self._calm(alert, one, now)
            if notice is not None:
                found.append((notice, notice.state == "firing" or self._resolved))
        return found

    def _begin_or_go_on(self, alert: _Alert, said: Judgement, now: float) -> Notice | None:
        alert.calm_since, alert.newest = None, said
        if alert.beyond_since is None:
            alert.beyond_since = now
        if said.news and alert.news_since is None:
            alert.news_since = now
        if now - alert.beyond_since < said.for_seconds:
            return None
        before = alert.firing
        news = alert.news_since is not None and now - alert.news_since >= said.for_seconds
        if before is not None and now - before.time < self._repeat and not news:
            return None
        alert.news_since = None
        since = now if before is None else before.since
        again = before is not None and not news
        alert.firing = Notice(
            said.rule, "firing", said.severity, said.value, said.limit, said.summary, now, since, again
        )
        return alert.firing

    def _calm(self, alert: _Alert, said: Judgement, now: float) -> Notice | None:
        if alert.firing is None:
            alert.beyond_since = None
            return None
        if alert.calm_since is None:
            alert.calm_since = now
        if now - alert.calm_since < max(_CALM_SECONDS, said.for_seconds):
            return None
        over = replace(alert.firing, state="resolved", time=now, again=False, value=said.value)
        alert.beyond_since = alert.calm_since = alert.firing = alert.news_since = None
        return over
