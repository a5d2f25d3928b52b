"""Digests of tensors that do not depend on how the tensors are divided.

The digest of a tensor is two sums modulo 2^64 over its elements: the element's bits, as an unsigned number, times
an odd weight that follows from the element's row-major place in the whole tensor. Digests of the parts of any
disjoint cover add up to that of the whole, in any order, so a layout is verified against another's without
gathering anything. One flipped bit changes both sums, since an odd weight times a power of two is not zero.
Weights look random, so that other elements in other places have another digest in all likelihood; it is no
protection against somebody who wants to deceive.

The weight of place `i` is `row(i // 1024) * column(i % 1024)`, from tables of SplitMix64: sums over 1024 elements
are then 32-bit products, which processors do several at a time. An element of eight bytes counts as two of four:
signs, the highest bits of 64, would otherwise cancel in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoker.checkpoint.state import Box
from stoker.counter_random import draw_u64, key_of

_RUN = 1024
_MASK = 2**64 - 1
_KEYS = (key_of(0, "digest", 1), key_of(0, "digest", 2))


def _columns(key: int) -> npt.NDArray[np.uint64]:
    return (draw_u64(key, np.arange(_RUN, dtype=np.uint64)) >> np.uint64(32)) | np.uint64(1)


_COLUMNS = tuple(_columns(key_of(0, "digest", "columns", number)) for number in (1, 2))
_KEY_1, _KEY_2 = (np.uint64(key) for key in _KEYS)
_AT_ONCE = 2**22
"""Elements that another device weighs at a time: it needs eight bytes for each several times over."""
_NUMBERS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}
_EXPONENTS = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
"""Bits that are all set in a NaN or Inf and in no other number."""


class Digest(NamedTuple):
    """Two numbers below 2^64. Those of disjoint parts are added."""

    first: int = 0
    second: int = 0

    def plus(self, other: Digest) -> Digest:
        """The digest of both parts together."""
        return Digest((self.first + other.first) & _MASK, (self.second + other.second) & _MASK)

    def __str__(self) -> str:
        return f"{self.first:016x}{self.second:016x}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest that `str` wrote. Raises `ValueError` when there is none."""
        if len(text) != 32:
            raise ValueError(f"a digest has 32 hexadecimal digits, not {len(text)}")
        return cls(int(text[:16], 16), int(text[16:], 16))

    def as_signed(self) -> tuple[int, int]:
        """As two int64, which may be added in a tensor: overflow wraps."""
        return tuple(number - 2**64 if number >= 2**63 else number for number in self)  # type: ignore[return-value]

    @classmethod
    def from_signed(cls, first: int, second: int) -> Digest:
        """From what `as_signed` gave, or a sum of it."""
        return cls(first & _MASK, second & _MASK)


def digest_of(tensor: Tensor, box: Box, shape: Sequence[int]) -> Digest:
    """The digest of `tensor`, which is the part `box` (first and last + 1 on each dimension) of a whole of `shape`.

    Any type of 1, 2, 4 or 8 bytes. On the CPU it runs in one thread, without holding the interpreter; on another
    device it is computed there.
    """
    if tensor.device.type != "cpu":
        return digest_on_device(tensor, box, shape)
    return digest_of_bytes(bytes_of(tensor.detach().contiguous()), tensor.dtype, box, shape)[0]


