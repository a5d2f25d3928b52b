"""How fast this machine does a model's operations, measured on the operations themselves.

The model's own block and loss are run on small batches: what they take beyond their matrix products and
attention, whose rates are measured alone, is the rate of everything that is bound by memory.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from stoker.model import Decoder, chunked_cross_entropy, initialise
from stoker.planning.activations import MicroBatch
from stoker.planning.memory import pass_of
from stoker.planning.operations import (
    DOCUMENTS_PER_SEQUENCE,
    Matmul,
    attention_flops,
    block_bytes,
    block_matmuls,
    loss_bytes,
    loss_matmuls,
    outside_bytes,
)
from stoker.planning.parts import local_model
from stoker.recipe import Model, Recipe

_SECONDS = 1.2
"""After this much measuring nothing is repeated any more."""
_BLOCK_SECONDS = 0.08
"""What one timed pass of a block may take on a machine that is free."""
_SQUARE_SECONDS = 0.3
"""What a large square product may take."""
_MATMUL_SECONDS = 0.006
_FEWEST_ROWS, _FEWEST_COLUMNS = 128, 2048
"""With fewer rows a product waits for the other matrix; with fewer columns a cache holds it."""
_REPEATS = 3


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MatmulRate(BaseModel):
    """The measured rate of one shape of matrix product."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inner: int = Field(gt=0)
    columns: int = Field(gt=0)
    flops_per_second: Rate


class Rates(BaseModel):
    """Measured rates of one rank, other ranks idle. Rates of bytes count what is read and what is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    matmul_flops_per_second: Rate
    """The best of large square products, in the type that the recipe computes in."""
    matmuls: tuple[MatmulRate, ...] = ()
    """Products of the model's own shapes."""
    attention_flops_per_second: Rate
    """Forward and backward, counting every pair of tokens, masked or not."""
    pointwise_bytes_per_second: Rate
    loss_bytes_per_second: Rate
    update_bytes_per_second: Rate
    copy_bytes_per_second: Rate
    """A copy between two buffers that no cache holds, by one rank's threads."""
    machine_copy_bytes_per_second: Rate
    """The same by all cores together, which bounds ranks that work at once."""

    def matmul_seconds(self, matmul: Matmul) -> float:
        """Time of one product: at the rate measured for its inner size and columns, or the nearest shape's."""
        rate = self.matmul_flops_per_second
        if self.matmuls and matmul.flops:

            def distance(known: MatmulRate) -> float:
                return abs(math.log(known.inner / matmul.inner)) + abs(math.log(known.columns / matmul.columns))

            rate = min(self.matmuls, key=distance).flops_per_second
        return matmul.flops / rate


@dataclass(frozen=True)
class Work:
    """What rates are measured for."""

    config: Model
    pass_: MicroBatch

    @classmethod
    def of(cls, recipe: Recipe | None, vocabulary_size: int) -> Work:
        """A recipe's shapes and precision; those of a small model without one."""
        if recipe is None:
            config = Model(hidden_size=512, layers=8, heads=8, ffn_hidden_size=1408)
            return cls(config, MicroBatch(8, 512, vocabulary_size, "fp32", False, False, True, 512))
        device = "cuda" if recipe.training.device != "cpu" and torch.cuda.is_available() else "cpu"
        pass_ = pass_of(recipe, vocabulary_size, recipe.micro_batch_size_at(recipe.training.steps), device)
        # Measured on one process, which has a rank's part of everything.
        pass_ = replace(pass_, cp=1, tp=1, ep=1, whole_experts=False)
        return cls(local_model(recipe.model, recipe.layout, 0), pass_)

    def dtype(self) -> torch.dtype:
        """The type matrix products are computed in."""
        if self.pass_.compute_width == 4:
            return torch.float32
        return torch.float16 if self.pass_.precision == "fp16" else torch.bfloat16


