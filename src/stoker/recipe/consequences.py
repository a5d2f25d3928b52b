"""What follows from a recipe without running it: accumulation, tokens, parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stoker.errors import BadInput
from stoker.plural import counted
from stoker.recipe import Model
from stoker.recipe.holding_out import warnings_of
from stoker.recipe.loading import LoadedRecipe
from stoker.recipe.presets import PRESETS
from stoker.recipe.size import parameter_count


@dataclass(frozen=True)
class BatchSize:
    """How a step's global batch is made up, from one step on."""

    from_step: int
    sequences: int
    ranks: int
    accumulation: int
    micro_batch_size: int
    tokens: int
    """Tokens in the global batch."""

    def __str__(self) -> str:
        return (
            f"{counted(self.sequences, 'sequences')} = {counted(self.ranks, 'ranks')} × "
            f"{self.accumulation} accumulated × {self.micro_batch_size} at a time; "
            f"{counted(self.tokens, 'tokens')} a step"
        )


@dataclass(frozen=True)
class Consequences:
    """What a recipe amounts to."""

    name: str
    run: str
    vocabulary_size: int
    vocabulary_given: bool
    """False when the vocabulary is yet to be trained, and may come out smaller on little text."""
    parameters: int
    embedding_parameters: int
    """Parameters that are only looked up."""
    active_parameters: int
    """Parameters that one token uses: fewer than all where there are experts."""
    batches: tuple[BatchSize, ...]
    steps: int
    tokens: int
    """Tokens in all steps together."""
    layout: str
    warnings: tuple[str, ...] = ()
    """What is no mistake, and most likely not meant."""

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "tokens_per_parameter": self.tokens / self.parameters}

    def as_text(self) -> str:
        """For people."""
        upper = "" if self.vocabulary_given else " (at most; it is trained on the text)"
        active = f", {self.active_parameters:,} used by a token" if self.active_parameters < self.parameters else ""
        lines = [
            f"recipe      {self.name}: no mistakes",
            f"run         {self.run}",
            f"vocabulary  {self.vocabulary_size:,}{upper}",
            f"parameters  {self.parameters:,}, of them {self.embedding_parameters:,} only looked up{active}",
            f"layout      {self.layout}",
        ]
        for batch in self.batches:
            since = f", from step {batch.from_step:,} on" if len(self.batches) > 1 else ""
            lines.append(f"batch       {batch}{since}")
        lines.append(
            f"training    {counted(self.steps, 'steps')}, {self.tokens:,} tokens: "
            f"{self.tokens / self.parameters:.1f} per parameter"
        )
        lines += [f"warning     {warning}" for warning in self.warnings]
        return "\n".join(lines) + "\n"


def consequences_of(loaded: LoadedRecipe) -> Consequences:
    """Work out what a recipe amounts to. Raises `BadInput` when its tokenizer file cannot be read."""
    recipe = loaded.recipe
    training = recipe.training
    vocabulary = _vocabulary_size(loaded)
    count = parameter_count(recipe.model, vocabulary, training.sequence_length)
    starts = [1, *(ramp.step for ramp in training.batch_ramp)]
    batches = tuple(
        BatchSize(
            from_step=step,
            sequences=training.batch_size_at(step),
            ranks=recipe.layout.data_parallel_size,
            accumulation=recipe.accumulation_at(step),
            micro_batch_size=recipe.micro_batch_size_at(step),
            tokens=training.batch_size_at(step) * training.sequence_length,
        )
        for step in starts
    )
    return Consequences(
        name=recipe.name,
        run=str(loaded.run.path),
        vocabulary_size=vocabulary,
        vocabulary_given=recipe.tokenizer.path is not None,
        parameters=count.total,
        embedding_parameters=count.embedding,
        active_parameters=count.active,
        batches=batches,
        steps=training.steps,
        tokens=training.samples_before(training.steps + 1) * training.sequence_length,
        layout=str(recipe.layout),
        warnings=warnings_of(loaded),
    )


def _vocabulary_size(loaded: LoadedRecipe) -> int:
    given = loaded.recipe.tokenizer.path
    if given is None:
        return loaded.recipe.tokenizer.vocabulary_size
    from tokenizers import Tokenizer

    path = loaded.resolve(given)
    if not path.is_file():
        raise BadInput(f"tokenizer.path names {path}, but there is no such file")
    try:
        return int(Tokenizer.from_file(str(path)).get_vocab_size())
    except Exception as error:  # the library raises plain Exception for a file it cannot parse
        raise BadInput(f"tokenizer.path names {path}, which is not a tokenizer.json: {error}") from None


def preset_rows() -> list[list[object]]:
    """A table of presets: name, parameters with the published vocabulary (all; used by a token), shape, source."""
    rows: list[list[object]] = []
    for name, preset in PRESETS.items():
        model = Model.model_validate({"preset": name})
        count = parameter_count(model, preset.published_vocabulary, 2048)
        rows.append(
            [
                name,
                count.total,
                count.active,
                model.layers,
                model.hidden_size,
                model.heads,
                model.key_value_heads,
                preset.published_vocabulary,
                preset.source,
            ]
        )
    return rows
