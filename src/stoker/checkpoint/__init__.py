"""Checkpoints: complete or absent, verified when read, readable at any number of ranks.

    checkpoints/step-00000100/
        __<rank>_0.distcp  .metadata     tensors, as torch.distributed.checkpoint writes them
        manifest.json                    progress, names, types and shapes, SHA-256 and size of each file
        committed                        SHA-256 of the manifest; written last

Tensors are named `model.<parameter>` and `optimizer.<parameter>.<state>`, and are whole in the file
format: how they were sharded when they were saved does not matter to a reader.
"""

from stoker.checkpoint.integrity import latest
from stoker.checkpoint.loading import load, read_weights
from stoker.checkpoint.saving import save

__all__ = ["latest", "load", "read_weights", "save"]