def measure_rates(work: Work, device: torch.device) -> Rates:
    """Measure everything for `work` on `device`, with the threads that are set; random state is left as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return _measure(work, device)


def _measure(work: Work, device: torch.device) -> Rates:
    timer = _Timer(device)
    dtype = work.dtype()
    peak = _matmul_rate(timer, Matmul(256, 256, 256), device, dtype)
    for n in (1024, 1536):
        if 2 * n**3 / peak < _SQUARE_SECONDS:  # 16-bit types may be slow on a processor
            peak = max(peak, _matmul_rate(timer, Matmul(n, n, n), device, dtype))
    if device.type == "cuda":
        peak = max(peak, _matmul_rate(timer, Matmul(8192, 8192, 8192), device, dtype))
    small = _shrink(work, peak)
    matmuls = _measure_matmuls(timer, small, peak, device)
    copy, machine_copy = _copy_rates(timer, device)
    rates = Rates(
        matmul_flops_per_second=max([peak, *(known.flops_per_second for known in matmuls)]),
        matmuls=matmuls,
        attention_flops_per_second=_attention_rate(timer, small, device),
        pointwise_bytes_per_second=copy,
        loss_bytes_per_second=copy,
        update_bytes_per_second=_update_rate(timer, device),
        copy_bytes_per_second=copy,
        machine_copy_bytes_per_second=machine_copy,
    )
    block, loss = _block_seconds(timer, small, device), _loss_seconds(timer, small, device)
    computing = sum(rates.matmul_seconds(m) for m in block_matmuls(small.config, small.pass_.tokens))
    computing += attention_flops(small.config, small.pass_) / rates.attention_flops_per_second
    of_loss = sum(rates.matmul_seconds(m) for m in loss_matmuls(small.config, small.pass_))
    # Compiled passes are not timed (compiling takes longer than a plan may): they move fewer bytes at this rate.
    eager = replace(small.pass_, compiled=False)
    moved = block_bytes(small.config, eager) + outside_bytes(small.config, eager)
    pointwise = _rest_rate(moved, block, computing, copy)
    return rates.model_copy(
        update={
            "pointwise_bytes_per_second": pointwise,
            "loss_bytes_per_second": _rest_rate(loss_bytes(small.config, small.pass_), loss, of_loss, copy),
        }
    )


def _rest_rate(moved: int, seconds: float, computing: float, copy: float) -> float:
    """Bytes over the time left when `computing` is taken away; within what can be true of any machine."""
    rest = max(seconds - computing, 0.02 * seconds, moved / (8 * copy))
    return max(moved / rest, 0.02 * copy)


class _Timer:
    """Times a function on a device: the fastest of a few calls, after one that warms up.

    One processor thread is timed by its own clock, so that other work on the machine does not enter;
    several wait for each other, and an accelerator for nobody: they are timed by the wall's. When time
    runs out, two calls have to do.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        alone = not self._cuda and torch.get_num_threads() == 1
        self._clock = time.process_time if alone else time.perf_counter
        self._deadline = self._clock() + _SECONDS

    def seconds(self, function: Callable[[], object]) -> float:
        """Seconds of one call."""
        first, best = self._one(function), self._one(function)
        self._deadline += max(0.0, first - best)  # what torch loads when something is first done is not measuring
        for _ in range(_REPEATS - 1):
            if self._clock() > self._deadline:
                break
            best = min(best, self._one(function))
        return min(first, best)

    def _one(self, function: Callable[[], object]) -> float:
        start = self._clock()
        function()
        if self._cuda:
            torch.cuda.synchronize()
        return self._clock() - start


def _matmul_rate(timer: _Timer, matmul: Matmul, device: torch.device, dtype: torch.dtype) -> float:
    left = torch.ones(matmul.rows, matmul.inner, device=device, dtype=dtype)
    right = torch.ones(matmul.inner, matmul.columns, device=device, dtype=dtype)
    out = torch.empty(matmul.rows, matmul.columns, device=device, dtype=dtype)
    return matmul.flops / timer.seconds(lambda: torch.mm(left, right, out=out))


def _measure_matmuls(timer: _Timer, work: Work, peak: float, device: torch.device) -> tuple[MatmulRate, ...]:
    """Rates of the block's and the loss's products, each cut to what may be spent on it."""
    wanted = block_matmuls(work.config, work.pass_.tokens) + loss_matmuls(work.config, work.pass_)
    known: dict[tuple[int, int], MatmulRate] = {}
    for matmul in wanted:
        key = (matmul.inner, matmul.columns)
        if key not in known:
            cut = _cut(matmul, int(peak * _MATMUL_SECONDS / 2))
            rate = _matmul_rate(timer, cut, device, work.dtype())
            known[key] = MatmulRate(inner=matmul.inner, columns=matmul.columns, flops_per_second=rate)
    return tuple(known.values())


