"""What is known of a run now: the newest figures of its ranks, and what follows from the last few of them."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.diagnosis.course import readable
from stoker.layout import Layout
from stoker.recipe import Recipe
from stoker.record import SUPERVISOR
from stoker.record.framing import Entry

_WORK = ("data", "forward", "backward", "optimizer")
_STEPS_KEPT = 64
_MACHINE_ROWS_KEPT = 4096
_COUNTED = {
    "went_back": "rollbacks",
    "failure": "failures",
    "saved": "checkpoints",
    "save_failed": "failed_checkpoints",
    "non_finite": "non_finite_steps",
    "node_lost": "lost_nodes",
}
Row = Mapping[str, Any]


@dataclass
class RankPicture:
    """What one rank has told of itself."""

    step: Row = field(default_factory=dict)
    machine: Row = field(default_factory=dict)
    work: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS_KEPT))
    """Seconds of its own work in each of its last steps."""
    utilisation: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MACHINE_ROWS_KEPT))
    """Unix time and share."""
    network: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_MACHINE_ROWS_KEPT))
    """Unix time and bits a second since the row before."""

    def take_step(self, row: Row) -> None:
        """Its newest step."""
        self.step = row
        seconds = work_of(row)
        if seconds is not None:
            self.work.append(seconds)

    def take_machine(self, row: Row) -> None:
        """The newest state of its machine."""
        before, self.machine = self.machine, row
        now = number(row, "time")
        if now is None:
            return
        if (use := number(row, "utilisation")) is not None:
            self.utilisation.append((now, use))
        sent, earlier, since = _traffic(row), _traffic(before), number(before, "time")
        if sent is not None and earlier is not None and since is not None and now > since and sent >= earlier:
            self.network.append((now, 8 * (sent - earlier) / (now - since)))


class Picture:
    """Takes in rows as they come. Nothing here grows with the length of the run."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.ranks: dict[int, RankPicture] = {}
        self.modules: dict[str, Row] = {}
        self.routing: dict[str, Row] = {}
        self.held_out: dict[str, Row] = {}
        self.counts: dict[str, int] = dict.fromkeys((*_COUNTED.values(), "skipped_steps"), 0)
        self.saved_step: int | None = None
        self.saved_time: float | None = None
        self.several_nodes = recipe.recovery.ranks_per_node is not None
        self.finished = False
        self.reached: int | None = None
        """The last step of the present course; where the run went back to, until there is another."""
        self.moves_in_a_row = 0
        self.worst_moves = 0
        """Since rules were last judged."""
        self.worst_norm: float | None = None
        """Since rules were last judged."""
        self.seconds_per_step: deque[float] = deque(maxlen=_STEPS_KEPT)
        self.recent_steps: deque[tuple[float, float]] = deque(maxlen=_STEPS_KEPT)
        """Unix time and tokens of the last steps."""
        self.began: float | None = None
        """When the present attempt began."""

    @property
    def layout(self) -> Layout:
        """As the recipe says it."""
        return self.recipe.layout

    @property
    def first(self) -> Row:
        """The newest step row of rank 0, which holds the figures that all ranks share."""
        return self.ranks[0].step if 0 in self.ranks else {}

    @property
    def step(self) -> int | None:
        """The last completed step."""
        found = number(self.first, "step")
        return None if found is None else int(found)

    @property
    def last_progress(self) -> float | None:
        """Unix time of the last step, or of the present start where there is none since."""
        times = [time for time in (number(self.first, "time"), self.began) if time is not None]
        return max(times, default=None)

    @property
    def tokens_per_second(self) -> float | None:
        """Over the last steps."""
        if len(self.recent_steps) < 2:
            return None
        begin, end = self.recent_steps[0][0], self.recent_steps[-1][0]
        tokens = sum(tokens for _, tokens in list(self.recent_steps)[1:])
        return tokens / (end - begin) if end > begin else None

    def take(self, rank: int, entry: Entry) -> None:
        """One row that `rank` (or `SUPERVISOR`) wrote."""
        row = entry.row
        match entry.kind:
            case "step":
                own = self.ranks.setdefault(rank, RankPicture())
                if rank == 0:
                    self.reached = row.get("step")
                    self._take_global(own.step, row)
                own.take_step(row)
            case "machine":
                self.ranks.setdefault(rank, RankPicture()).take_machine(row)
                self.several_nodes |= "network_latency_seconds" in row
            case "module":
                self.modules[str(row.get("module"))] = row
            case "routing":
                self.routing[str(row.get("module"))] = row
            case "evaluation":
                self.held_out[str(row.get("source"))] = row
            case "event" if rank in (0, SUPERVISOR):
                self._take_event(readable(row))

    def judged(self) -> None:
        """Rules have seen the worst so far."""
        self.worst_moves, self.worst_norm = self.moves_in_a_row, number(self.first, "gradient_norm")

    def _take_global(self, before: Row, row: Row) -> None:
        self.counts["skipped_steps"] += row.get("skipped") is True
        follows = number(row, "step") == (number(before, "step") or 0) + 1
        if follows and self._moved(number(before, "loss"), number(row, "loss"), number(row, "step")):
            self.moves_in_a_row += 1
        else:
            self.moves_in_a_row = 0
        self.worst_moves = max(self.worst_moves, self.moves_in_a_row)
        norm = number(row, "gradient_norm")
        if norm is not None and (self.worst_norm is None or norm > self.worst_norm or math.isnan(norm)):
            self.worst_norm = norm
        self._take_speed(row, follows)

    def _moved(self, before: float | None, loss: float | None, step: float | None) -> bool:
        rule = self.recipe.alerts.rules.loss_moves
        if before is None or loss is None or step is None or step <= rule.after_step:
            return False
        return not abs(loss - before) <= rule.limit * abs(before)  # so that what is not a number has moved

    def _take_speed(self, row: Row, follows: bool) -> None:
        if not follows:  # it went back, or was started again
            self.recent_steps.clear()
        when, tokens, total = number(row, "time"), number(row, "tokens"), number(part(row, "seconds"), "total")
        if when is not None and tokens is not None:
            self.recent_steps.append((when, tokens))
        if total is not None:
            self.seconds_per_step.append(total)

    def _take_event(self, row: Row) -> None:
        name = row.get("event")
        if name in _COUNTED:
            self.counts[_COUNTED[name]] += 1
        if name == "saved":
            self.saved_step, self.saved_time = row.get("step"), number(row, "time")
        elif name in ("started", "resumed"):
            self.began, self.finished = number(row, "time"), False
            if self.saved_step is None:  # what an earlier run of the command saved is as old as the step it is of
                self.saved_step = row.get("step")
        elif name == "went_back" and isinstance(row.get("step"), int):
            self.saved_step = self.reached = row["step"]
        elif name == "node_joined":
            self.several_nodes = True
        elif name == "finished":
            self.finished = True


