"""How parts of tensors are told to torch's distributed checkpoint: any box of a whole, on any rank."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from stoker.checkpoint.state import Part


def _chunk(part: Part) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(
        offsets=torch.Size(first for first, _ in part.box),
        sizes=torch.Size(last - first for first, last in part.box),
    )


class SaveParts(DefaultSavePlanner):
    """Each rank offers its parts; of those that several ranks hold torch lets one rank write each."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        super().__init__(flatten_state_dict=False)
        self._parts = parts

    def create_local_plan(self) -> SavePlan:
        """What this rank could write."""
        items = []
        for name, part in self._parts.items():
            if not part.tensor.numel():
                continue
            chunk = _chunk(part)
            data = TensorWriteData(
                chunk=chunk,
                properties=TensorProperties.create_from_tensor(part.tensor),
                size=torch.Size(part.shape),
            )
            items.append(WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """The tensor to be written."""
        return self._parts[write_item.index.fqn].tensor


class LoadParts(DefaultLoadPlanner):
    """Each rank reads what overlaps its parts, whatever boxes they were written in."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        super().__init__(flatten_state_dict=False)
        self._parts = parts

    def create_local_plan(self) -> LoadPlan:
        """What this rank reads."""
        assert self.metadata is not None
        items: list[ReadItem] = []
        for name, part in self._parts.items():
            if part.tensor.numel():
                saved = self.metadata.state_dict_metadata[name]
                assert isinstance(saved, TensorStorageMetadata)
                items += create_read_items_for_chunk_list(name, saved, [_chunk(part)])
        return LoadPlan(items)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The place in this rank's memory that `read_item` fills."""
        place = self._parts[read_item.dest_index.fqn].tensor
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            place = place.narrow(dim, start, length)
        return place

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing is left to do: the place is the model's own memory."""
