"""Context parallelism: ranks divide each sequence, and attention reaches what the others hold."""

from stoker.parallel.context_parallel.apply import context_parallel
from stoker.parallel.context_parallel.split import SequenceSplit, own_places

__all__ = ["SequenceSplit", "context_parallel", "own_places"]
