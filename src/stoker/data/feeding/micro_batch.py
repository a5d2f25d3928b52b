"""What a model sees in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a step is also looked at where nothing is trained
    import torch


@dataclass(frozen=True)
class MicroBatch:
    """B sequences of L tokens."""

    tokens: torch.Tensor
    """int64 [B, L]"""
    targets: torch.Tensor
    """int64 [B, L]; the next token, or -100 where nothing is predicted: the next token is another document's."""
    positions: torch.Tensor
    """int64 [B, L]; from 0 in each piece of a document."""
    documents: torch.Tensor
    """int32 [B, L]; number of the document within its sequence, from 0."""
    sources: torch.Tensor
    """int64 [B]; index into the corpus's sources."""
    samples: torch.Tensor
    """int64 [B]; number of the sample within the run (or of the sequence within the held-out text)."""

    def __len__(self) -> int:
        return len(self.samples)

    def rows(self, start: int, stop: int) -> MicroBatch:
        """Sequences [start, stop), sharing memory with this batch."""
        return MicroBatch(**{name: tensor[start:stop] for name, tensor in self._tensors()})

    def to(self, device: torch.device) -> MicroBatch:
        """The same batch on `device`."""
        return MicroBatch(**{name: tensor.to(device, non_blocking=True) for name, tensor in self._tensors()})

    def _tensors(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
