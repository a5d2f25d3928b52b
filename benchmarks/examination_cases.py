"""What is drawn for the doctor's examination: a run, what is wrong with it, and what the doctor should say."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.examination_text import FEW, SOURCES

CLEAN = "clean"
_MOVED = ("spike", "divergence", "step_rise", "gradient_growth")
_SLOW = ("slow_rank", "throughput_drop", "stall")


@dataclass(frozen=True)
class Case:
    """One run of the examination."""

    cause: str
    seed: int
    recipe: dict[str, Any]
    faults: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of finding that are right."""
    step: int | None = None
    """Where it begins; None where no step can be named."""
    late: int = 3
    """By how many steps the finding may begin later; what grows shows only after some."""
    rank: int | None = None
    """The one at fault, where one is."""
    source: str | None = None
    """The source at fault, where one is."""
    supervised: bool = False
    """Whether it takes the whole command: what is restarted, or hangs."""
    may_stop: bool = False
    """Whether the run may end by itself and say why, instead of going on with a machine that computes wrongly."""

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.cause}-{self.seed}"

    @property
    def ranks(self) -> int:
        """How many there are."""
        return int(self.recipe["layout"]["dp_replicate"])


@dataclass
class _Draw:
    """The dice of one case, and the run that they have made."""

    dice: random.Random
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return int(self.recipe["training"]["steps"])

    def some(self, low: float, high: float) -> str:
        """A strength."""
        return f"{self.dice.uniform(low, high):.3g}"

    def step(self) -> int:
        """One in the middle of the run."""
        return self.dice.randint(max(80, int(0.3 * self.steps)), int(0.65 * self.steps))

    def rank(self) -> int:
        return self.dice.randrange(self.recipe["layout"]["dp_replicate"])


def draw_case(cause: str, seed: int) -> Case:
    """The case of a cause, or without one (`CLEAN`), that belongs to a seed."""
    dice = random.Random(f"{cause} {seed}")
    draw = _Draw(dice, _run(dice, seed, ranks=2 if cause in _OF_TWO_RANKS else dice.choice((1, 1, 2))))
    case = Case(cause, seed, draw.recipe)
    return _honest(case, draw) if cause == CLEAN else CAUSES[cause](case, draw)


def _run(dice: random.Random, seed: int, ranks: int) -> dict[str, Any]:
    """A run in which nothing is wrong."""
    names = dice.sample(SOURCES, dice.randint(2, len(SOURCES)))
    steps, batch = dice.randint(170, 240), dice.choice((8, 12, 16))
    model: dict[str, Any] = {
        "hidden_size": dice.choice((32, 48, 64)),
        "layers": 2,
        "heads": 4,
        "kv_heads": dice.choice((2, 4)),
        "ffn_hidden_size": dice.choice((96, 128)),
        "qk_norm": dice.choice(("none", "head")),
    }
    if dice.random() < 0.15:
        model["moe"] = _experts(dice.choice((1, 2)))
    return {
        "name": "examined",
        "seed": seed,
        "data": {
            "held_out": 0.03,
            "workers": 1,
            "shard_tokens": 2**16,
            "deduplication": {"near": False},
            "sources": [
                {
                    "name": name,
                    "paths": [f"text/{name}.jsonl"],
                    "weight": dice.randint(1, 4) if name in names else 0,
                }
                for name in (*SOURCES, FEW)
            ],
        },
        "tokenizer": {"vocabulary_size": 512, "training_megabytes": 2},
        "model": model,
        "training": {
            "steps": steps,
            "sequence_length": dice.choice((48, 64)),
            "global_batch_size": batch,
            "micro_batch_size": batch // (2 * ranks),
            "optimizer": {"name": "adamw", "learning_rate": round(10 ** dice.uniform(-2.8, -2.3), 6)},
            "schedule": {"name": dice.choice(("cosine", "constant", "wsd")), "warmup_steps": dice.randint(10, 20)},
            "gradient_clip": dice.choice((1.0, 1.0, None)),
            "device": "cpu",
            "threads": 1,
        },
        "layout": {"dp_replicate": ranks},
        "checkpoint": {"every": 10_000, "keep_last": 1},
        "recovery": {
            "on_spike": "wait",
            "on_divergence": "wait",
            "on_large_update": "wait",
            "copy_every": 0,
            "compare_every": 25,
            "spot_check_every": 25,
            "hang_seconds": 1.0,
        },
        "telemetry": {"modules_every": 5, "machine_seconds": 0.5, "timeline_every": 50, "flush_seconds": 0.2},
        "evaluation": {"sequences": 4},
        "alerts": {"enabled": False},
    }


