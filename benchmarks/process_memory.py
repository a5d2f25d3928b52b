"""Peak resident memory of a training process over what `stoker plan` says, for drawn small models.

    .venv/bin/python benchmarks/process_memory.py --models 12

Each model trains four steps in a process of its own; glibc's allocator as it comes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
from typing import Any

import psutil
import torch

from plan_accuracy import drawn_case
from stoker.planning.machine import look_at_machine
from stoker.planning.memory import peak_memory
from stoker.planning.plan import beside_bytes
from stoker_step import build, recipe_of
from training_step_worker import batches

_STEPS = 4
_RECOMPUTE = ({"name": "none"}, {"name": "none"}, {"name": "full"}, {"name": "operations"})


def work(case: dict[str, Any]) -> dict[str, float]:
    """Train here; planned and highest resident bytes."""
    torch.set_num_threads(1)
    recipe = recipe_of(case, False, case["documents"] > 1)
    hardware = look_at_machine(recipe).model_copy(update={"runtime_bytes": psutil.Process().memory_info().rss})
    memory = peak_memory(recipe, case["vocabulary"], case["batch"], 1, "cpu")
    step = build(case, batches(case), False, case["documents"])
    for _ in range(_STEPS):
        step()
    return {
        "planned": memory.total + beside_bytes(memory, hardware),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Print planned and measured memory of each model, and the errors of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(work(options.case)))
        return
    draw, errors = random.Random(options.seed), []
    print("| model | recompute | planned, MiB | resident, MiB | error |")
    print("|---|---|---:|---:|---:|")
    for _ in range(options.models):
        case = drawn_case(draw)
        case["batch"] *= draw.choice([1, 2, 4])
        case["documents"] = draw.choice([1, 2])
        recompute = draw.choice(_RECOMPUTE)
        case["training"] = {"threads": 1, "device": "cpu", "memory": {"recompute": recompute}}
        command = [sys.executable, __file__, "--case", json.dumps(case)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        found = json.loads(answer)
        errors.append(found["planned"] / found["resident"] - 1)
        name = f"d{case['hidden']} l{case['layers']} f{case['ffn']} V{case['vocabulary']}"
        name += f" L{case['length']} B{case['batch']}"
        planned, resident = found["planned"] / 2**20, found["resident"] / 2**20
        print(
            f"| {name} | {recompute['name']} | {planned:,.0f} | {resident:,.0f} | {errors[-1]:+.0%} |", flush=True
        )
    sizes = sorted(map(abs, errors))
    print(f"\nmedian error {statistics.median(sizes):.0%}, largest {sizes[-1]:.0%}")


if __name__ == "__main__":
    main()
