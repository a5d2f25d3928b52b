"""The `data.mixture` section: how much of each step comes from which source, and how that changes over a run."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from stoker.recipe.section import Section

Rule = Literal["given", "tokens", "temperature", "unimax", "difficulty"]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Epochs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_DEFAULT_ALPHA = 0.3
_DEFAULT_EXPONENT = 1.0


class DocumentLimits(Section):
    """Which documents a stage takes, by their length."""

    minimum_tokens: int | None = Field(default=None, ge=1)
    """Only documents of at least this many tokens, special tokens counted."""
    maximum_tokens: int | None = Field(default=None, ge=1)
    """Only documents of at most this many tokens, special tokens counted."""
    sources: tuple[str, ...] = ()
    """Sources whose documents are chosen so; by default all."""

    @model_validator(mode="after")
    def _limits_leave_something(self) -> DocumentLimits:
        least, most = self.minimum_tokens, self.maximum_tokens
        if least is not None and most is not None and least > most:
            raise ValueError(f"minimum_tokens ({least}) exceeds maximum_tokens ({most}): no document is left")
        if self.sources and least is None and most is None:
            raise ValueError("`sources` says where a limit holds; give minimum_tokens or maximum_tokens as well")
        return self


class Stage(Section):
    """A stretch of the run with a mixture of its own."""

    until: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None = None
    """Last step of the stage: a step, or a share of `training.steps` such as 0.8. The last stage has none."""
    weights: Rule | dict[str, Weight] | None = None
    """Weights of the sources in this stage, those not named being left out; or a rule; by default
    `data.mixture.weights`."""
    change: Literal["jump", "linear"] = "jump"
    """`jump`: the weights hold from the stage's first step. `linear`: over the stage the shares go in a straight
    line from those of the stage before (before the first: `data.mixture.weights`) to these."""
    documents: DocumentLimits = DocumentLimits()

    @model_validator(mode="after")
    def _something_is_taken(self) -> Stage:
        if isinstance(self.weights, dict) and math.fsum(self.weights.values()) <= 0:
            raise ValueError("all weights are zero; give at least one source a positive weight")
        return self


class Mixing(Section):
    """Shares of the sources, over the steps of the run."""

    weights: Rule = "given"
    """`given`: the sources' own weights, or their tokens where none has one. `tokens`: in proportion to training
    tokens. `temperature`: to tokens to the power of `alpha`. `unimax`: as even as `most_epochs` allows (Chung et
    al. 2023). `difficulty`: given weights times exp(`exponent` × loss). A source of weight 0 is left out by all."""
    alpha: float = Field(default=_DEFAULT_ALPHA, ge=0, le=1)
    """Exponent of `temperature`, one over the temperature: 1 is in proportion to tokens, 0 the same share for all;
    0.3 is that of XLM-R (Conneau et al. 2020)."""
    losses: dict[str, Loss] = Field(default={})
    """For `difficulty`: loss of every source in nats a token; `stoker data mixture RECIPE --losses-of RUN` prints
    those of a run."""
    from_run: str | None = None
    """For `difficulty`, in place of `losses`: a run, relative to the recipe, that was trained on these sources. Its
    last evaluation says how hard the held-out text of each is; a run keeps the losses that it began with."""
    reference_losses: dict[str, Loss] = Field(default={})
    """For `difficulty`: losses of a stronger model. What counts is then how far `losses` lie above these, and not
    below 0: what nobody can predict is no difficulty."""
    exponent: float = Field(default=_DEFAULT_EXPONENT, allow_inf_nan=False)
    """For `difficulty`: 1 weighs by perplexity, 0 not at all, a negative number favours what is easy."""
    most_epochs: Epochs | dict[str, Epochs] | None = None
    """Most times that a source's tokens are passed over in the whole run: for all sources, or by name."""
    when_exceeded: Literal["refuse", "share"] = "refuse"
    """What happens when more would be drawn than `most_epochs` allows: the run is `refuse`d with the price of the
    repeats, or what is over is `share`d among the other sources in proportion to their weights."""
    stages: tuple[Stage, ...] = ()
    """Stretches of the run, in order; without any, one mixture holds for all of it."""

    def __hash__(self) -> int:
        """Of what it says: a table has none of its own."""
        return hash(self.model_dump_json())

    @field_validator("losses", "reference_losses", mode="before")
    @classmethod
    def _nothing_under_it(cls, losses: Any) -> Any:
        return {} if losses is None else losses

    @model_validator(mode="after")
    def _parameters_are_used(self) -> Mixing:
        used = {self.weights, *(stage.weights for stage in self.stages if isinstance(stage.weights, str))}
        for rule, name, is_given in (
            ("temperature", "alpha", self.alpha != _DEFAULT_ALPHA),
            ("difficulty", "losses", bool(self.losses)),
            ("difficulty", "from_run", self.from_run is not None),
            ("difficulty", "reference_losses", bool(self.reference_losses)),
            ("difficulty", "exponent", self.exponent != _DEFAULT_EXPONENT),
        ):
            if is_given and rule not in used:
                raise ValueError(f"{name} does nothing unless `weights` is {rule}")
        if self.losses and self.from_run is not None:
            raise ValueError("give either `losses` or `from_run`, the run that says them")
        if "difficulty" in used and not self.losses and self.from_run is None:
            raise ValueError(
                "weights: difficulty needs `losses`, or `from_run`: a run whose last evaluation says them "
                "(`stoker data mixture RECIPE --losses-of RUN` prints them)"
            )
        if "unimax" in used and self.most_epochs is None:
            raise ValueError("weights: unimax needs most_epochs, the most times that it may pass over a source")
        if self.when_exceeded != "refuse" and self.most_epochs is None:
            raise ValueError(f"when_exceeded: {self.when_exceeded} does nothing without most_epochs")
        return self

    @model_validator(mode="after")
    def _stages_follow_each_other(self) -> Mixing:
        for number, stage in enumerate(self.stages, start=1):
            is_last = number == len(self.stages)
            if is_last and stage.until is not None:
                raise ValueError(f"the last stage (stages.{number - 1}) goes on to the end: leave out its `until`")
            if not is_last and stage.until is None:
                raise ValueError(f"stages.{number - 1} needs `until`, its last step or a share of the steps")
        return self

    def last_steps(self, steps: int) -> tuple[int | None, ...]:
        """The last step of each stage in a run of `steps` steps; None for the last stage.

        A share ends with the last whole step within it. A stage may be empty in a short run.
        Raises `ValueError` when a stage would end before the one before it.
        """
        found: list[int | None] = []
        for number, stage in enumerate(self.stages):
            until = stage.until
            last = math.floor(Fraction(str(until)) * steps) if isinstance(until, float) else until
            before = found[-1] if found else 0
            if last is not None and before is not None and last < before:
                raise ValueError(
                    f"data.mixture.stages.{number} ends at step {last:,} (until: {until}), before the stage before "
                    f"it, which ends at step {before:,}"
                )
            found.append(last)
        return tuple(found)

    def require_names(self, names: Collection[str]) -> None:
        """Raise `ValueError` when a source is named that is not in `names`, or has no loss where each needs one."""
        tables: list[tuple[str, Mapping[str, float] | Sequence[str]]] = [
            ("losses", self.losses),
            ("reference_losses", self.reference_losses),
        ]
        if isinstance(self.most_epochs, dict):
            tables.append(("most_epochs", self.most_epochs))
        for number, stage in enumerate(self.stages):
            if isinstance(stage.weights, dict):
                tables.append((f"stages.{number}.weights", stage.weights))
            tables.append((f"stages.{number}.documents.sources", stage.documents.sources))
        for place, named in tables:
            if unknown := [name for name in named if name not in names]:
                raise ValueError(
                    f"mixture.{place}: no source is called {unknown[0]!r}; there are {', '.join(names)}"
                )
        for place, losses in (("losses", self.losses), ("reference_losses", self.reference_losses)):
            if losses and (missing := [name for name in names if name not in losses]):
                raise ValueError(
                    f"mixture.{place}: give the loss of every source; without one: {', '.join(missing)}"
                )

    def cap_of(self, source: str) -> float | None:
        """Most epochs of a source; None where there is no limit."""
        return self.most_epochs.get(source) if isinstance(self.most_epochs, dict) else self.most_epochs

    def ever_taken(self, left_out: Collection[str], names: Sequence[str]) -> tuple[str, ...]:
        """Those of `names` that any stage draws from; rules draw from all but those of weight 0 (`left_out`)."""
        by_rule = {name for name in names if name not in left_out}
        if not self.stages:
            return tuple(name for name in names if name in by_rule)
        taken: set[str] = by_rule if self.stages[0].change == "linear" else set()
        for stage in self.stages:
            own = stage.weights
            taken = taken | ({name for name, weight in own.items() if weight} if isinstance(own, dict) else by_rule)
        return tuple(name for name in names if name in taken)
