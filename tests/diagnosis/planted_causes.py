"""Drawn runs of two ranks with everything a record holds, and one cause planted into each."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from stoker.diagnosis import RunRows
from stoker.diagnosis.text_at import Passage, Stretch

Array = np.ndarray
ROWS, RANKS, SAMPLES, TOKENS = 240, 2, 16, 64
MODULES = ("embedding", "blocks.0", "blocks.1", "head")
SOURCES = {"english": 0.5, "chinese": 0.3, "code": 0.2}
# fmt: off
WORDS = (
    "river", "stone", "lantern", "orchard", "winter", "letter", "garden", "window", "morning", "harbour", "silver",
    "thunder", "paper", "basket", "candle", "meadow", "bridge", "copper", "whistle", "velvet", "anchor", "pebble",
    "kitchen", "journey", "story", "mountain",
)
FINNISH = (
    "järvi", "kaupunki", "lapsi", "nainen", "vuosi", "aika", "elämä", "työ", "kieli", "sana", "kirja", "matka",
    "ystävä", "silmä", "käsi", "syksy",
)
# fmt: on
HAN = "山水花鸟风月星河春夏秋冬东西南北书画琴棋江湖天地人间灯火茶酒"


class DrawnText:
    """The text of a drawn run: what each sample says, and which order the recipe gives."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.bad: dict[int, tuple[str, float]] = {}

    def spans(self, step: int) -> list[Any]:
        first = (step - 1) * SAMPLES
        return [
            SimpleNamespace(sample=sample, place=0, source=source_of(sample), document=sample)
            for sample in range(first, first + SAMPLES)
        ]

    def read(self, step: int, spans: list[Any]) -> list[Passage]:
        return [self._passage(step, span) for span in spans]

    def stretches(self, step: int, most: int) -> list[Stretch]:
        return [
            Stretch(span, np.array([zlib.crc32(part.encode()) for part in re.findall(r"\w+|\W", one.text)]))
            for span in self.spans(step)
            for one in [self._passage(step, span)]
        ]

    def digest(self, step: int) -> str:
        return f"batch {step}"

    def names(self, wanted: Iterable[tuple[str, int]]) -> list[str]:
        return [f"{source}/{document}" for source, document in wanted]

    def _passage(self, step: int, span: Any) -> Passage:
        text, respelled = self.bad.get(span.sample, (text_of(span.source, self.seed * 10_000 + span.sample), 0.01))
        return Passage(step, span.sample, span.place, span.source, span.sample, text, respelled)


def source_of(sample: int) -> str:
    return list(SOURCES)[[0, 0, 1, 0, 2, 0, 1, 1, 0, 2][sample % 10]]


def text_of(source: str, seed: int) -> str:
    draw = np.random.default_rng(seed)
    words = [WORDS[i] for i in draw.integers(0, len(WORDS), 40)]
    if source == "chinese":
        return "".join(HAN[i] for i in draw.integers(0, len(HAN), 90)) + "。"
    if source == "code":
        return "\n".join(f"    {word} = {word}({i}) + {draw.integers(99)}" for i, word in enumerate(words[:12]))
    return "The " + " ".join(words) + "."


@dataclass
class Drawn:
    """The columns of a drawn run's rows, which causes change in place."""

    draw: np.random.Generator
    columns: dict[str, Array]
    own: list[dict[str, Array]]
    """Columns of each rank's own."""
    text: DrawnText
    modules: dict[str, dict[str, Array]] = field(default_factory=dict)
    routing: dict[str, Array] = field(default_factory=dict)
    documents: dict[int, float] = field(default_factory=dict)
    """Loss of each sample's text; the four worst of a step are recorded."""
    events: list[dict[str, Any]] = field(default_factory=list)
    recipe: Any = None

    def as_rows(self, with_text: bool = True) -> RunRows:
        tables = [pl.DataFrame({**(self.columns if rank == 0 else {}), "step": self.columns["step"], **own})
                  for rank, own in enumerate(self.own)]  # fmt: skip
        modules = [pl.DataFrame({**own, "module": [name] * own["step"].size}) for name, own in self.modules.items()]
        routing = pl.DataFrame({**self.routing, "module": ["blocks.1"] * ROWS}) if self.routing else pl.DataFrame()
        return RunRows(
            table=tables[0],
            by_rank={rank: table for rank, table in enumerate(tables) if rank},
            modules=pl.concat(modules),
            routing=routing,
            documents=self._worst(),
            events=self.events,
            text=self.text if with_text else None,  # type: ignore[arg-type]
            recipe=self.recipe,
        )

    def _worst(self) -> pl.DataFrame:
        rows = []
        for step in range(1, ROWS + 1):
            own = sorted(range((step - 1) * SAMPLES, step * SAMPLES), key=lambda one: -self.documents[one])
            rows += [(step, one, source_of(one), 0, TOKENS, self.documents[one]) for one in own[:4]]
        names = ("step", "sample", "source", "first_token", "tokens", "loss")
        return pl.DataFrame(rows, schema=names, orient="row")


