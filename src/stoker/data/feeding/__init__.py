"""From a prepared corpus to the batches of every step.

`mixture.py` gives a sample its source, `sample_index.py` its documents, `packing.py` lays their tokens out,
and `feed.py` puts steps, ranks and micro-batches together. Nothing here has a state: whatever a step sees
follows from (corpus, recipe, step), so resuming is asking for the next step.
"""

from __future__ import annotations

from stoker.data.feeding.feed import Feed, Span
from stoker.data.feeding.held_out import HeldOut
from stoker.data.feeding.micro_batch import MicroBatch

__all__ = ["Feed", "HeldOut", "MicroBatch", "Span"]
