"""What repeated text is worth (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models")."""

from __future__ import annotations

import math

REPEATS_DECAY = 15.387756
"""R*_D of section 3.1, as fitted in appendix A of the paper, on models of 7 million to 9 billion parameters: after
so many repeats the repeated tokens together were worth 1 - 1/e of as many new ones."""
ALMOST_FREE_EPOCHS = 4.0
"""Up to so many epochs the paper found repeated tokens to be nearly as good as new ones."""


def effective_tokens(unique: float, drawn: float) -> float:
    """Tokens of new text that are worth as much as `drawn` tokens taken from `unique` different ones.

    D' = U + U R* (1 - exp(-R / R*)) with R = D / U - 1 repeats (section 3.1); up to one epoch every token is new.
    The law was fitted to whole training sets; here it is asked of one source of a mixture, as an estimate.
    """
    if drawn <= unique:
        return float(drawn)
    repeats = drawn / unique - 1
    return unique * (1 + REPEATS_DECAY * -math.expm1(-repeats / REPEATS_DECAY))


def epochs_allowed(cap: float | None) -> float:
    """Most epochs of a source; infinity where there is no limit."""
    return math.inf if cap is None else cap