def _weights(draw: _Draw) -> dict[str, int]:
    return {one["name"]: one["weight"] for one in draw.recipe["data"]["sources"] if one["weight"]}


def _text(what: str, kinds: tuple[str, ...], low: float, steps: tuple[int, int]) -> Callable[[Case, _Draw], Case]:
    def make(case: Case, draw: _Draw) -> Case:
        step, length = draw.step(), draw.dice.randint(*steps)
        fault = f"bad_data@{step}:what={what},strength={draw.some(low, 1)},steps={length}"
        return replace(case, faults=(fault,), kinds=kinds, step=step)

    return make


def _fault(
    written: str,
    kinds: tuple[str, ...],
    low: float,
    high: float,
    *,
    ranked: bool = False,
    at_fault: bool = True,
    late: int = 3,
) -> Callable[[Case, _Draw], Case]:
    """A fault of a drawn strength. `written` has a place for it, and may have one for a number of steps.

    It comes in on one rank where it is `ranked`, which is `at_fault` unless what all ranks share is.
    """

    def make(case: Case, draw: _Draw) -> Case:
        step, rank = draw.step(), draw.rank() if ranked else None
        kind, options = written.split(":")
        options = options.format(strength=draw.some(low, high), steps=draw.dice.randint(30, 60))
        where = f"{kind}@{step}" if rank is None else f"{kind}@{step}:{rank}"
        fault, culprit = f"{where}:{options}", rank if at_fault else None
        return replace(case, faults=(fault,), kinds=kinds, step=step, rank=culprit, late=late)

    return make


def _oversampled(case: Case, draw: _Draw) -> Case:
    weights = _weights(draw)
    source = min(weights, key=lambda name: (weights[name], name))
    for one in draw.recipe["data"]["sources"]:
        if one["name"] in weights and one["name"] != source:
            one["weight"] += 1
    step, steps = draw.step(), draw.dice.randint(15, 40)
    fault = f"oversample@{step}:source={source},strength={draw.some(0.6, 1)},steps={steps}"
    kinds = ("mixture_shift", "source_drift", "step_drop", *_MOVED)
    return replace(case, faults=(fault,), kinds=kinds, step=step, source=source)


def _shifted(case: Case, draw: _Draw) -> Case:
    weighed = [one for one in draw.recipe["data"]["sources"] if one["weight"]]
    for one, weight in zip(weighed, draw.dice.sample((1, 2, 4, 8, 12), len(weighed)), strict=True):
        one["weight"] = weight
    step = draw.step()
    kinds = ("mixture_shift", "source_drift", "step_drop", *_MOVED)
    return replace(case, faults=(f"mixture_shift@{step}:strength={draw.some(0.6, 1)}",), kinds=kinds, step=step)


def _wrong_numbers(case: Case, draw: _Draw) -> Case:
    draw.recipe["checkpoint"]["every"] = 20
    step, rank = draw.step(), draw.rank()
    # A gradient's lower bits move neither loss nor norms: those are for spot checks, see benchmarks/corruption.py.
    options = f"bit=30,steps={draw.dice.randint(1, 3)}"
    faults = (f"bitflip_local_gradient@{step}:{rank}:{options}", f"bitflip_weight@{step}:{rank}:bit=28")
    kinds = ("silent_corruption", "spike", "nan", "gradient_growth")
    fault = draw.dice.choice(faults)
    return replace(case, faults=(fault,), kinds=kinds, step=step, rank=rank, late=25, may_stop=True)