def bytes_of(tensor: Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous CPU tensor [bytes], sharing its memory."""
    if not tensor.numel():
        return np.empty(0, np.uint8)
    found: npt.NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return found


def digest_of_bytes(
    content: npt.NDArray[np.uint8], dtype: torch.dtype, box: Box, shape: Sequence[int], first: int = 0
) -> tuple[Digest, bool]:
    """The digest of consecutive elements of the part `box`, from its `first` on, and whether all are finite.

    `content` is aligned as the elements are.
    """
    if not len(content):
        return Digest(), True
    size = dtype.itemsize
    numbers: npt.NDArray[Any] = content.view(_NUMBERS[min(size, 4)])
    exponent = _EXPONENTS.get(dtype, 0)
    if size == 8:
        box, shape, first = (*box, (0, 2)), (*shape, 2), 2 * first
    sizes, strides, base, inner = _rows(box, shape)
    found = _sum(numbers, first, inner, sizes, strides, base, numbers.dtype.type(exponent), *_COLUMNS)
    finite = not (exponent and found[2])
    if dtype == torch.float64:
        finite = bool(np.isfinite(content.view(np.float64)).all())
    return Digest(int(found[0]), int(found[1])), finite


def _rows(box: Box, shape: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int, int]:
    """A box as rows of neighbouring elements: rows on each outer dimension, their strides, the place of the first
    element, the length of a row."""
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    base = sum(first * stride for (first, _), stride in zip(box, strides, strict=True))
    outer = len(shape)
    inner = 1
    while outer:
        outer -= 1
        first, last = box[outer]
        inner *= last - first
        if last - first != shape[outer]:
            break
    sizes = np.array([last - first for first, last in box[:outer]], dtype=np.int64)
    return sizes, np.array(strides[:outer], dtype=np.int64), base, max(inner, 1)


def _compiled(signatures: list[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile now, so that processes forked later find it done; later runs find it in numba's cache.

    Where no folder can be written for the cache it is compiled once in each process that imports this.
    """

    def compile_now(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            kernel: Callable[..., Any] = numba.njit(signatures, cache=True, nogil=True)(function)
        except RuntimeError:  # numba found no folder for its cache
            kernel = numba.njit(signatures, nogil=True)(function)
        return kernel

    return compile_now


@numba.njit(inline="always")
def _mixed(key: np.uint64, number: np.uint64) -> np.uint64:
    z = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@_compiled(
    [
        f"Tuple((u8,u8,i8))({kind}[::1],i8,i8,i8[::1],i8[::1],i8,{kind},u8[::1],u8[::1])"
        for kind in ("u1", "u2", "u4")
    ]
)
def _sum(numbers, first, inner, sizes, strides, base, exponent, columns_1, columns_2):  # type: ignore[no-untyped-def]
    total_1, total_2, bad = np.uint64(0), np.uint64(0), np.int64(0)
    place, end = 0, len(numbers)
    while place < end:
        row, column = (first + place) // inner, (first + place) % inner
        index = base + column
        for dim in range(len(sizes) - 1, -1, -1):
            index += (row % sizes[dim]) * strides[dim]
            row //= sizes[dim]
        row_end = min(end, place + inner - column)
        while place < row_end:
            low = index & (_RUN - 1)
            count = min(row_end - place, _RUN - low)
            sum_1, sum_2 = np.uint64(0), np.uint64(0)
            these = numbers[place : place + count]
            first_weights, second_weights = columns_1[low : low + count], columns_2[low : low + count]
            for i in range(count):
                number = np.uint64(these[i])
                sum_1 += number * first_weights[i]
                sum_2 += number * second_weights[i]
                bad += np.int64((these[i] & exponent) == exponent)
            block = np.uint64(index // _RUN)
            total_1 += sum_1 * _mixed(_KEY_1, block)
            total_2 += sum_2 * _mixed(_KEY_2, block)
            place += count
            index += count
    return total_1, total_2, bad


def digest_on_device(tensor: Tensor, box: Box, shape: Sequence[int]) -> Digest:
    """As `digest_of`, by torch's own operations, on any device."""
    flat = tensor.detach().contiguous().reshape(-1)
    if tensor.element_size() == 8:
        flat, box, shape = flat.view(torch.int32), (*box, (0, 2)), (*shape, 2)
    sizes, strides, base, inner = _rows(box, shape)
    totals = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    columns = [torch.from_numpy(one.view(np.int64)).to(tensor.device) for one in _COLUMNS]
    for start in range(0, flat.numel(), _AT_ONCE):
        numbers = _as_numbers(flat[start : start + _AT_ONCE])
        place = torch.arange(start, start + len(numbers), device=tensor.device)
        row, index = place // inner, place % inner + base
        for length, stride in zip(reversed(sizes.tolist()), reversed(strides.tolist()), strict=True):
            index += row % length * stride
            row //= length
        for number, key in enumerate(_KEYS):
            weights = _mixed_on_device(key, index // _RUN) * columns[number][index % _RUN]
            totals[number] += (numbers * weights).sum()
    return Digest.from_signed(*totals.tolist())


def _as_numbers(flat: Tensor) -> Tensor:
    size = flat.element_size()
    signed = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).to(torch.int64)
    return signed.bitwise_and(2 ** (8 * size) - 1)


def _mixed_on_device(key: int, number: Tensor) -> Tensor:
    def shifted(z: Tensor, bits: int) -> Tensor:
        return (z >> bits).bitwise_and((1 << (64 - bits)) - 1)

    golden, mix_1, mix_2, start = (
        Digest(one).as_signed()[0] for one in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, key)
    )
    z = (number + 1) * golden + start
    z = (z ^ shifted(z, 30)) * mix_1
    z = (z ^ shifted(z, 27)) * mix_2
    return (z ^ shifted(z, 31)).bitwise_or(1)