def drawn(seed: int) -> Drawn:
    """A run without incident; noise, batch and pace differ from seed to seed."""
    draw = np.random.default_rng(seed)
    steps = np.arange(1, ROWS + 1)
    noise = draw.uniform(0.005, 0.03)

    def around(size: float) -> Array:
        return np.exp(size * draw.standard_t(5, ROWS))

    loss = (2 + 6 * steps**-0.4) * around(noise)
    norm = (0.4 + 2 * np.exp(-steps / 20)) * around(draw.uniform(0.05, 0.2))
    rate = 1e-3 * np.minimum(1, steps / 12) * (0.1 + 0.45 * (1 + np.cos(np.pi * steps / ROWS)))
    counts = np.stack([[sum(source_of(s) == name for s in range((k - 1) * SAMPLES, k * SAMPLES)) for k in steps]
                       for name in SOURCES])  # fmt: skip
    columns = {
        "step": steps,
        "time": 1.7e9 + steps.astype(float),
        "attempt": np.ones(ROWS, dtype=int),
        "loss": loss,
        "gradient_norm": norm,
        "learning_rate": rate,
        "update_norm": rate * 30 * (1 + np.exp(-steps / 30)) * around(0.03),
        "tokens": np.full(ROWS, SAMPLES * TOKENS),
        "first_sample": (steps - 1) * SAMPLES,
        "last_sample": steps * SAMPLES,
        "batch_digest": np.array([f"batch {step}" for step in steps]),
        "accumulation": np.full(ROWS, 4),
        "clipped": norm > 1.0,
        "ranks": np.full(ROWS, RANKS),
    }
    for name, count in zip(SOURCES, counts, strict=True):
        columns[f"tokens_by_source.{name}"] = count * TOKENS
        columns[f"loss_by_source.{name}"] = loss * around(0.02)
    for name in MODULES:
        columns[f"gradient_norm_by_module.{name}"] = norm / 2 * around(0.05)
    pace = float(np.exp(draw.uniform(-3, 1)))
    uneven = draw.uniform(0.01, 0.06)
    own = [_of_rank(pace, lambda: around(uneven)) for _ in range(RANKS)]
    every = np.arange(4, ROWS + 1, 4)
    logits = {
        f"blocks.{i}.attention": {
            "step": every,
            "attention_logit": (2 + 0.01 * every) * np.exp(0.03 * draw.standard_normal(every.size)),
            "attention_entropy": 0.8 * np.exp(0.01 * draw.standard_normal(every.size)),
        }
        for i in range(2)
    }
    own_losses = np.repeat(loss, SAMPLES) * np.exp(0.05 * draw.standard_normal(ROWS * SAMPLES))
    return Drawn(draw, columns, own, DrawnText(seed), logits, documents=dict(enumerate(own_losses.tolist())))


def _of_rank(pace: float, around: Callable[[], Array]) -> dict[str, Array]:
    forward, backward = 0.3 * pace * around(), 0.6 * pace * around()
    own = {
        "seconds.data": 0.005 * pace * around(),
        "seconds.forward": forward,
        "seconds.backward": backward,
        "seconds.communication": 0.05 * pace * around(),
        "seconds.optimizer": 0.05 * pace * around(),
        "host_memory_bytes": np.full(ROWS, 2**30) + np.cumsum(2**12 * (around() > 1.03)),
        "read_ahead": np.full(ROWS, 2),
    }
    return {**own, **_totals(own)}


def _totals(own: dict[str, Array]) -> dict[str, Array]:
    work = own["seconds.forward"] + own["seconds.backward"] + own["seconds.optimizer"]
    total = work + own["seconds.data"] + own["seconds.communication"] + 0.01 * work.mean()
    return {"work_seconds": work, "waited.gradients": own["seconds.communication"], "seconds.total": total}


