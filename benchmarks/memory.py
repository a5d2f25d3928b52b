"""What recomputation and offload cost, and what they save: measured beside each other, and beside the plan.

    .venv/bin/python benchmarks/memory.py recompute offload

`recompute`: in turns, by processor time, which other work on the machine enters little; peaks are counted bytes.
The budgets are the largest with which the plan's peak is that of full recomputation, and others between it and
keeping everything. `offload`: on a processor, host memory is the device's own, so the link is simulated by a thread
that copies and holds to a rate; the stall is what backward waits for it.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from datetime import date
from queue import Queue
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from stoker.model import Decoder, initialise
from stoker.parallel.offload import Offload, Rest
from stoker.parallel.recompute import recompute
from stoker.planning.memory import peak_memory, recomputation_of_rank
from stoker.recipe import Recipe

MODEL = {"hidden_size": 384, "layers": 8, "heads": 6, "ffn_hidden_size": 1024}
LENGTH, BATCH = 512, 2
MIB = 2**20


def recipe_of(wanted: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "memory",
            "data": {"sources": [{"name": "none", "paths": ["none"]}]},
            "model": MODEL,
            "training": {
                "steps": 1,
                "sequence_length": LENGTH,
                "global_batch_size": BATCH,
                "micro_batch_size": BATCH,
                "document_mask": False,
                "memory": {"recompute": wanted},
            },
        }
    )


def planned_bytes(wanted: dict[str, Any], vocabulary: int) -> int:
    return peak_memory(recipe_of(wanted), vocabulary, BATCH, 1, "cpu").total


def largest_budget(limit: int, vocabulary: int) -> float:
    """MiB with which the plan's peak is at most `limit` bytes."""
    low, high = None, 4096.0
    step = high
    while step > 0.25:
        step /= 2
        trial = (low or 0.0) + step
        try:
            fits = planned_bytes({"name": "budget", "budget_mib": trial}, vocabulary) <= limit
        except Exception:  # less than the layers' inputs
            fits = True
        low = trial if fits else low
    assert low is not None
    return low


def model_of(wanted: dict[str, Any], vocabulary: int) -> Decoder:
    recipe = recipe_of(wanted)
    model = Decoder(recipe.model, vocabulary, LENGTH)
    initialise(model, recipe.model, 0)
    recompute(model.train(), recomputation_of_rank(recipe, vocabulary, "cpu", 0).layers)
    return model


def step_of(model: Decoder, vocabulary: int) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)

    def step() -> None:
        model(tokens, tokens, loss_scale=1 / tokens.numel()).loss_sum.backward()
        model.zero_grad(set_to_none=True)

    return step


def peak_bytes(function: Callable[[], None]) -> int:
    """Most bytes that torch has allocated at once beyond what it had."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        function()
    assert recorded.profiler is not None
    held = highest = 0
    for event in sorted(recorded.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            highest = max(highest, held)
    return highest


def compare_recomputations(rounds: int, vocabulary: int) -> None:
    full = planned_bytes({"name": "full"}, vocabulary)
    everything = planned_bytes({"name": "none"}, vocabulary)
    same = largest_budget(full, vocabulary)
    ways: dict[str, dict[str, Any]] = {
        "none": {"name": "none"},
        "full": {"name": "full"},
        "every second layer": {"name": "full", "every": 2},
        "cheap operations": {"name": "operations"},
        f"budget of {same:.0f} MiB (plan: the peak of full)": {"name": "budget", "budget_mib": same},
    }
    for share in (0.25, 0.5):
        size = largest_budget(int(full + share * (everything - full)), vocabulary)
        ways[f"budget of {size:.0f} MiB"] = {"name": "budget", "budget_mib": size}
    torch.set_num_threads(1)
    steps = {name: step_of(model_of(wanted, vocabulary), vocabulary) for name, wanted in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            before = time.process_time()
            step()
            seconds[name].append(time.process_time() - before)
    peaks = {}
    for name, step in steps.items():
        peaks[name] = peak_bytes(step)
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    added = middle["full"] - middle["none"]
    print(f"\nVocabulary {vocabulary:,}, {BATCH} sequences of {LENGTH} tokens, fp32, one thread,")
    print(f"{rounds} rounds, {date.today()}:\n")
    print("| recompute | step, s | added | added, of full's | peak of the passes, MiB | planned, MiB |")
    print("|---|---:|---:|---:|---:|---:|")
    weights = peak_memory(recipe_of({"name": "none"}), vocabulary, BATCH, 1, "cpu")
    for name, wanted in ways.items():
        more = middle[name] - middle["none"]
        planned = planned_bytes(wanted, vocabulary) - weights.parameters - weights.optimizer
        print(
            f"| {name} | {middle[name]:.3f} | {more / middle['none']:.1%} | {more / added:.2f} | "
            f"{peaks[name] / MIB:,.0f} | {planned / MIB:,.0f} |"
        )


class SimulatedLink:
    """Copies on a thread of its own, no faster than so many bytes a second."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.stalled = 0.0
        self.moved = 0
        self._wanted: Queue[tuple[Callable[[], int], threading.Event]] = Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            copy, done = self._wanted.get()
            begun = time.perf_counter()
            size = copy()
            self.moved += size
            time.sleep(max(0.0, size / self.rate - (time.perf_counter() - begun)))
            done.set()

    def put(self, copy: Callable[[], int]) -> threading.Event:
        done = threading.Event()
        self._wanted.put((copy, done))
        return done

    def rest(self, tensor: Tensor) -> Away:
        return Away(self, tensor)


