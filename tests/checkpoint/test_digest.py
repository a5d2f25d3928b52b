"""Digests of parts add up to the whole's, whatever the parts are, and one bit more or less is another digest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.checkpoint.digest import (
    Digest,
    bytes_of,
    digest_of,
    digest_of_bytes,
    digest_on_device,
)
from stoker.checkpoint.state import Box

DTYPES = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def _drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if dtype == torch.bool else 256, shape, generator=generator).to(dtype)


def _whole(tensor: torch.Tensor) -> Digest:
    return digest_of(tensor, tuple((0, size) for size in tensor.shape), tensor.shape)


def divided(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """A disjoint cover: every box is cut in two for as long as a number says so."""
    boxes: list[Box] = [tuple((0, size) for size in shape)]
    for _ in range(draw(st.integers(0, 6)) if shape else 0):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(shape) - 1))
        cut = draw(st.integers(*box[dim]))
        for bounds in ((box[dim][0], cut), (cut, box[dim][1])):
            boxes.append((*box[:dim], bounds, *box[dim + 1 :]))
    return boxes


@settings(max_examples=80)
@given(data=st.data())
def test_parts_of_any_disjoint_cover_add_up_to_the_whole(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 23), max_size=4)))
    dtype = data.draw(st.sampled_from(DTYPES))
    tensor = _drawn(shape, dtype, data.draw(st.integers(0, 9)))
    total, on_device = Digest(), Digest()
    for box in divided(data.draw, shape):
        part = tensor[tuple(slice(*bounds) for bounds in box)]
        total = total.plus(digest_of(part, box, shape))
        on_device = on_device.plus(digest_on_device(part, box, shape))
    assert total == on_device == _whole(tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_single_bit_counts(dtype: torch.dtype) -> None:
    tensor = _drawn((3, 700), dtype, 1)  # more than one run of weights
    found = {_whole(tensor)}
    content = bytes_of(tensor)
    places = np.linspace(0, len(content) - 1, 40, dtype=int)
    for place in places:
        for bit in range(8):
            content[place] ^= np.uint8(1 << bit)
            found.add(_whole(tensor))
            content[place] ^= np.uint8(1 << bit)
    assert len(found) == 1 + len(places) * 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_other_signs_are_another_tensor(dtype: torch.dtype) -> None:
    tensor = _drawn((4, 50), dtype, 1) + 1
    some = tensor.clone()
    some[0, [3, 9]] *= -1
    assert len({_whole(tensor), _whole(-tensor), _whole(some)}) == 3


def test_exchanged_elements_rows_and_shapes_are_other_tensors() -> None:
    tensor = torch.arange(1, 4097, dtype=torch.float32).view(2, 2048)
    found = {_whole(tensor), _whole(tensor.flip(0)), _whole(tensor.flip(1)), _whole(tensor.roll(1, 1))}
    for one, other in ((0, 1), (0, 1024), (5, 2047)):
        exchanged = tensor.clone()
        exchanged[0, [one, other]] = tensor[0, [other, one]]
        found.add(_whole(exchanged))
    assert len(found) == 7


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_part_may_be_read_in_pieces(dtype: torch.dtype) -> None:
    whole = _drawn((5, 6, 700), dtype, 2)
    box = ((1, 4), (2, 5), (10, 690))
    content = bytes_of(whole[1:4, 2:5, 10:690].contiguous())
    total = Digest()
    size = dtype.itemsize
    for start in range(0, len(content) // size, 997):
        piece = content[start * size : (start + 997) * size]
        total = total.plus(digest_of_bytes(piece, dtype, box, whole.shape, start)[0])
    assert total == digest_of_bytes(content, dtype, box, whole.shape)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_seen_in_passing(value: float, dtype: torch.dtype) -> None:
    tensor = torch.full((2, 1500), torch.finfo(dtype).max, dtype=dtype)
    box = ((0, 2), (0, 1500))
    assert digest_of_bytes(bytes_of(tensor), dtype, box, tensor.shape)[1]
    tensor[1, 1499] = value
    assert not digest_of_bytes(bytes_of(tensor), dtype, box, tensor.shape)[1]


def test_a_digest_is_written_and_read_and_summed_as_signed_numbers() -> None:
    one, other = _whole(_drawn((9,), torch.float32, 3)), _whole(_drawn((9,), torch.float32, 4))
    assert Digest.parse(str(one)) == one
    summed = torch.tensor(one.as_signed()) + torch.tensor(other.as_signed())
    assert Digest.from_signed(*summed.tolist()) == one.plus(other)
    with pytest.raises(ValueError, match="32"):
        Digest.parse("12")