def number(row: Row, name: str) -> float | None:
    """A figure of a row, NaN and Inf among them; None where it has none."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def part(row: Row, name: str) -> Row:
    """Figures by name; an empty mapping where there are none."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def work_of(row: Row) -> float | None:
    """Seconds of a rank's own work in a step."""
    told = number(row, "work_seconds")
    if told is not None:
        return told
    seconds = part(row, "seconds")
    parts = [found for name in _WORK if (found := number(seconds, name)) is not None]
    return sum(parts) if parts else None


def share(row: Row, used: str, total: str) -> float | None:
    """One figure over another."""
    over = number(row, total)
    value = number(row, used)
    return value / over if value is not None and over else None


def slowest(ranks: Mapping[int, RankPicture], steps: int) -> tuple[int, float] | None:
    """The rank whose own work takes longest, and by which share longer than the median of all."""
    medians = {
        rank: statistics.median(list(own.work)[-steps:]) for rank, own in ranks.items() if len(own.work) >= steps
    }
    if len(medians) < 2:
        return None
    worst = max(medians, key=lambda rank: medians[rank])
    # Of two ranks the median is their mean: the other is what the slower one is held against.
    usual = statistics.median([value for rank, value in medians.items() if rank != worst])
    return (worst, medians[worst] / usual - 1) if usual > 0 else None


def extreme(values: Iterable[tuple[int, float | None]], largest: bool) -> tuple[int, float] | None:
    """The rank with the largest or smallest value; one that is not a number counts as the most extreme."""
    known = [(rank, value) for rank, value in values if value is not None]
    if not known:
        return None
    sign = 1 if largest else -1
    return max(known, key=lambda one: math.inf if math.isnan(one[1]) else sign * one[1])


def figures_of(picture: Picture, name: str) -> Iterator[tuple[str, float]]:
    """Every value that a figure has now, with whose it is: of ranks, modules or sources."""
    first, _, rest = name.partition(".")
    rows: Mapping[str, Row]
    if first == "machine":
        rows = {f"rank {rank}": own.machine for rank, own in picture.ranks.items()}
    elif first in ("module", "routing", "evaluation"):
        rows = {"module": picture.modules, "routing": picture.routing, "evaluation": picture.held_out}[first]
    else:
        rows = {f"rank {rank}": own.step for rank, own in picture.ranks.items()}
        for whose, row in rows.items():
            value = number(part(row, first), rest) if rest else number(row, first)
            if value is not None:
                yield whose, value
        return
    for whose, row in rows.items():
        if (value := number(row, rest)) is not None:
            yield whose, value


def _traffic(row: Row) -> float | None:
    sent, received = number(row, "network_sent_bytes"), number(row, "network_received_bytes")
    return None if sent is None or received is None else sent + received