def _settle(run: Drawn) -> None:
    """The faster rank waits for the slower one."""
    for own in run.own:
        own.update(_totals(own))
    slowest = np.maximum(*(own["seconds.total"] for own in run.own))
    for own in run.own:
        own["seconds.communication"] = own["seconds.communication"] + slowest - own["seconds.total"]
        own.update(_totals(own))


def _place(run: Drawn) -> int:
    return int(run.draw.integers(90, 150))


def _raise_loss(run: Drawn, at: int, rise: Array) -> None:
    for name in run.columns:
        if name.startswith("loss"):
            run.columns[name][at : at + rise.size] *= np.exp(rise)


def _bad_text(run: Drawn, make: Callable[[str, np.random.Generator], str], respelled: float = 0.01) -> int:
    at = _place(run)
    for sample in range(at * SAMPLES, (at + 2) * SAMPLES, 2):
        run.documents[sample] *= 1.5
        run.text.bad[sample] = (make(text_of(source_of(sample), sample), run.draw), respelled)
    _raise_loss(run, at, np.array([0.3, 0.25]) * run.draw.uniform(1, 2))
    return at


def garbled_text(run: Drawn) -> int:
    return _bad_text(run, lambda text, draw: "".join("\N{REPLACEMENT CHARACTER}" if draw.random() < 0.2 else one
                                                     for one in text))  # fmt: skip


def html_text(run: Drawn) -> int:
    return _bad_text(run, lambda text, draw: "".join(f"<p class='c{draw.integers(9)}'>{one}</p>&nbsp;"
                                                     for one in text.split()[:20]))  # fmt: skip


def wrong_language(run: Drawn) -> int:
    return _bad_text(run, lambda text, draw: " ".join(FINNISH[i] for i in draw.integers(0, len(FINNISH), 40)))