class Away:
    """A tensor at the other end of a simulated link."""

    def __init__(self, link: SimulatedLink, tensor: Tensor) -> None:
        self._link, self._host, self._back = link, tensor, tensor
        self._arrived: threading.Event | None = None
        link.put(self._send)

    def _send(self) -> int:
        self._host = torch.empty_like(self._host).copy_(self._host)
        return self._host.nbytes

    def _bring(self) -> int:
        self._back = torch.empty_like(self._host).copy_(self._host)
        return self._back.nbytes

    def fetch(self) -> None:
        if self._arrived is None:
            self._arrived = self._link.put(self._bring)

    def here(self) -> Tensor:
        self.fetch()
        assert self._arrived is not None
        begun = time.perf_counter()
        self._arrived.wait()
        self._link.stalled += time.perf_counter() - begun
        return self._back


def compare_offload(rounds: int, vocabulary: int) -> None:
    torch.set_num_threads(1)
    model = model_of({"name": "operations"}, vocabulary)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, vocabulary, (BATCH, LENGTH), generator=generator)
    plain_step = step_of(model, vocabulary)
    plain_step()
    begun = time.perf_counter()
    plain_step()
    plain = time.perf_counter() - begun
    probe = SimulatedLink(float("inf"))
    away = Offload(model, torch.device("cpu"), lambda tensor: links[-1].rest(tensor))
    links = [probe]

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with Rest(away, long=False).saving():
            losses = model(tokens, tokens, loss_scale=1 / tokens.numel())
        losses.loss_sum.backward()

    step()
    needed = probe.moved / plain
    print(
        f"\nOffload of {probe.moved / 2 / MIB:,.0f} MiB of activations a step, {rounds} rounds, {date.today()}:\n"
    )
    print("| link, of what hides everything | GB/s | step, s | over no offload | stall, of the step |")
    print("|---|---:|---:|---:|---:|")
    for share in (4.0, 2.0, 1.0, 0.5):
        links.append(SimulatedLink(share * needed))
        times, without = [], []
        stalls = []
        for _ in range(rounds):
            begun = time.perf_counter()
            plain_step()
            without.append(time.perf_counter() - begun)
            links[-1].stalled, begun = 0.0, time.perf_counter()
            step()
            times.append(time.perf_counter() - begun)
            stalls.append(links[-1].stalled / times[-1])
        middle = statistics.median(times)
        over, stall = middle / statistics.median(without), statistics.median(stalls)
        print(f"| {share:g} | {links[-1].rate / 1e9:.2f} | {middle:.3f} | {over:.2f} | {stall:.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["recompute", "offload"], choices=["recompute", "offload"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--vocabularies", type=int, nargs="*", default=[8192, 32_000])
    given = parser.parse_args()
    for vocabulary in given.vocabularies:
        if "recompute" in given.what:
            compare_recomputations(given.rounds, vocabulary)
    if "offload" in given.what:
        compare_offload(given.rounds, given.vocabularies[0])


if __name__ == "__main__":
    main()
