"""Run folders made up for the tests of the report: a whole run with everything that can happen, or parts of one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stoker.record import RecordWriter
from stoker.run_directory import RunDirectory

SOURCES = {"english": (0.4, 3.25), "chinese": (0.25, 4.0), "code": (0.25, 2.1), "mathematics": (0.1, 2.75)}
NEVER = 3600.0


@dataclass
class SyntheticRun:
    """What to make up. Everything is drawn from `seed`; equal values give equal folders."""

    name: str = "bellows-30m"
    steps: int = 400
    planned_steps: int = 400
    seed: int = 7
    layers: int = 8
    final_loss: float = 0.0
    """Added to every loss, to tell runs apart."""
    resume_from: int | None = 180
    """A second attempt goes on from here, after the first got 15 steps further."""
    spikes: tuple[int, ...] = (131, 290)
    not_finite: tuple[int, ...] = ()
    evaluate_every: int = 50
    prompts: tuple[str, ...] = ("The furnace", "从前有一座山,", "def fibonacci(n):")
    plan: bool = True
    corpus: bool = True
    environment: bool = True
    ending: str | None = "finished"
    checkpoints: tuple[int, ...] = (300, 400)
    changed_recipe: dict[str, Any] = field(default_factory=dict)
    source_names: tuple[str, ...] = tuple(SOURCES)
    continuation: str = " a river of light, and the iron"

    def write(self, folder: Path) -> RunDirectory:
        """Write the run into `folder`."""
        run = RunDirectory(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run.recipe.write_text(yaml.safe_dump(self.recipe(), allow_unicode=True, sort_keys=False), encoding="utf-8")
        if self.environment:
            run.environment.write_text(json.dumps(_ENVIRONMENT))
        if self.plan:
            run.plan.write_text(json.dumps(_PLAN))
        if self.corpus:
            run.corpus.write_text(json.dumps(self.manifest(), ensure_ascii=False))
        for step in self.checkpoints:
            checkpoint = run.checkpoints / f"step-{step:08d}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "data.bin").write_bytes(bytes(1000 * step))
        self.write_record(run)
        return run

    def write_record(self, run: RunDirectory) -> None:
        """Write the record alone."""
        writer = RecordWriter(run.record, 0, NEVER)
        if self.steps and self.resume_from is not None and self.resume_from < self.steps:
            self._attempt(writer, 1, 1, min(self.resume_from + 15, self.steps), ending=None)
            self._attempt(writer, 2, self.resume_from + 1, self.steps, self.ending)
        else:
            self._attempt(writer, 1, 1, self.steps, self.ending)
        assert writer.close()

    def _attempt(self, writer: RecordWriter, attempt: int, first: int, last: int, ending: str | None) -> None:
        began = 1_795_900_000.0 + 100_000 * (attempt - 1)

        def event(step: int, name: str, **detail: Any) -> None:
            row = {"step": step, "event": name, "attempt": attempt, "time": began + step, "detail": detail}
            writer.append("event", row)

        event(first - 1, "started" if first == 1 else "resumed")
        for step in range(first, last + 1):
            row = self.step_row(step, attempt, began + step)
            writer.append("step", row)
            if not math.isfinite(row["loss"]):
                event(step, "non_finite", samples=[row["first_sample"], row["last_sample"]])
            if self.evaluate_every and (step % self.evaluate_every == 0 or step == last):
                self._evaluate(writer, step)
            if step % 100 == 0:
                event(step, "saved", seconds=0.8)
            if step % 1000 == 0:
                writer.flush()
        if ending:
            event(last, ending)

    def _evaluate(self, writer: RecordWriter, step: int) -> None:
        for index, name in enumerate(self.source_names):
            level = list(SOURCES.values())[index % len(SOURCES)][1]
            loss = _curve(step, level, self.planned_steps) + 0.06 + self.final_loss
            tokens, size = 12_000 - 1000 * index, 48_000 - 3000 * index
            score = {"step": step, "source": name, "loss": loss, "tokens": tokens, "bytes": size}
            score |= {"perplexity": math.exp(loss), "bits_per_byte": loss * tokens / math.log(2) / size}
            writer.append("evaluation", score)
        for prompt in self.prompts:
            text = (self.continuation * 3) if step > self.planned_steps / 3 else " the the of , the a of and the"
            if "山" in prompt:
                text = (
                    "山上有一座庙,庙里有一个老和尚在讲故事。"
                    if step > self.planned_steps / 3
                    else "的的了是的一不在"
                )
            writer.append("sample", {"step": step, "prompt": prompt, "text": text})

    def step_row(self, step: int, attempt: int, time: float) -> dict[str, Any]:
        """The row of one step."""
        draw = np.random.default_rng((self.seed, step))
        noise = draw.normal(0, 0.05)
        spike = 1.6 if step in self.spikes else 0.0
        losses = {
            name: _curve(step, list(SOURCES.values())[i % len(SOURCES)][1], self.planned_steps)
            + noise * (1 + i / 4) + spike + self.final_loss
            for i, name in enumerate(self.source_names)
        }  # fmt: skip
        shares = np.array([list(SOURCES.values())[i % len(SOURCES)][0] for i in range(len(losses))])
        loss = float(np.average(list(losses.values()), weights=shares))
        norm = 0.35 + 2.2 / (1 + step / 25) + abs(draw.normal(0, 0.04)) + 4 * spike
        if step in self.not_finite:
            loss = norm = math.nan
            losses = dict.fromkeys(losses, math.nan)
        modules = {
            "embedding": 0.4,
            **{f"blocks.{i}": 0.5 / (1 + 0.2 * i) for i in range(self.layers)},
            "norm": 0.02,
        }
        evaluated = self.evaluate_every and step % self.evaluate_every == 1 and step > 1
        seconds = {
            "data": 0.004 + 0.001 * draw.random(),
            "forward": 0.31 + 0.02 * draw.random(),
            "backward": 0.62 + 0.03 * draw.random(),
            "communication": 0.05 + 0.01 * draw.random(),
            "optimizer": 0.07 + 0.004 * draw.random(),
            "evaluation": 1.4 if evaluated else 0.0,
            "checkpoint": 0.8 if step % 100 == 1 and step > 1 else 0.0,
        }
        warmup = min(1.0, step / (0.05 * self.planned_steps + 1))
        decay = 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, step / self.planned_steps)))
        return {
            "attempt": attempt,
            "step": step,
            "time": time,
            "loss": loss,
            "loss_by_source": losses,
            "tokens_by_source": {n: int(16_384 * s / shares.sum()) for n, s in zip(losses, shares, strict=True)},
            "gradient_norm": norm,
            "gradient_norm_by_module": (
                {name: level * norm * (1 + 0.2 * draw.random()) for name, level in modules.items()}
                if step % 10 == 0
                else None
            ),
            "learning_rate": 3e-4 * warmup * decay,
            "tokens": 16_384,
            "tokens_seen": 16_384 * step,
            "first_sample": (step - 1) * 32,
            "last_sample": step * 32,
            "batch_digest": f"{step:016x}",
            "accumulation": 2,
            "clipped": norm > 1,
            "skipped": False,
            "loss_scale": None,
            "dead_updates": None,
            "seconds": {**seconds, "total": sum(seconds.values()) + 0.01},
            "memory_peak_bytes": int(1.9 * 2**30 + min(step, 5) * 2**24),
            "ranks": 1,
        }

    def recipe(self) -> dict[str, Any]:
        """The recipe in full, as far as the report reads it."""
        recipe: dict[str, Any] = {
            "name": self.name,
            "seed": self.seed,
            "data": {"sources": [{"name": name, "paths": ["text/*.txt"]} for name in self.source_names]},
            "model": {
                "hidden_size": 512,
                "layers": self.layers,
                "heads": 8,
                "kv_heads": 4,
                "ffn_hidden_size": 1408,
                "tie_embeddings": True,
            },
            "training": {
                "steps": self.planned_steps,
                "sequence_length": 512,
                "global_batch_size": 32,
                "gradient_clip": 1.0,
                "optimizer": {"name": "adamw", "learning_rate": 3e-4},
            },
            "evaluation": {"every": self.evaluate_every, "prompts": list(self.prompts)},
        }
        for path, value in self.changed_recipe.items():
            *sections, last = path.split(".")
            place = recipe
            for section in sections:
                place = place[section]
            place[last] = value
        return recipe

    def manifest(self) -> dict[str, Any]:
        """The prepared corpus's manifest."""
        sources, funnel = [], []
        for index, name in enumerate(self.source_names):
            documents, size = 4200 - 600 * index, 5_400_000 - 900_000 * index
            losses = {"filter too_short": 160, "filter repeated_lines": 45 + 30 * index, "held_out": 42}
            losses |= {"held_out_duplicate held_out_near_training_text": 6}
            losses |= {"exact_duplicate": 210 * (index + 1), "near_duplicate": 97 * (index + 1)}
            kept = documents - sum(losses.values())
            funnel.append(_stage(name, "read", documents, size))
            funnel.append(_stage(name, "fault", 2 + index, 900, "invalid_utf8"))
            for stage, count in losses.items():
                kind, _, reason = stage.partition(" ")
                funnel.append(_stage(name, kind, count, size * count // documents, reason or None))
            funnel.append(_stage(name, "kept", kept, size * kept // documents))
            train = {
                "documents": kept,
                "tokens": size // 4,
                "bytes": size,
                "characters": size - 40 * index,
                "shards": [],
            }
            held_out = {"documents": 36, "tokens": 12_000, "bytes": 48_000, "characters": 47_000, "shards": []}
            sources.append(
                {
                    "name": name,
                    "kind": {"code": "code", "mathematics": "mathematics"}.get(name, "prose"),
                    "language": {"english": "en", "chinese": "zh"}.get(name),
                    "licence": {"english": "public domain", "chinese": "MIT"}.get(name, "BSD-3-Clause"),
                    "splits": {"train": train, "held_out": held_out},
                }
            )
        tokenizer = {
            "sha256": "0" * 64,
            "vocabulary_size": 8192,
            "bos_id": 0,
            "eos_id": 1,
            "adds_bos": True,
            "adds_eos": True,
        }
        return {
            "format": 1,
            "fingerprint": "0123456789abcdef",
            "tokenizer": tokenizer,
            "sources": sources,
            "funnel": funnel,
        }


def _stage(source: str, stage: str, documents: int, size: int, reason: str | None = None) -> dict[str, Any]:
    row = {"source": source, "stage": stage, "documents": documents, "bytes": size}
    return row if reason is None else row | {"reason": reason}


def _curve(step: int, level: float, planned: int) -> float:
    """A loss that falls from about 9 to `level`."""
    return level + (9.0 - level) * (1 + step / (0.01 * planned + 2)) ** -0.9


_ENVIRONMENT = {
    "stoker": {"version": "0.1.0", "commit": "5f0c1d2e3b4a59687786950a1b2c3d4e5f607182"},
    "python": "3.11.9",
    "packages": {"torch": "2.13.0", "numpy": "2.4.6", "tokenizers": "0.23.1"},
    "device": {"type": "cpu", "name": "AMD EPYC 9J14 96-Core Processor"},
    "accelerators": [],
    "processor": {"name": "AMD EPYC 9J14 96-Core Processor", "cores": 2, "logical_cores": 4, "usable_cores": 2},
    "memory_bytes": 24_000_000_000,
    "threads": 2,
    "operating_system": "Debian GNU/Linux 12 (bookworm), Linux 6.1.0",
    "host": "furnace-01",
}
_PLAN = {
    "layout": {"dp_replicate": 1, "dp_shard": 1},
    "micro_batch_size": 16,
    "peak_memory_gib": {
        "parameters": 0.11,
        "gradients": 0.11,
        "optimizer": 0.22,
        "activations": 1.05,
        "buffers": 0.31,
        "total": 1.8,
    },
    "step_seconds": {
        "compute": 0.9,
        "tp": 0.0,
        "cp": 0.0,
        "ep": 0.0,
        "dp": 0.0,
        "pp_bubble": 0.0,
        "offload": 0.0,
        "optimizer": 0.05,
        "total": 1.02,
    },
    "tokens_per_second_per_gpu": 16_060.0,
    "mfu": 0.62,
    "total_hours": 0.1133,
    "reasons": ["27,814,400 parameters", "measured with 2 threads: 322 GFLOP/s"],
    "warnings": ["little memory is left"],
}
