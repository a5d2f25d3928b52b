"""Whether a mixture keeps text that models wrote within the share that the recipe allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from stoker.recipe.mixing import Mixing
from stoker.recipe.source import Source


def require_share(sources: Sequence[Source], mixture: Mixing, most: float) -> None:
    """Raise `ValueError` where weights give synthetic sources more than `most`, or where a rule might."""
    synthetic = {source.name for source in sources if source.synthetic}
    if not synthetic:
        raise ValueError("synthetic_share_at_most has no effect: no source is `synthetic: true`")
    if unknown := _rules_of(mixture) - {"given", "tokens"}:
        raise ValueError(
            f"synthetic_share_at_most cannot be held to with the rule `{min(unknown)}` in data.mixture, whose "
            "weights follow from the text; give the weights, or leave the rule out"
        )
    for where, weights in _tables(sources, mixture):
        total = math.fsum(weights.values())
        share = math.fsum(weights.get(name, 0.0) for name in synthetic) / total if total else 0.0
        if share > most * (1 + 1e-9):
            raise ValueError(
                f"{where} give synthetic sources ({', '.join(sorted(synthetic))}) {share:.1%} of the mixture, over "
                f"synthetic_share_at_most ({most:.1%}); lower their weights or raise it"
            )


def share_follows_size(sources: Sequence[Source], mixture: Mixing) -> bool:
    """Whether sources are taken in proportion to their tokens in any part of a run."""
    rules = _rules_of(mixture)
    return "tokens" in rules or ("given" in rules and any(source.weight is None for source in sources))


def _rules_of(mixture: Mixing) -> set[str]:
    if mixture.stages and all(stage.weights is not None for stage in mixture.stages):
        used = {stage.weights for stage in mixture.stages if isinstance(stage.weights, str)}
        return used | ({mixture.weights} if mixture.stages[0].change == "linear" else set())
    return {mixture.weights, *(stage.weights for stage in mixture.stages if isinstance(stage.weights, str))}


def _tables(sources: Sequence[Source], mixture: Mixing) -> Iterator[tuple[str, Mapping[str, float]]]:
    if "given" in _rules_of(mixture) and all(source.weight is not None for source in sources):
        yield "the weights of data.sources", {source.name: source.weight or 0.0 for source in sources}
    for number, stage in enumerate(mixture.stages):
        if isinstance(stage.weights, dict):
            yield f"the weights of data.mixture.stages[{number}]", stage.weights