def _hung(case: Case, draw: _Draw) -> Case:
    step, rank = draw.step(), draw.rank()
    fault = f"{draw.dice.choice(('hang', 'freeze', 'spin'))}@{step}:{rank}"
    draw.recipe["checkpoint"]["every"] = 40
    return replace(case, faults=(fault,), kinds=("hang",), step=step, rank=rank, supervised=True)


def _lost(kind: str, kinds: tuple[str, ...], low: float) -> Callable[[Case, _Draw], Case]:
    """By itself, or as the ranks go on after a kill."""

    def make(case: Case, draw: _Draw) -> Case:
        step, strength = draw.step(), draw.some(low, 1)
        if draw.dice.random() < 0.6:
            return replace(case, faults=(f"{kind}@{step}:strength={strength}",), kinds=kinds, step=step)
        saved = step - 1
        draw.recipe["checkpoint"]["every"] = saved
        killed = saved + draw.dice.randint(2, 6)
        faults = (f"kill@{killed}:0", f"{kind}@{step}:attempt=2,strength={strength}")
        return replace(case, faults=faults, kinds=kinds, step=step, supervised=True)

    return make


def _too_short(case: Case, draw: _Draw) -> Case:
    training = draw.recipe["training"]
    training["schedule"] = {"name": "constant", "warmup_steps": draw.dice.choice((0, 0, 1, 2))}
    training["optimizer"]["learning_rate"] = round(10 ** draw.dice.uniform(-1.8, -1.1), 5)
    training["gradient_clip"] = None
    return replace(case, kinds=(*_MOVED, "plateau", "nan", "update_jump"), step=1, late=40)


def _experts(each: int) -> dict[str, Any]:
    """Four experts, balanced well enough that a clean run's routers find their places."""
    return {"experts": 4, "experts_per_token": each, "expert_ffn_hidden_size": 64, "auxiliary_loss": 0.05}


def _clipping_off(case: Case, draw: _Draw) -> Case:
    training = draw.recipe["training"]
    training["gradient_clip"] = None
    training["optimizer"]["learning_rate"] = round(10 ** draw.dice.uniform(-2.4, -2), 5)
    step = draw.step()
    return replace(case, faults=(f"gradient_burst@{step}:strength={draw.some(0.3, 3)}",), kinds=_MOVED, step=step)


def _router(case: Case, draw: _Draw) -> Case:
    model = draw.recipe["model"]
    rate = draw.dice.choice((0.0, 0.001))
    model["moe"] = {**_experts(1), "bias_update_rate": rate}
    return _fault("router_collapse:strength={strength},steps=80", ("router_collapse",), 0.7, 2, late=40)(case, draw)


def _loss_scale(case: Case, draw: _Draw) -> Case:
    draw.recipe["training"]["precision"] = "fp16"
    kinds = ("loss_scale_collapse",)
    return _fault("overflow:strength={strength}", kinds, 0.6, 1, ranked=True, at_fault=False, late=12)(case, draw)


def _overfitting(case: Case, draw: _Draw) -> Case:
    for one in draw.recipe["data"]["sources"]:
        one["weight"] = int(one["name"] == FEW)
    draw.recipe["training"].update(steps=400, sequence_length=64, global_batch_size=16, micro_batch_size=4)
    draw.recipe["training"]["optimizer"]["learning_rate"] = round(10 ** draw.dice.uniform(-2.4, -2.1), 5)
    draw.recipe["model"].update(hidden_size=64, layers=3)
    draw.recipe["model"].pop("moe", None)
    draw.recipe["evaluation"] = {"every": 20, "sequences": 16}
    return replace(case, kinds=("overfitting",), source=FEW)


