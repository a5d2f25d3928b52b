from __future__ import annotations

from typing import Any


def step_row(step: int, attempt: int = 1, batch: int = 4, **changed: Any) -> dict[str, Any]:
    """A step row of a run with `batch` sequences a step."""
    return {
        "attempt": attempt,
        "step": step,
        "time": 1_700_000_000.0 + step,
        "loss": 5.0 / step,
        "loss_by_source": {"english": 4.0 / step, "中文": 6.0 / step},
        "tokens_by_source": {"english": 100, "中文": 28},
        "gradient_norm": 0.5,
        "gradient_norm_by_module": {"blocks.0.attention": 0.1} if step % 10 == 0 else None,
        "learning_rate": 1e-3,
        "tokens": 128,
        "tokens_seen": 128 * step,
        "first_sample": (step - 1) * batch,
        "last_sample": step * batch,
        "batch_digest": f"digest-{step}",
        "accumulation": 1,
        "clipped": False,
        "skipped": False,
        "loss_scale": None,
        "dead_updates": None,
        "seconds": {"data": 0.01, "forward": 0.1, "backward": 0.2, "total": 0.35},
        "memory_peak_bytes": 2**30,
        "ranks": 1,
    } | changed
