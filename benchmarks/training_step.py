"""Tokens per second and peak memory of one training step: Stoker against its peers, and against the machine.

    .venv/bin/python benchmarks/training_step.py --peers /tmp/peers/bin/python

Every candidate trains the same Llama-shaped model in fp32 on the same stream of tokens, in its own
process with the same number of threads. Turns are taken (A B C, A B C, ...), so that a change in the
machine's state meets every candidate alike; only one works at a time. How to make the peers'
environment stands in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("training_step_worker.py")
SHAPE = {"hidden": 384, "layers": 8, "heads": 6, "ffn": 1024, "length": 512, "batch": 8}
CASES = {
    "8k": {**SHAPE, "vocabulary": 8192, "tied": False},
    "32k": {**SHAPE, "vocabulary": 32_000, "tied": True},
    "128k": {**SHAPE, "layers": 4, "vocabulary": 128_256, "tied": True, "batch": 4},
}
# Ours that say `documents` also keep packed documents apart (four in a sequence), which the peers do not do.
OURS = ("stoker", "stoker-compiled", "stoker-documents", "stoker-documents-compiled")
PEERS = ("huggingface", "huggingface-compiled", "litgpt", "litgpt-compiled")


@dataclass
class Candidate:
    """One process that runs steps when told to."""

    name: str
    process: subprocess.Popen[str]
    baseline: int = 0
    rounds: list[list[float]] = field(default_factory=list)
    peak: int = 0

    def ask(self, steps: int) -> dict[str, Any]:
        """Have it run `steps` steps; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"steps {steps}\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """Its next answer. Raises when it has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with code {self.process.wait()}; its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def seconds(self) -> float:
        """Seconds of a step: the median of its rounds' fastest steps."""
        return statistics.median(min(times) for times in self.rounds)

    def stop(self) -> None:
        """End it."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def start(name: str, interpreter: str, case: dict[str, Any], options: argparse.Namespace) -> Candidate:
    """Start a candidate's process and learn its memory before it built anything."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        [
            interpreter,
            str(WORKER),
            name,
            json.dumps(case),
            "--threads",
            str(options.threads),
            "--clock",
            options.clock,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if options.quiet else None,
        text=True,
        env=environment,
    )
    candidate = Candidate(name, process)
    candidate.baseline = candidate.hear()["baseline"]
    return candidate


def measure(case: dict[str, Any], options: argparse.Namespace) -> tuple[list[Candidate], list[float]]:
    """Run all candidates in turns; also the machine's matrix-multiply peak of each round, FLOP/s."""
    names = [*OURS, *(PEERS if options.peers else ())]
    if options.only:
        names = [name for name in names if name in options.only]
    candidates, peaks = [], []
    reference = start("matmul", sys.executable, case, options)
    try:
        for name in names:
            interpreter = sys.executable if name in OURS else options.peers
            candidate = start(name, interpreter, case, options)
            candidates.append(candidate)
            candidate.ask(options.warmup)
            print(f"  {name} is warm", file=sys.stderr)
        for _ in range(options.rounds):
            peaks.append(max(reference.ask(2)["values"]))
            for candidate in candidates:
                answer = candidate.ask(options.steps)
                candidate.rounds.append(answer["values"])
                candidate.peak = max(candidate.peak, answer["peak"])
    finally:
        for candidate in [reference, *candidates]:
            candidate.stop()
    return candidates, peaks


def flops_per_token(case: dict[str, Any]) -> tuple[int, int]:
    """Model FLOPs of one trained token as `stoker plan` counts them: with full attention, and with causal."""
    from stoker.model import flops_per_token as count
    from stoker_step import recipe_of

    flops = count(recipe_of(case).model, case["vocabulary"], case["length"])
    return flops.full, flops.causal


def table(case: dict[str, Any], flops: tuple[int, int], candidates: list[Candidate], peaks: list[float]) -> str:
    """The results, as a Markdown table."""
    tokens, peak = case["batch"] * case["length"], statistics.median(peaks)
    peers = [c for c in candidates if c.name in PEERS]
    fastest = min((c.seconds() for c in peers), default=None)
    leanest = min((c.peak - c.baseline for c in peers), default=None)
    lines = [
        "| candidate | tokens/s | over best peer | step, s | peak memory, MiB | over best peer | of peak, full "
        "attention | causal |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for c in candidates:
        seconds, memory = c.seconds(), c.peak - c.baseline
        speed = f"{fastest / seconds:.2f}" if fastest else "–"
        lean = f"{memory / leanest:.2f}" if leanest else "–"
        full, causal = (f"{count * tokens / seconds / peak:.0%}" for count in flops)
        lines.append(
            f"| {c.name} | {tokens / seconds:,.0f} | {speed} | {seconds:.3f} | {memory / 2**20:,.0f} | {lean} "
            f"| {full} | {causal} |"
        )
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def main() -> None:
    """Measure the cases asked for and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", help="Python interpreter that has transformers, accelerate and litgpt")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=["8k", "32k"])
    parser.add_argument("--only", nargs="*", choices=[*OURS, *PEERS])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps in each turn; the fastest counts")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="`processor` counts a process's own time: for one thread on a machine that others use as well",
    )
    parser.add_argument("--quiet", action="store_true", help="hide the candidates' own messages")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    for name in options.cases:
        case = CASES[name]
        flops = flops_per_token(case)
        candidates, peaks = measure(case, options)
        print(
            f"\nCase {name}: {case}; {options.threads} threads, fp32, {options.clock} time; {date.today()}, "
            f"{processor()}"
        )
        print(f"matmul peak {statistics.median(peaks) / 1e9:.0f} GFLOP/s (rounds: ", end="")
        print(", ".join(f"{p / 1e9:.0f}" for p in peaks) + ")\n")
        print(table(case, flops, candidates, peaks), flush=True)


if __name__ == "__main__":
    main()
