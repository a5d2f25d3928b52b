"""One candidate of `training_step.py`: builds its model, then runs steps when told to.

Runs under the candidate's own interpreter, in its own process. Reads `steps N` and `quit` from
standard input, answers one JSON line each. Nothing here imports another candidate's package.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], float]
CLOCK: Callable[[], float] = time.perf_counter


def memory_bytes(field: str) -> int:
    """A figure of /proc/self/status, in bytes: `VmRSS` now or `VmHWM` at the highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Let the kernel's high-water mark of resident memory start again from now."""
    Path("/proc/self/clear_refs").write_text("5")


def batches(case: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Token ids [batch, length + 1], the same stream for every candidate."""
    generator = torch.Generator().manual_seed(0)
    shape = (case["batch"], case["length"] + 1)
    while True:
        yield torch.randint(0, case["vocabulary"], shape, generator=generator)


def stoker(case: dict[str, Any], compiled: bool, documents: int) -> Step:
    """Stoker's model and its step."""
    from stoker_step import build

    return build(case, batches(case), compiled, documents)


def litgpt(case: dict[str, Any], compiled: bool) -> Step:
    """LitGPT's GPT in the step of its own `pretrain` script: Fabric, chunked cross-entropy, clipping, AdamW."""
    import lightning
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import chunked_cross_entropy

    config = Config(
        name="benchmark",
        block_size=case["length"],
        vocab_size=case["vocabulary"],
        padded_vocab_size=case["vocabulary"],
        n_layer=case["layers"],
        n_head=case["heads"],
        n_embd=case["hidden"],
        n_query_groups=case["heads"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        norm_eps=1e-5,
        mlp_class_name="LLaMAMLP",
        intermediate_size=case["ffn"],
    )
    fabric = lightning.Fabric(devices=1, accelerator="cpu", precision="32-true")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    model = GPT(config)
    if case["tied"]:
        model.transformer.wte.weight = model.lm_head.weight
    model.max_seq_length = case["length"]
    model = fabric.setup(torch.compile(model) if compiled else model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=False)
    optimizer = fabric.setup_optimizers(optimizer)
    stream = batches(case)

    def step() -> float:
        tokens = next(stream)
        logits = model(tokens[:, :-1].contiguous())
        loss = chunked_cross_entropy(logits, tokens[:, 1:].contiguous())
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def huggingface(case: dict[str, Any], compiled: bool) -> None:
    """Hugging Face's LlamaForCausalLM under its Trainer, which owns the loop: a callback stops between steps."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=case["vocabulary"],
        hidden_size=case["hidden"],
        intermediate_size=case["ffn"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        num_key_value_heads=case["heads"],
        max_position_embeddings=case["length"],
        tie_word_embeddings=case["tied"],
        attn_implementation="sdpa",
        use_cache=False,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)

    class Stream(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            for batch in batches(case):
                for row in batch:
                    # The model shifts labels itself: the same count of positions as the others.
                    yield {"input_ids": row[:-1], "labels": row[:-1].clone()}

    class Pause(transformers.TrainerCallback):
        """Stops the Trainer's loop between steps when no more are wanted for now."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            turn.finished()

    turn = Turns()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=case["batch"],
            max_steps=1_000_000,
            learning_rate=3e-4,
            adam_beta2=0.95,
            weight_decay=0.1,
            max_grad_norm=1.0,
            use_cpu=True,
            torch_compile=compiled,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Stream(), callbacks=[Pause()])
        with contextlib.suppress(Turns.Over):
            turn.begin()
            trainer.train()


class Turns:
    """Turns a loop that owns the thread into answers to `steps N`: waits for orders between two steps."""

    class Over(Exception):
        """No more steps are wanted."""

    def __init__(self) -> None:
        self._left = 0
        self._times: list[float] = []
        self._start = 0.0

    def begin(self) -> None:
        """Wait for the first order."""
        self._await_order()

    def finished(self) -> None:
        """One step is done."""
        now = CLOCK()
        self._times.append(now - self._start)
        self._start = now
        self._left -= 1
        if self._left == 0:
            answer(self._times)
            self._await_order()

    def _await_order(self) -> None:
        order = read_order()
        if order is None:
            raise self.Over
        self._left, self._times = order, []
        self._start = CLOCK()


def matmul(case: dict[str, Any]) -> None:
    """The machine's own peak: the best rate of square fp32 products, in FLOP/s for each `step`."""
    sizes = [1024, 1536, 2048, 3072]
    pairs = [(torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)) for n in sizes]
    while (order := read_order()) is not None:
        rates = []
        for _ in range(order):
            for n, (a, b, out) in zip(sizes, pairs, strict=True):
                start = CLOCK()
                torch.mm(a, b, out=out)
                rates.append(2 * n**3 / (CLOCK() - start))
        answer(rates)


def read_order() -> int | None:
    """The number of steps wanted next; None at the end."""
    words = sys.stdin.readline().split()
    return int(words[1]) if words[:1] == ["steps"] else None


def answer(times: list[float]) -> None:
    """Send times (or rates) and memory to the parent."""
    line = {"values": times, "peak": memory_bytes("VmHWM"), "resident": memory_bytes("VmRSS")}
    os.write(REPLY, (json.dumps(line) + "\n").encode())


def serve(step: Step) -> None:
    """Run `step` as often as told, until told to stop."""
    while (order := read_order()) is not None:
        times = []
        for _ in range(order):
            start = CLOCK()
            step()
            times.append(CLOCK() - start)
        answer(times)


def load(candidate: str) -> None:
    """Import what the candidate needs, so that libraries do not count as its memory."""
    packages = {"stoker": ["stoker_step"], "litgpt": ["lightning", "litgpt.model"], "huggingface": ["transformers"]}
    for name in packages.get(candidate.split("-")[0], []):
        importlib.import_module(name)
    if candidate.startswith("huggingface"):
        importlib.import_module("transformers").LlamaForCausalLM  # noqa: B018 - loads the lazy module
        importlib.import_module("transformers").Trainer  # noqa: B018
    if candidate.endswith("compiled"):
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, requires_grad=True)).sum().backward()
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))


def main() -> None:
    """Build the candidate named on the command line and serve orders."""
    parser = argparse.ArgumentParser()
    parser.add_argument("candidate")
    parser.add_argument("case", type=json.loads)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--clock", choices=["wall", "processor"], required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.clock == "processor":
        global CLOCK
        CLOCK = time.process_time
    sys.path.insert(0, str(Path(__file__).parent))
    name, case = options.candidate, options.case
    load(name)
    baseline = memory_bytes("VmRSS")
    forget_peak()
    os.write(REPLY, (json.dumps({"baseline": baseline, "torch": torch.__version__}) + "\n").encode())
    compiled = name.endswith("compiled")
    if name == "matmul":
        matmul(case)
    elif name.startswith("huggingface"):
        huggingface(case, compiled)
    elif name.startswith("litgpt"):
        serve(litgpt(case, compiled))
    else:
        serve(stoker(case, compiled, 4 if "documents" in name else 1))


if __name__ == "__main__":
    # Libraries print to standard output: answers go to a copy of it, the rest to standard error.
    REPLY = os.dup(1)
    os.dup2(2, 1)
    main()
