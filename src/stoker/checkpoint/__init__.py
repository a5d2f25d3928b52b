"""Checkpoints: complete or absent, verified when read, readable at any number of ranks.

    checkpoints/step-00000100/
        rank-00000.safetensors …         what each rank wrote: pieces of tensors
        manifest.json                    progress, tensors and files: types, shapes, places, digests
        committed                        SHA-256 of the manifest; written last

Tensors are named `model.<parameter>` and `optimizer.<parameter>.<state>`. How they were divided when they were
saved does not matter to a reader: digests of parts add up to that of the whole.
"""

from stoker.checkpoint.going_back import go_back_to, steps_saved
from stoker.checkpoint.integrity import latest
from stoker.checkpoint.loading import load, load_newest, read_weights
from stoker.checkpoint.place import Place, checkpoints_of, place
from stoker.checkpoint.saver import Outcome, Saver
from stoker.checkpoint.saving import save
from stoker.checkpoint.snapshots import newest_set, read_complete

__all__ = [
    "Outcome",
    "Place",
    "Saver",
    "checkpoints_of",
    "go_back_to",
    "latest",
    "load",
    "load_newest",
    "newest_set",
    "place",
    "read_complete",
    "read_weights",
    "save",
    "steps_saved",
]
