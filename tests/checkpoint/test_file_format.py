"""The files are what others read as safetensors, and each element stands in them once."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

from stoker.checkpoint import latest, load, load_newest, parts, save
from stoker.checkpoint.digest import bytes_of
from stoker.checkpoint.manifest import read_manifest
from stoker.checkpoint.parts import Piece, pieces_of, share_out
from stoker.checkpoint.reading import fill
from stoker.checkpoint.state import Box, Part
from stoker.errors import BadInput
from stoker.layout import Layout
from stoker.parallel import join_world
from tests.checkpoint.test_digest import divided
from tests.checkpoint.tiny_training import KEEP_ALL, TinyTraining, assert_same
from tests.distributed import run_ranks


def _saving_rank(rank: int, ranks: int, store: Any, folder: Path) -> dict[str, torch.Tensor]:
    with join_world(Layout(dp_shard=2, dp_replicate=2), rank, torch.device("cpu"), store, 60) as world:
        training = TinyTraining(world, "adamw", layers=1)
        training.step(1)
        save(folder, 1, training.model.held, training.optimizer, {}, KEEP_ALL)
        return training.whole_state()


def test_other_readers_open_the_files_and_find_every_element_once_evenly_spread(tmp_path: Path) -> None:
    state = run_ranks(_saving_rank, 4, tmp_path)[0]
    folder = tmp_path / "step-00000001"
    manifest = read_manifest(folder)
    found = {name: torch.full(value.shape, float("nan")) for name, value in state.items()}
    sizes = []
    for name, file in manifest.files.items():
        sizes.append(sum(piece.bytes for piece in file.pieces))
        with safe_open(folder / name, "pt") as reader:
            assert len(reader.keys()) == len(file.pieces)
            for key in reader.keys():  # noqa: SIM118, not a dict
                whole, _, box = key.partition("[")
                kind, _, rest = whole.partition(".")
                short = rest if kind == "model" else "/".join(rest.rsplit(".", 1))
                bounds = [slice(*map(int, one.split(":"))) for one in box.rstrip("]").split(",")] if box else []
                place = found[short][(*bounds, ...)]
                assert place.isnan().all(), f"{key} stands in two files"
                place.copy_(reader.get_tensor(key))
    assert_same(found, state)
    assert max(sizes) < 1.3 * sum(sizes) / 4


def _rewritten(folder: Path, **changes: object) -> None:
    content = {**json.loads((folder / "manifest.json").read_bytes()), **changes}
    text = json.dumps(content).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "committed").write_text(hashlib.sha256(text).hexdigest() + "\n")


@pytest.mark.parametrize(("number", "said"), [(1, "an older version"), (3, "a newer version")])
def test_another_format_is_refused_saying_so_and_nothing_changes(number: int, said: str, tmp_path: Path) -> None:
    training = TinyTraining.alone("adamw")
    training.step(1)
    folder = save(tmp_path, 1, training.model.held, training.optimizer, {}, KEEP_ALL)
    _rewritten(folder, format=number)
    reader = TinyTraining.alone("adamw", seed=1)
    before = reader.whole_state()
    for attempt in (
        lambda: load(folder, reader.model.held, reader.optimizer),
        lambda: load_newest(tmp_path, reader.model.held, reader.optimizer),
        lambda: latest(tmp_path),
    ):
        with pytest.raises(BadInput, match=f"format {number}.*{said}"):
            attempt()
    assert_same(reader.whole_state(), before)


class _InMemory:
    def __init__(self, piece: Piece, content: bytes) -> None:
        self.piece, self.offset, self.source, self.reads = piece, 7, self, 0
        self._content = bytes(7) + content

    def read_into(self, memory: memoryview, offset: int) -> None:
        self.reads += len(memory)
        memory[:] = self._content[offset : offset + len(memory)]

    def close(self) -> None:
        pass


@settings(max_examples=100)
@given(data=st.data())
def test_any_boxes_are_filled_from_any_others(data: st.DataObject) -> None:
    """Three thousand bytes in a row are a long stretch here and a short one there."""
    shape = tuple(data.draw(st.lists(st.integers(1, 9), max_size=3)))
    if shape and data.draw(st.booleans()):
        shape = (*shape, 1500)
    dtype = data.draw(st.sampled_from((torch.float64, torch.float32, torch.bfloat16, torch.uint8)))
    whole = torch.arange(math.prod(shape)).remainder(251).to(dtype).view(shape)
    stored = [
        _InMemory(Piece("x", str(dtype)[6:], shape, box), bytes_of(_of(whole, box)).tobytes())
        for box in divided(data.draw, shape)
        if all(first < last for first, last in box)
    ]
    for box in divided(data.draw, shape):
        wanted = _of(whole, box)
        if not wanted.numel():
            continue
        found = torch.zeros_like(wanted)
        assert fill(bytes_of(found), Piece("x", str(dtype)[6:], shape, box), stored) == wanted.numel()
        assert torch.equal(found, wanted)


def _of(whole: torch.Tensor, box: Box) -> torch.Tensor:
    return whole[(*(slice(*bounds) for bounds in box), ...)].contiguous()


def test_a_large_part_is_cut_alike_on_all_ranks_and_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGEST_PIECE_BYTES", 130)
    tensor = torch.arange(90.0).view(1, 9, 10)
    part = Part(tensor, (4, 9, 20), ((2, 3), (0, 9), (5, 15)))
    found = pieces_of({"x": part, "empty": Part(torch.zeros(0, 3), (0, 3), ((0, 0), (0, 3)))})
    assert [piece.box[1] for piece, _ in found] == [(0, 3), (3, 6), (6, 9)]
    assert torch.equal(torch.cat([elements for _, elements in found], 1), tensor)
    held = [[piece for piece, _ in found]] * 3
    shares = share_out(held)
    assert sorted(piece.box for share in shares for piece in share) == sorted(piece.box for piece, _ in found)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_types_scalars_and_empty_parts_come_back_as_they_were(tmp_path: Path) -> None:
    class Held:
        def __init__(self, name: str, tensor: torch.Tensor) -> None:
            self.name, self.tensor, self.shape = name, tensor, tuple(tensor.shape)
            self.box = tuple((0, size) for size in tensor.shape)

    def made(factor: float) -> list[Held]:
        generator = torch.Generator().manual_seed(3)
        dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)
        shapes = ((), (0,), (3, 0, 2), (5,), (2, 3, 4))
        return [
            Held(f"{dtype}{shape}", (torch.randn(shape, generator=generator) * 3 * factor).to(dtype))
            for dtype in dtypes
            for shape in shapes
        ]

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    saved, loaded = made(1), made(0)
    folder = save(tmp_path, 1, saved, optimizer, {}, KEEP_ALL)
    load(folder, loaded, optimizer)
    for one, other in zip(saved, loaded, strict=True):
        assert torch.equal(one.tensor, other.tensor), one.name