def repeated_text(run: Drawn) -> int:
    return _bad_text(run, lambda text, draw: text[:24] * (len(text) // 24 + 1))


def tokenizer_mismatch(run: Drawn) -> int:
    pieces = ["ri", "ver", " st", "one", "tern", "or", "ard", "}", "水", " = "]
    return _bad_text(run, lambda text, draw: "".join(pieces[i] for i in draw.integers(0, 10, 40)), 0.6)


def hard_documents(run: Drawn) -> int:
    at = _place(run)
    _raise_loss(run, at, np.array([0.4, 0.1]))
    for sample in range(at * SAMPLES, at * SAMPLES + 3):
        run.documents[sample] *= 1.8
    run.columns["gradient_norm"][at] *= 2.5
    return at


def oversampled_source(run: Drawn, until: int = 20) -> int:
    at = _place(run)
    share = run.draw.uniform(0.5, 1.0)
    every = np.arange(at, min(at + until, ROWS))
    for name in SOURCES:
        column = run.columns[f"tokens_by_source.{name}"]
        column[every] = (1 - share) * column[every] + (share * SAMPLES * TOKENS if name == "code" else 0)
    _raise_loss(run, at, np.full(every.size, -0.1))
    for step in every:
        run.columns["batch_digest"][step] = f"other {step}"
    return at


def mixture_shift(run: Drawn) -> int:
    return oversampled_source(run, ROWS)


def repeated_batch(run: Drawn) -> int:
    at = _place(run)
    run.columns["batch_digest"][at : at + 8] = run.columns["batch_digest"][at - 1]
    _raise_loss(run, at, -0.05 * np.arange(1, 9))
    return at


def random_state_lost(run: Drawn) -> int:
    at = _place(run)
    run.columns["batch_digest"][at:] = run.columns["batch_digest"][: ROWS - at]
    _raise_loss(run, at, np.full(ROWS - at, -0.03))
    return at


def wrong_numbers(run: Drawn) -> int:
    at = _place(run)
    run.columns["gradient_norm"][at] *= 60
    run.columns["gradient_norm_by_module.blocks.1"][at] *= 120
    return at


def slow_compute(run: Drawn) -> int:
    at = _place(run)
    for name in ("forward", "backward", "optimizer"):
        run.own[1][f"seconds.{name}"][at : at + 40] *= 1.3 + run.draw.random()
    _settle(run)
    return at


def throttled_rank(run: Drawn) -> int:
    at = _place(run)
    growth = 1 + run.draw.uniform(0.5, 1) * np.clip(np.arange(1, ROWS - at + 1) / 30, 0, 1)
    for name in ("forward", "backward", "optimizer"):
        run.own[1][f"seconds.{name}"][at:] *= growth
    _settle(run)
    return at


def communication_jitter(run: Drawn) -> int:
    at = _place(run)
    usual = float(np.median(run.own[0]["seconds.total"]))
    for own in run.own:
        own["seconds.communication"][at:] += 0.6 * usual * run.draw.exponential(size=ROWS - at)
    _settle(run)
    return at


def slow_network(run: Drawn) -> int:
    at = _place(run)
    usual = float(np.median(run.own[0]["seconds.total"]))
    for own in run.own:
        own["seconds.communication"][at:] += run.draw.uniform(0.5, 1) * usual
    _settle(run)
    return at


def loader_starvation(run: Drawn) -> int:
    at = _place(run)
    usual = float(np.median(run.own[0]["seconds.total"]))
    for own in run.own:
        own["seconds.data"][at : at + 30] += run.draw.uniform(0.5, 1.5) * usual
        own["read_ahead"][at : at + 30] = 0
    _settle(run)
    return at


def memory_leak(run: Drawn) -> int:
    at = _place(run)
    run.own[1]["host_memory_bytes"][at:] += (2**30 * 0.004 * np.arange(ROWS - at)).astype(int)
    return at


def accumulation_normalisation(run: Drawn) -> int:
    at = _place(run)
    for name in run.columns:
        if name.startswith("gradient_norm"):
            run.columns[name][at:] *= 4
    return at


def learning_rate_jump(run: Drawn) -> int:
    at = _place(run)
    run.columns["learning_rate"][at : at + 20] *= 5
    run.columns["update_norm"][at : at + 20] *= 5
    _raise_loss(run, at + 2, 0.3 * np.minimum(1, np.arange(1, 19) / 6))
    return at


def optimizer_state_lost(run: Drawn) -> int:
    at = _place(run)
    after = np.arange(ROWS - at)
    run.columns["update_norm"][at:] *= 1 + 4 * np.exp(-after / 8)
    _raise_loss(run, at + 1, 0.25 * np.exp(-np.arange(20) / 5))
    run.events.append({"event": "resumed", "step": at, "attempt": 2, "time": 1.7e9 + at, "detail": {}})
    return at


def sequence_length_change(run: Drawn) -> int:
    at = _place(run)
    run.columns["tokens"][at:] //= 2
    _raise_loss(run, at, np.full(ROWS - at, 0.12))
    return at


def attention_logit_growth(run: Drawn) -> int:
    at = _place(run)
    own = run.modules["blocks.1.attention"]
    growth = np.exp(0.03 * np.maximum(own["step"] - at, 0))
    own["attention_logit"] *= growth
    own["attention_entropy"] /= growth**0.5
    return at


def router_collapse(run: Drawn) -> int:
    at = _place(run)
    grown = np.clip((np.arange(ROWS) - at) / 40, 0, 1)
    noise = np.exp(0.05 * run.draw.standard_normal(ROWS))
    run.routing = {
        "step": run.columns["step"],
        "largest_load": (1.3 + 2.5 * grown) * noise,
        "smallest_load": 0.7 * (1 - 0.99 * grown) * noise,
        "entropy": (1.3 - 0.9 * grown) * noise**0.2,
    }
    return at


def loss_scale_collapse(run: Drawn) -> int:
    at = _place(run)
    fallen = np.clip(np.arange(ROWS) - at + 1, 0, 12)
    run.columns["loss_scale"] = 2.0**16 / 2.0**fallen
    run.columns["skipped"] = (fallen > 0) & (fallen < 12)
    return at


PLANTED: dict[str, Callable[[Drawn], int]] = {
    one.__name__: one
    for one in (
        garbled_text, html_text, wrong_language, repeated_text, tokenizer_mismatch, hard_documents,
        oversampled_source, mixture_shift, repeated_batch, random_state_lost, wrong_numbers, slow_compute,
        throttled_rank, communication_jitter, slow_network, loader_starvation, memory_leak,
        accumulation_normalisation, learning_rate_jump, optimizer_state_lost, sequence_length_change,
        attention_logit_growth, router_collapse, loss_scale_collapse,
    )
}  # fmt: skip
"""By the name of the cause: plants it, and returns the row from which on it shows."""
EARLY: dict[str, int] = {"slow_compute": 5, "throttled_rank": 20, "memory_leak": 20, "attention_logit_growth": 20,
                         "router_collapse": 40, "communication_jitter": 14, "loss_scale_collapse": 12}  # fmt: skip
"""How many steps from the onset at most the first step of the finding may be; elsewhere 3."""