def _cut(matmul: Matmul, elements: int) -> Matmul:
    """A product of so many multiplications that goes at about the same rate, or the smallest that does."""
    rows, inner, columns = matmul.rows, matmul.inner, matmul.columns
    rows = max(min(rows, _FEWEST_ROWS), min(rows, elements // (inner * columns)))
    columns = max(min(columns, _FEWEST_COLUMNS), min(columns, elements // (rows * inner)))
    inner = max(min(inner, _FEWEST_COLUMNS), min(inner, elements // (rows * columns)))
    return Matmul(rows, inner, columns)


def _shrink(work: Work, peak: float) -> Work:
    """The same work with so few sequences, then so narrow a model, that a pass of a block takes little time."""
    budget = _BLOCK_SECONDS * peak
    config, pass_ = work.config, work.pass_

    def flops() -> int:
        products = sum(matmul.flops for matmul in block_matmuls(config, pass_.tokens))
        return products + int(attention_flops(config, pass_))

    while flops() > budget and pass_.batch > 1:
        pass_ = replace(pass_, batch=pass_.batch // 2)
    while flops() > budget and pass_.length > 512:
        pass_ = replace(pass_, length=pass_.length // 2)
    while flops() > budget and config.key_value_heads % 2 == 0:
        halves = {name: getattr(config, name) // 2 for name in ("hidden_size", "heads", "ffn_hidden_size")}
        halves |= {"kv_heads": config.key_value_heads // 2, "head_size": config.size_of_head, "preset": None}
        config = config.model_copy(update=halves)
    return Work(config, pass_)


def _autocast(work: Work, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, dtype=work.dtype()) if work.pass_.casts else nullcontext()


def _attention_rate(timer: _Timer, work: Work, device: torch.device) -> float:
    """Causal attention over one sequence."""
    config, length = work.config, work.pass_.length

    def heads(count: int) -> Tensor:
        shape = (1, count, length, config.size_of_head)
        return torch.ones(shape, device=device, dtype=work.dtype(), requires_grad=True)

    q, k, v = heads(config.heads), heads(config.key_value_heads), heads(config.key_value_heads)
    grouped = config.heads != config.key_value_heads

    def run() -> None:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        torch.autograd.grad(mixed, (q, k, v), mixed.detach())

    one = replace(work.pass_, batch=1, document_mask=False)
    return attention_flops(config, one) / timer.seconds(run)


def _block_seconds(timer: _Timer, work: Work, device: torch.device) -> float:
    """A model of one block without its loss, forward and backward, eager."""
    config, pass_ = work.config, work.pass_
    model = (
        Decoder(config.model_copy(update={"layers": 1, "layer_drop": 0.0}), 256, pass_.length).to(device).train()
    )
    initialise(model, config, seed=0)
    if pass_.precision == "pure_bf16":
        model.to(torch.bfloat16)
    tokens = torch.zeros(pass_.batch, pass_.length, device=device, dtype=torch.int64)
    samples = torch.arange(pass_.batch, device=device)
    parameters = [
        p for name, p in model.named_parameters() if name.startswith(("embedding.", "position", "blocks."))
    ]
    documents = torch.arange(pass_.length, device=device) * DOCUMENTS_PER_SEQUENCE // pass_.length
    # On CUDA masks of documents are compiled first, which takes longer than a plan may.
    masked = pass_.document_mask and device.type == "cpu"
    by_sequence = documents.expand(pass_.batch, -1) if masked else None

    def run() -> None:
        with _autocast(work, device):
            stream = model.run(tokens, None, by_sequence, samples)
        torch.autograd.grad(stream, parameters, stream.detach())

    return timer.seconds(run)


def _loss_seconds(timer: _Timer, work: Work, device: torch.device) -> float:
    """One chunk of projection and cross-entropy with its gradients."""
    config, pass_ = work.config, work.pass_
    rows, dtype = min(pass_.loss_chunk, pass_.tokens), torch.float32
    if pass_.precision == "pure_bf16":
        dtype = torch.bfloat16
    hidden = torch.randn(1, rows * 2, config.hidden_size, device=device, dtype=dtype, requires_grad=True)
    weight = torch.zeros(pass_.vocabulary_size, config.hidden_size, device=device, dtype=dtype, requires_grad=True)

    def run(tokens: int) -> None:
        part = hidden[:, :tokens]
        targets = torch.zeros(part.shape[:2], device=device, dtype=torch.int64)
        with _autocast(work, device):
            chunked_cross_entropy(part, weight, targets, logit_softcap=config.logit_softcap, chunk=rows)

    # Two chunks less one: what is done once for all chunks does not count.
    return max(timer.seconds(lambda: run(2 * rows)) - timer.seconds(lambda: run(rows)), 1e-6)


def _update_rate(timer: _Timer, device: torch.device) -> float:
    """Fused AdamW's: it reads weight, gradient and two moments, and writes three of them."""
    parameter = torch.zeros(2**21, device=device, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    return 7 * 4 * parameter.numel() / timer.seconds(optimizer.step)


def _copy_rates(timer: _Timer, device: torch.device) -> tuple[float, float]:
    """Copy rates of this rank's threads, and of the whole machine."""
    source = torch.ones(2**23, device=device)
    target = torch.empty_like(source)
    moved = 2 * 4 * source.numel()
    one = moved / timer.seconds(lambda: target.copy_(source))
    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    if device.type == "cuda" or threads >= cores:
        return one, one
    torch.set_num_threads(cores)
    try:
        # Several threads: a clock of their own.
        return one, max(one, moved / _Timer(device).seconds(lambda: target.copy_(source)))
    finally:
        torch.set_num_threads(threads)
