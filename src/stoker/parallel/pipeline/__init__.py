"""`pp`: the layers are divided into stages, and ranks carry out a schedule of them (`stoker.pipeline_schedule`).

`split.py` makes the stages, `program.py` says what one rank does in a step, `executor.py` does it,
`lanes.py` moves tensors between ranks, `deferred.py` puts weight gradients off.
"""

from stoker.parallel.pipeline.executor import Executed, Pipeline
from stoker.parallel.pipeline.split import stages_of_rank
from stoker.recipe.stages import stage_layers, stage_to_rank

__all__ = ["Executed", "Pipeline", "stage_layers", "stage_to_rank", "stages_of_rank"]
