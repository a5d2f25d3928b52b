"""What flows through a model in the first micro-batch of a step: sizes of outputs, attention, dead units, logits.

Hooks stand for the steps that are asked about only, and change nothing. Inside of compiled blocks nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stoker.model import Decoder
from stoker.model.feed_forward import GatedFeedForward, PlainFeedForward
from stoker.parallel.attention_figures import attention_figures
from stoker.parallel.parallel_model import ParallelModel
from stoker.parallel.recompute import unseen

SUMS = ("output_squares", "outputs", "entropy", "queries", "unit_squares", "units", "logit_squares", "logits")
LARGEST = ("output", "attention_logit", "logit")
_LOGIT_TOKENS = 128
"""Tokens whose logits are looked at: fewer than are ever computed at once."""
_DEAD = 1e-3
"""A unit is dead whose largest value over all tokens is below this part of the root mean square of all units."""


class Activations:
    """Looks at them. Collective: all ranks look at the same steps."""

    def __init__(self, model: ParallelModel) -> None:
        self._model = model
        layers = range(model.config.layers)
        self.names = ["embedding", "norm", "head", *(f"blocks.{layer}" for layer in layers)]
        self.names += [f"blocks.{layer}.{part}" for layer in layers for part in ("attention", "feed_forward")]
        self._rows = {name: row for row, name in enumerate(self.names)}
        self._units_of = [f"blocks.{layer}.feed_forward" for layer in layers if not model.config.has_experts(layer)]
        self._columns = {
            one.name.removesuffix(".down.weight"): one.placement.box[1]
            for one in model.held
            if one.name.endswith(".feed_forward.down.weight")
        }
        self._begin()

    def _begin(self) -> None:
        device, rows = self._model.world.device, len(self.names)
        self._sums = torch.zeros(rows, len(SUMS), dtype=torch.float64, device=device)
        self._largest = torch.full((rows, len(LARGEST)), -torch.inf, dtype=torch.float64, device=device)
        width = self._model.config.ffn_hidden_size if self._units_of else 0
        self._units = torch.full((len(self._units_of), width), -1.0, dtype=torch.float64, device=device)
        self._seen: set[tuple[str, str]] = set()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """While this lasts the first micro-batch that comes is looked at; what was seen before is forgotten."""
        self._begin()
        with ExitStack() as stack:
            for stage in self._model.stages.values():
                self._look_at(stage.part, stack)
            yield

    @torch.no_grad()
    def take(self) -> dict[str, dict[str, float]]:
        """What was seen by all ranks, by module: fields of the record. What nobody saw is absent. Collective."""
        sums, largest, units = self._sums, self._largest, self._units
        if self._model.world.layout.world_size > 1:
            self._model.world.sum(sums)
            flat = torch.cat([largest.flatten(), units.flatten()])
            dist.all_reduce(flat, op=dist.ReduceOp.MAX)
            largest, units = flat[: largest.numel()].view_as(largest), flat[largest.numel() :].view_as(units)
        dead = self._dead(sums, units).tolist()
        rows = zip(self.names, sums.tolist(), largest.tolist(), strict=True)
        found = {name: _figures(dict(zip(SUMS, own, strict=True)), most) for name, own, most in rows}
        for name, share in zip(self._units_of, dead, strict=True):
            if found[name] and share >= 0:
                found[name]["dead_units"] = share
        return {name: figures for name, figures in found.items() if figures}

    def _dead(self, sums: Tensor, units: Tensor) -> Tensor:
        """The share of dead units of each feed-forward; below 0 where nothing was seen."""
        if not self._units_of:
            return units.new_zeros(0)
        own = sums[[self._rows[name] for name in self._units_of]]
        squares, count = own[:, SUMS.index("unit_squares")], own[:, SUMS.index("units")]
        bar = _DEAD * (squares / count.clamp(min=1)).sqrt()
        return (units <= bar[:, None]).double().mean(dim=1).where(count > 0, -1.0)

    def _look_at(self, part: Decoder, stack: ExitStack) -> None:
        def hook(module: nn.Module, look: Callable[..., None]) -> None:
            stack.callback(module.register_forward_hook(look).remove)

        if part.begins and part.embedding is not None:
            hook(part.embedding, self._output("embedding"))
        names = {block: f"blocks.{number}" for number, block in part.blocks.items()}
        stack.enter_context(_replaced(part, "run_block", partial(self._run_block, part.run_block, names)))
        if part.norm is not None:
            hook(part.norm, self._output("norm"))
            stack.enter_context(_replaced(part.vocabulary, "seen", self._see_logits))
        if self._model.compiled:
            return
        for block, name in names.items():
            attention, feed_forward = block.get_submodule("attention"), block.get_submodule("feed_forward")
            hook(attention, self._output(f"{name}.attention"))
            hook(feed_forward, self._output(f"{name}.feed_forward"))
            attend: Any = partial(self._attend, attention.attend, f"{name}.attention")  # type: ignore[arg-type]
            stack.enter_context(_replaced(attention, "attend", attend))
            if isinstance(feed_forward, GatedFeedForward | PlainFeedForward):
                look = partial(self._see_units, f"{name}.feed_forward")
                stack.callback(feed_forward.down.register_forward_pre_hook(look).remove)

    def _is_first(self, name: str, what: str) -> bool:
        """Whether this has not been seen in this step: blocks may be computed twice, and modules used twice."""
        if (name, what) in self._seen:
            return False
        self._seen.add((name, what))
        return True

    def _add(self, name: str, column: str, value: Tensor | int) -> None:
        self._sums[self._rows[name], SUMS.index(column)] += value

    def _raise(self, name: str, column: str, value: Tensor) -> None:
        place = self._rows[name], LARGEST.index(column)
        self._largest[place] = torch.maximum(self._largest[place], value.to(torch.float64))

    def _output(self, name: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: object, output: Tensor) -> None:
            self._see_output(name, output)

        return look

    @torch.no_grad()
    def _see_output(self, name: str, output: Tensor) -> None:
        if not self._is_first(name, "output") or not output.numel():
            return
        with unseen():
            self._add(name, "output_squares", _squares(output))
            self._add(name, "outputs", output.numel())
            self._raise(name, "output", output.detach().abs().amax())

    def _run_block(
        self, run: Callable[..., Tensor], names: dict[nn.Module, str], block: nn.Module, *inputs: Any
    ) -> Tensor:
        output = run(block, *inputs)
        if block in names:
            self._see_output(names[block], output)
        return output

    def _attend(
        self,
        attend: Callable[..., Tensor],
        name: str,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        cap: float | None,
    ) -> Tensor:
        if self._is_first(name, "attention"):
            with torch.no_grad(), unseen(), torch.autocast(q.device.type, enabled=False):
                figures = attention_figures(q.detach(), k.detach(), mask, cap, self._model.split)
                if figures is not None:
                    self._raise(name, "attention_logit", figures.largest)
                    self._add(name, "entropy", figures.entropy)
                    self._add(name, "queries", figures.queries)
        return attend(q, k, v, mask, cap)

    @torch.no_grad()
    def _see_units(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        (x,) = inputs
        if not self._is_first(name, "units") or not x.numel():
            return
        with unseen():
            first, last = self._columns[name]
            largest = x.detach().flatten(0, -2).abs().amax(dim=0)
            self._units[self._units_of.index(name), first:last] = largest.to(torch.float64)
            self._add(name, "unit_squares", _squares(x))
            self._add(name, "units", x.numel())

    @torch.no_grad()
    def _see_logits(self, logits: Tensor) -> None:
        if not self._is_first("head", "logits") or not logits.numel():
            return
        logits = logits[:_LOGIT_TOKENS]
        self._add("head", "logit_squares", _squares(logits))
        self._add("head", "logits", logits.numel())
        self._raise("head", "logit", logits.amax())


@contextmanager
def _replaced(owner: object, attribute: str, value: object) -> Iterator[None]:
    """While this lasts."""
    before = getattr(owner, attribute)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        setattr(owner, attribute, before)


def _squares(x: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(x.detach(), dtype=wide)
    return norm.to(torch.float64).square()


def _figures(sums: dict[str, float], largest: list[float]) -> dict[str, float]:
    """Fields of the record."""
    found = {}
    if sums["outputs"]:
        found["output_rms"] = (sums["output_squares"] / sums["outputs"]) ** 0.5
        found["output_largest"] = largest[LARGEST.index("output")]
    if sums["queries"]:
        found["attention_entropy"] = sums["entropy"] / sums["queries"]
        found["attention_logit"] = largest[LARGEST.index("attention_logit")]
    if sums["logits"]:
        found["logit_rms"] = (sums["logit_squares"] / sums["logits"]) ** 0.5
        found["logit_largest"] = largest[LARGEST.index("logit")]
    return found
