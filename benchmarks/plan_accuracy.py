"""How right `stoker plan` is about step time and memory on this machine, over drawn small models.

    .venv/bin/python benchmarks/plan_accuracy.py --models 8 --threads 1

For each model the machine is measured, the plan is made, and the real step is run straight after, so that
both meet the machine in the same state. Peak memory is what torch allocates beyond
parameters and optimizer state.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from stoker.planning import make_plan, measure_machine
from stoker.planning.memory import peak_memory

sys.path.insert(0, str(Path(__file__).parent))
from stoker_step import build, recipe_of
from training_step_worker import batches


def drawn_case(draw: random.Random) -> dict[str, Any]:
    """A benchmark case whose step takes between a tenth of a second and a few seconds."""
    head_size, heads = draw.choice([32, 64]), draw.choice([4, 6, 8])
    length = draw.choice([256, 512, 1024])
    return {
        "hidden": head_size * heads,
        "layers": draw.choice([2, 4, 6]),
        "heads": heads,
        "ffn": draw.choice([512, 1024, 1536]),
        "vocabulary": draw.choice([4096, 8192, 32000]),
        "length": length,
        "batch": draw.choice([1024, 2048, 4096]) // length,
        "tied": draw.random() < 0.5,
        "model": {
            "activation": draw.choice(["swiglu", "swiglu", "gelu"]),
            "norm": draw.choice(["rms", "rms", "layer"]),
            "qk_norm": draw.choice(["none", "none", "head"]),
            "kv_heads": draw.choice([heads, 2]),
        },
    }


def counted_bytes(step: Any) -> int:
    """Most bytes that one step holds beyond what there was before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        step()
    assert recorded.profiler is not None
    held = highest = 0
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest


def main() -> None:
    """Print predicted and measured figures of each model, and the errors of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5, help="steps run for each model; their median counts")
    parser.add_argument("--documents", action="store_true", help="pack two documents into each sequence")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall", help="as in training_step.py")
    options = parser.parse_args()
    clock = time.process_time if options.clock == "processor" else time.perf_counter
    torch.set_num_threads(options.threads)
    print("| model | tokens | planned, s | median, s | fastest, s | error | planned, MiB | counted, MiB | error |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    draw, time_errors, memory_errors = random.Random(options.seed), [], []
    for _ in range(options.models):
        case = drawn_case(draw)
        case["training"] = {"threads": options.threads, "device": "cpu"}
        documents = 2 if options.documents else 1
        recipe = recipe_of(case, options.compiled, documents > 1)
        step = build(case, batches(case), options.compiled, documents)
        step()
        step()
        plan = make_plan(recipe, case["vocabulary"], measure_machine(recipe, case["vocabulary"]))
        seconds = []
        for _ in range(options.steps):
            start = clock()
            step()
            seconds.append(clock() - start)
        median = statistics.median(seconds)
        memory = peak_memory(recipe, case["vocabulary"], case["batch"], 1, "cpu")
        planned_mib = (memory.total - memory.parameters - memory.optimizer) / 2**20
        counted = counted_bytes(step) / 2**20
        time_errors.append(plan.step_seconds.total / median - 1)
        memory_errors.append(planned_mib / counted - 1)
        model = case["model"]
        name = f"d{case['hidden']} l{case['layers']} h{case['heads']}/{model['kv_heads']} f{case['ffn']}"
        name += f" {model['activation']} {model['norm']} V{case['vocabulary']} L{case['length']}"
        print(
            f"| {name} | {case['batch'] * case['length']} | {plan.step_seconds.total:.3f} | {median:.3f} "
            f"| {min(seconds):.3f} | {time_errors[-1]:+.0%} | {planned_mib:.0f} | {counted:.0f} "
            f"| {memory_errors[-1]:+.0%} |",
            flush=True,
        )
    for what, errors in (("time", time_errors), ("memory", memory_errors)):
        size = sorted(abs(error) for error in errors)
        print(f"\n{what}: median error {statistics.median(size):.0%}, largest {size[-1]:.0%}")


if __name__ == "__main__":
    main()
