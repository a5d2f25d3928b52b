"""The endpoint that a Prometheus server scrapes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from stoker.diagnosis import Finding
from stoker.errors import MissingExtra
from stoker.monitoring.alerts import Notice
from stoker.monitoring.definitions import CPU, FINDINGS, FIRING, METRICS, OF_THE_MONITOR, OWN_FIGURE, Metric, Values
from stoker.monitoring.picture import Picture
from stoker.recipe.monitoring import Prometheus

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

_SEVERITIES = ("note", "warning", "alarm")


class Snapshot:
    """The figures of one moment, taken by the monitor and read by the endpoint's threads."""

    def __init__(self, per_rank: bool) -> None:
        self._metrics = [metric for metric in METRICS if per_rank or not metric.per_rank]
        self._read: list[tuple[Metric, list[tuple[tuple[str, ...], float]]]] = []
        self._own: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        self._run = ""

    def take(
        self,
        picture: Picture,
        firing: Mapping[str, Notice],
        findings: Sequence[Finding],
        own_values: Mapping[str, float | None],
    ) -> None:
        """What the endpoint answers from now on."""
        read = [(metric, _known(metric.read(picture))) for metric in self._metrics]
        by_severity = {name: sum(one.severity == name for one in findings) for name in _SEVERITIES}
        self._own = {
            OWN_FIGURE: _known(((rule,), value) for rule, value in own_values.items()),
            FIRING: [((rule, notice.severity), 1.0) for rule, notice in firing.items()],
            FINDINGS: [((severity,), float(count)) for severity, count in by_severity.items()],
            CPU: [((), time.process_time())],
        }
        self._run = picture.recipe.name
        self._read = read

    def collect(self) -> Iterable[Family]:
        """As prometheus_client's registry asks for it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        described = [(one.name, one.kind, one.help, one.labels, values) for one, values in self._read]
        for name, values in self._own.items():
            kind, words, labels, _ = OF_THE_MONITOR[name]
            described.append((name, kind, words, labels, values))
        for name, kind, words, labels, values in described:
            family: Any = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            found = family(name.removesuffix("_total"), words, labels=("run", *labels))
            for label_values, value in values:
                found.add_metric((self._run, *label_values), value)
            if values:
                yield found


class Endpoint:
    """Answers on `/metrics` until it is closed."""

    def __init__(self, options: Prometheus, snapshot: Snapshot) -> None:
        """Raises `MissingExtra` without prometheus_client, and `OSError` when no port can be had."""
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MissingExtra("exporters.prometheus", "prometheus") from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(snapshot)
        self.wanted_port_was_taken = False
        self._server: WSGIServer
        try:
            self._server, self._thread = start_http_server(options.port, options.host, registry)
        except OSError:
            if not options.port:
                raise
            self.wanted_port_was_taken = True
            self._server, self._thread = start_http_server(0, options.host, registry)
        self._host = options.host

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _known(values: Values) -> list[tuple[tuple[str, ...], float]]:
    return [(labels, value) for labels, value in values if value is not None]
