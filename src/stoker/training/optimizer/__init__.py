"""The four optimizers, for plain, replicated and sharded parameters alike."""

from stoker.training.optimizer.adamw import AdamWOptimizer
from stoker.training.optimizer.build import build_optimizer, set_learning_rate
from stoker.training.optimizer.lion import LionOptimizer

__all__ = ["AdamWOptimizer", "LionOptimizer", "build_optimizer", "set_learning_rate"]
