"""The monitor of a run: follows its record, judges the rules, diagnoses, tells people, feeds exporters.

It reads the run's record, and writes `record/monitor` and, where findings are to send the run back,
`asked_back.json`.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.diagnosis import Finding, find_all
from stoker.durable_files import write_json
from stoker.errors import StokerError
from stoker.monitoring.alerts import Alerting, Notice
from stoker.monitoring.following import Follower
from stoker.monitoring.json_logs import JsonLog
from stoker.monitoring.live_diagnosis import WINDOW_ROWS, AskingBack, Told, rows_now
from stoker.monitoring.live_text import Readings
from stoker.monitoring.notices import Notifying
from stoker.monitoring.picture import Picture
from stoker.monitoring.prometheus import Endpoint, Snapshot
from stoker.monitoring.recent import FollowedRecord, RecentRecord
from stoker.monitoring.rules import Judgement, in_brief, judge, tells_of
from stoker.monitoring.trackers import Point, Tracking, point_of
from stoker.recipe.loading import load_recipe
from stoker.record import MONITOR, SUPERVISOR, Record, RecordWriter
from stoker.record.framing import Entry
from stoker.record.segments import rank_folder
from stoker.run_directory import RunDirectory

_POLL_SECONDS = 1.0
_POSITION_SECONDS = 30.0
_ROWS_AT_START = 256
_POINTS_AT_ONCE = 512
_EXPORTED = ("step", "evaluation", "module", "routing")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outlook:
    """How a run stands, as the monitor sees it."""

    step: int | None
    alerts: tuple[Notice, ...]
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "step": self.step,
            "alerts": [notice.as_detail() for notice in self.alerts],
            "findings": [finding.model_dump(mode="json") for finding in self.findings],
        }


class Monitor:
    """Watches one run. The caller holds the monitor's lock, or may not write."""

    def __init__(
        self,
        run: RunDirectory,
        say: Say,
        *,
        live: bool,
        writes: bool = True,
        exports: bool = True,
    ) -> None:
        """`live`: the run is under way, and people are told. `writes`: into the run's folder. `exports`: to
        trackers and logs."""
        self._run = run
        self._say = say
        self._live = live
        self._writes = writes
        self._recipe = load_recipe(run.recipe).recipe
        alerts, exporters = self._recipe.alerts, self._recipe.exporters
        self._share = alerts.share_of_core / 3
        """Of a core: for looking, as much again for diagnosing, and for reading what steps were trained on."""
        self.picture = Picture(self._recipe)
        self._alerting = Alerting(alerts.repeat_seconds, alerts.resolved)
        self._told = Told()
        self._news: list[Finding] = []
        """What was found since the last judgement."""
        self._asking = AskingBack(run) if live and self._recipe.recovery.on_finding != "wait" else None
        self._findings: list[Finding] = []
        self._judgements: list[Judgement] = []
        self._readings = Readings(run, self._recipe, self._share)
        self._next_diagnosis = 0.0
        self._last_cost = 0.0
        """Of a diagnosis that read no text, in seconds of processor time."""
        self._now = time.time()
        self._next_position = time.monotonic() + _POSITION_SECONDS
        self._points: list[Point] = []
        self._followers: dict[int, Follower] = {}
        self._recent = FollowedRecord(run.record, WINDOW_ROWS)
        self._remember()
        self._record = RecordWriter(run.record, MONITOR) if live and writes else None
        self._notifying = Notifying(alerts, say) if live else None
        self._tracking = Tracking(run, self._recipe, say) if exports else None
        self._json = self._open_json_log() if exports and exporters.json_logs.enabled else None
        self._snapshot = Snapshot(exporters.prometheus.per_rank)
        self._endpoint = self._open_endpoint() if live and exporters.prometheus.enabled else None
        self._discover()

    @property
    def _position_file(self) -> Path:
        return rank_folder(self._run.record, MONITOR) / "exported.json"

    @property
    def url(self) -> str | None:
        """Where Prometheus finds the run."""
        return None if self._endpoint is None else self._endpoint.url

    def look(self, now: float | None = None, *, diagnose: bool = False) -> float:
        """One look at the run; returns seconds to wait before the next. `diagnose` does it also out of turn."""
        began = time.process_time()
        self._discover()
        for rank, follower in self._followers.items():
            for entry in follower.new_rows():
                self._take(rank, entry)
        self._hand_over_points()
        when = self._now = time.time() if now is None else now
        diagnosing = 0.0
        if self._recipe.alerts.enabled:
            if diagnose or time.monotonic() >= self._next_diagnosis:
                diagnosing = self._diagnose(when, read=diagnose)
            self._judge(when)
        own = {rule.name for rule in self._recipe.alerts.own}
        self._snapshot.take(
            self.picture,
            self._alerting.firing,
            self._findings,
            {one.rule: one.value for one in self._judgements if one.rule in own},
        )
        if self._json is not None:
            self._json.flush()
        self._keep_position()
        looked = time.process_time() - began - diagnosing
        return max(min(_POLL_SECONDS, self._recipe.alerts.diagnose_seconds), looked / self._share)

    def latest_time(self) -> float | None:
        """When rank 0 completed its last step, for a run that is over: rules are judged as of then."""
        rows = RecentRecord(self._run.record, 1).rows("step", ["time"])
        times = rows["time"].drop_nulls().to_list() if "time" in rows.columns else []
        return float(times[-1]) if times else None

    def outlook(self) -> Outlook:
        """How the run stands."""
        return Outlook(self.picture.step, tuple(self._alerting.firing.values()), tuple(self._findings))

    def close(self, seconds: float) -> None:
        """Deliver and write what waits, for at most so many seconds in all."""
        until = time.monotonic() + seconds
        if self._notifying is not None:
            self._notifying.close(until)
        if self._tracking is not None:
            self._tracking.close(until)
            self._keep_position(at_once=True)
        if self._json is not None:
            self._json.close()
        if self._endpoint is not None:
            self._endpoint.close()
        if self._record is not None:
            self._record.close()

    def _take(self, rank: int, entry: Entry) -> None:
        self.picture.take(rank, entry)
        if self._recipe.alerts.enabled:
            self._recent.take(rank, entry)
        if entry.row.get("event") in ("went_back", "resumed"):
            self._readings.forget()
            if self._asking is not None:
                self._asking.went_back()
        if self._json is not None and entry.kind == "event" and rank in (0, SUPERVISOR):
            self._json.event(entry.row, "rank 0" if rank == 0 else "supervisor")
        if rank != 0:
            return
        if self._json is not None and entry.kind == "step":
            self._json.step(entry.row)
        if self._tracking and entry.kind in _EXPORTED and (point := point_of(entry.kind, entry.row)):
            self._points.append(point)
            if len(self._points) >= _POINTS_AT_ONCE:
                self._hand_over_points()

    def _hand_over_points(self) -> None:
        if self._points and self._tracking is not None:
            self._tracking.put(self._points)
            self._points = []

    def _judge(self, now: float) -> None:
        self._judgements = judge(self._recipe.alerts, self.picture, self._findings, now, self._news)
        self._news = []
        self.picture.judged()
        for notice, to_people in self._alerting.take(self._judgements, now):
            self._write("alert", notice.as_detail())
            if to_people and self._notifying is not None:
                if self._record is not None:  # first: a monitor that dies in between must not tell it again
                    self._record.flush()
                self._notifying.give(self._content(notice))

    def _diagnose(self, now: float, read: bool) -> float:
        """Returns the processor time it took. `read` reads the steps' text also out of turn."""
        began = time.process_time()
        reads = read or self._readings.due
        try:
            rows = rows_now(self._recent, now if self._live else None, self._run, self._recipe)
            found = self._readings.read(rows) if reads else self._readings.explain(find_all(rows))
            if not reads and self._readings.may_be_early and any(map(self._told.may_be_explained, found)):
                found, reads = self._readings.read(rows), True
        except (StokerError, OSError) as error:
            self._say(f"the run could not be diagnosed this time: {error}")
            found = self._findings
        # Just after the run went back, what the record says of later steps is of the course that was given up.
        reached = self.picture.reached
        self._findings = [one for one in found if reached is None or (one.first_step or 0) <= reached]
        for finding in self._findings:
            if finding.severity != "note" and self._told.is_new(finding):
                self._tell(finding)
                self._news.append(finding)
        self._ask_back()
        cost = time.process_time() - began
        self._last_cost = self._last_cost if reads else cost
        pause = max(self._recipe.alerts.diagnose_seconds, self._last_cost / self._share)
        self._next_diagnosis = time.monotonic() + pause
        return cost

    def _ask_back(self) -> None:
        try:
            cause = None if self._asking is None else self._asking.consider(self._findings)
        except (StokerError, OSError) as error:  # a disk that is full; it is asked again at the next diagnosis
            self._say(f"the run could not be asked to go back this time: {error}")
            return
        if cause is not None:
            self._write("asked_back", {"finding": cause.model_dump(mode="json"), "step": self.picture.step})
            self._say(f"asked the run to go back to before step {cause.first_step}: {cause.kind} ({cause.cause})")

    def _tell(self, finding: Finding) -> None:
        """Record it, and say it where no alert will."""
        self._write("finding", finding.model_dump(mode="json"))
        alerts = self._recipe.alerts
        if self._live and alerts.log and not tells_of(alerts, finding):
            self._say(f"found: {in_brief(finding)}")

    def _content(self, notice: Notice) -> dict[str, Any]:
        return {
            "run": self._recipe.name,
            "folder": str(self._run.path.absolute()),
            "host": socket.gethostname(),
            "step": self.picture.step,
            "time": notice.time,
            **notice.as_detail(),
        }

    def _write(self, event: str, detail: Mapping[str, Any]) -> None:
        row = {
            "step": self.picture.step,
            "event": event,
            "attempt": self.picture.first.get("attempt"),
            "time": self._now,
            "detail": dict(detail),
        }
        if self._record is not None:
            self._record.append("event", row)
        if self._json is not None:
            self._json.event(row, "monitor")

    def _discover(self) -> None:
        """Begin to follow whoever has begun to write."""
        record = Record(self._run.record)
        for rank in (SUPERVISOR, *record.ranks):
            if rank in self._followers:
                continue
            follower = Follower(self._run.record, rank)
            if rank == 0 and self._tracking:
                follower.after = self._position()
            else:
                follower.skip_to_newest(_ROWS_AT_START)
            self._followers[rank] = follower
            if rank in (0, SUPERVISOR):  # events are few, and counted from the beginning
                for row in record.events(rank):
                    if row["sequence"] <= follower.after:
                        self.picture.take(rank, Entry("event", row["sequence"], row))

    def _remember(self) -> None:
        """What an earlier monitor of this run has told is not told again."""
        record = Record(self._run.record)
        events = record.events(MONITOR)
        self._alerting.remember(events)
        asked_at = None
        for event in events:
            if event.get("event") == "finding":
                self._told.remember(event.get("detail"))
            elif event.get("event") == "asked_back":
                asked_at = event
        if asked_at is None or self._asking is None:
            return
        back = [one["time"] for one in record.events() if one.get("event") in ("went_back", "resumed")]
        if max(back, default=0.0) <= asked_at["time"]:
            self._asking.asked_before()

    def _open_json_log(self) -> JsonLog | None:
        options = self._recipe.exporters.json_logs
        path = self._run.path / (options.path or "log.jsonl")
        try:
            return JsonLog(path, self._recipe.name, options.every, self._say)
        except OSError as error:
            self._say(f"{path} cannot be written, so there is no JSON log: {error.strerror}")
            return None

    def _open_endpoint(self) -> Endpoint | None:
        options = self._recipe.exporters.prometheus
        try:
            endpoint = Endpoint(options, self._snapshot)
        except OSError as error:
            self._say(f"no metrics for Prometheus: {options.host} cannot be listened on ({error.strerror})")
            return None
        taken = f" (port {options.port} is taken)" if endpoint.wanted_port_was_taken else ""
        self._say(f"metrics for Prometheus at {endpoint.url}{taken}")
        self._write("exporter", {"prometheus": endpoint.url})
        return endpoint

    def _position(self) -> int:
        """Up to which of rank 0's rows trackers have got theirs."""
        try:
            return int(json.loads(self._position_file.read_text())["sequence"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def _keep_position(self, *, at_once: bool = False) -> None:
        due = at_once or time.monotonic() >= self._next_position
        if not (due and self._writes and self._tracking and self._tracking.idle and 0 in self._followers):
            return
        self._next_position = time.monotonic() + _POSITION_SECONDS
        with suppress(OSError, StokerError):  # only some points would be written twice
            write_json(self._position_file, {"sequence": self._followers[0].after})