def _honest(case: Case, draw: _Draw) -> Case:
    """Honest noise of some kind."""
    training = draw.recipe["training"]
    match draw.dice.randrange(5):
        case 0:  # small batches
            training.update(global_batch_size=2 * case.ranks, micro_batch_size=1)
        case 1:  # a high learning rate
            training["optimizer"]["learning_rate"] = round(10 ** draw.dice.uniform(-2.2, -1.9), 5)
        case 2:  # unlucky mixtures: some source comes seldom
            for one in draw.recipe["data"]["sources"]:
                one["weight"] *= draw.dice.choice((1, 5, 20))
        case 3:  # a few hard documents
            strength = draw.some(0.1, 0.25)
            return replace(case, faults=(f"bad_data@{draw.step()}:what=hard,strength={strength},steps=1",))
        case _:
            pass
    return case


CAUSES: dict[str, Callable[[Case, _Draw], Case]] = {
    "garbled_text": _text("garbled", _MOVED, 0.4, (1, 3)),
    "html_text": _text("html", _MOVED, 0.4, (1, 3)),
    "wrong_language": _text("language", _MOVED, 0.4, (1, 3)),
    "repeated_text": _text("repetition", (*_MOVED, "step_drop", "repeated_data"), 0.4, (1, 3)),
    "tokenizer_mismatch": _text("tokenizer", _MOVED, 0.4, (2, 6)),
    "hard_documents": _text("hard", _MOVED, 0.4, (1, 2)),
    "oversampled_source": _oversampled,
    "mixture_shift": _shifted,
    "repeated_batch": _fault("repeat_batch:strength=1,steps={steps}", ("repeated_data", "step_drop"), 1, 1),
    "random_state_lost": _lost("lost_rng", ("repeated_data", "step_drop"), 1),
    "wrong_numbers": _wrong_numbers,
    "slow_compute": _fault("slow_rank:strength={strength},steps={steps}", _SLOW, 0.3, 1.5, ranked=True, late=5),
    "throttled_rank": _fault("throttle:strength={strength}", _SLOW, 0.5, 1.5, ranked=True, late=30),
    "communication_jitter": _fault(
        "jitter:strength={strength},steps={steps}",
        ("jitter", *_SLOW),
        *(0.4, 1.2),
        ranked=True,
        at_fault=False,
        late=10,
    ),
    "slow_network": _fault(
        "slow_network:strength={strength}",
        ("throughput_drop", "stall"),
        *(0.5, 1.5),
        ranked=True,
        at_fault=False,
        late=5,
    ),
    "loader_starvation": _fault(
        "loader_stall:strength={strength},steps={steps}", _SLOW, 0.5, 2, ranked=True, late=5
    ),
    "memory_leak": _fault("leak:strength={strength}", ("memory_growth",), 0.5, 1.5, ranked=True, late=40),
    "hung_collective": _hung,
    "accumulation_normalisation": _fault(
        "accumulation_bug:strength={strength}", ("gradient_shift", *_MOVED), 0.8, 1
    ),
    "learning_rate_jump": _fault(
        "lr_jump:strength={strength},steps={steps}", ("learning_rate_jump", "update_jump", *_MOVED), 0.5, 1
    ),
    "warmup_too_short": _too_short,
    "clipping_off": _clipping_off,
    "optimizer_state_lost": _lost("lost_optimizer_state", ("update_jump", *_MOVED), 0.8),
    "sequence_length_change": _fault(
        "length_change:strength={strength},what=shorter", ("sequence_length_change", "step_drop", *_MOVED), 0.8, 1
    ),
    "attention_logit_growth": _fault(
        "logit_growth:strength={strength},steps=80", ("logit_growth", *_MOVED), 0.7, 1.6, late=40
    ),
    "router_collapse": _router,
    "loss_scale_collapse": _loss_scale,
    "overfitting": _overfitting,
}
_OF_TWO_RANKS = (
    *("wrong_numbers", "slow_compute", "throttled_rank", "communication_jitter", "slow_network", "hung_collective"),
)
