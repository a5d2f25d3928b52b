"""The four optimizers, for plain, replicated and sharded parameters alike."""

from stoker.training.optimizer.build import build_optimizer, set_learning_rate

__all__ = ["build_optimizer", "set_learning_rate"]
