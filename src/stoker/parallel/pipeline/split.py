"""The stages of one rank."""

from __future__ import annotations

import copy

from stoker.layout import Layout
from stoker.model import Decoder
from stoker.recipe.stages import stage_layers, stage_to_rank


def stages_of_rank(decoder: Decoder, layout: Layout, rank: int) -> dict[int, Decoder]:
    """The stages of `rank`, each a part of `decoder` with parameters of its own; on `meta` they cost nothing."""
    layers = stage_layers(decoder.config, decoder.vocabulary_size, decoder.sequence_length, layout)
    own = layout.coordinate(rank).pp
    stages = {}
    for stage, owner in enumerate(stage_to_rank(layout)):
        if owner == own:
            stages[stage] = copy.deepcopy(decoder)
            stages[stage].keep(layers[stage].start, layers[stage].stop)
    return stages
