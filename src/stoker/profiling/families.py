"""What kind of work an operator is, by its name, and how many FLOPs its shapes mean."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

MATMUL, ATTENTION = "matrix products", "attention"
FAMILIES = (
    MATMUL,
    ATTENTION,
    "loss",
    "normalisation",
    "elementwise",
    "reductions",
    "indexing",
    "copies",
    "fused",
    "other",
)
"""Kinds of computation; `fused` is what torch.compile made one kernel of, `other` what is none of the rest."""
Shape = Sequence[int]

_ATTENTION = re.compile(r"scaled_dot_product|attention|attend_to|flash|fmha", re.IGNORECASE)
_UNFUSED = re.compile(r"_scaled_dot_product_attention_math")
_FUSED_BY_COMPILER = re.compile(r"triton_|cpp_fused|CompiledF|Compiled Region|inductor", re.IGNORECASE)
_MATMULS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_grouped_mm", "_scaled_mm"}
_MATMULS |= {"_scaled_grouped_mm", "mkldnn_linear", "_mkl_linear", "rows_times_experts"}
_MATMUL_KERNEL = re.compile(r"gemm|cutlass|cublas|nvjet|xmma|wgmma|gemv", re.IGNORECASE)
_LOSS = re.compile(r"log_softmax|nll_loss|cross_entropy|logsumexp")
_NORM = re.compile(r"layer_norm|rms_norm|batch_norm|group_norm")
_INDEXING = re.compile(
    r"embedding|index|gather|scatter|sort|topk|one_hot|cumsum|bincount|searchsorted|nonzero|take"
)
_REDUCTIONS = re.compile(
    r"^(sum|mean|amax|amin|max|min|prod|any|all|norm|linalg_vector_norm|_foreach_norm|_?softmax)"
)
_COPIES = re.compile(
    r"copy|clone|contiguous|^cat$|stack|^to$|pad|^zero|fill|^ones|^empty|resize|Memcpy|Memset|arange|full"
)
_VIEWS = re.compile(
    r"^(view|reshape|_unsafe_view|t|transpose|permute|as_strided|expand|slice|select|split|chunk|narrow|squeeze|"
    r"unsqueeze|detach|alias|unflatten|flatten|unbind|movedim|linear|matmul|item|_local_scalar_dense|result_type|"
    r"resolve_conj|resolve_neg|lift_fresh|is_nonzero)"
)


@lru_cache(maxsize=4096)
def family_of(name: str) -> str:
    """The family of the operator or kernel called `name`."""
    plain = name.rpartition("::")[2]
    if _ATTENTION.search(name):
        return ATTENTION
    if _FUSED_BY_COMPILER.search(name):
        return "fused"
    if plain in _MATMULS or ("::" not in name and _MATMUL_KERNEL.search(name)):
        return MATMUL
    for pattern, family in (
        (_LOSS, "loss"),
        (_NORM, "normalisation"),
        (_INDEXING, "indexing"),
        (_VIEWS, "other"),
        (_REDUCTIONS, "reductions"),
        (_COPIES, "copies"),
    ):
        if pattern.search(plain):
            return family
    return "elementwise" if name.startswith("aten::") else "other"


def is_unfused_attention(name: str) -> bool:
    """Whether the operator computes attention by way of its whole matrix of scores."""
    return _UNFUSED.search(name) is not None


def is_fused_attention(name: str) -> bool:
    """Whether the operator is an attention that never holds the matrix of scores."""
    return bool(re.search(r"flash|efficient|cudnn|flex|document_attention|ring_attention|attend_to_all", name))


def matmul_sizes(name: str, shapes: Sequence[Shape]) -> tuple[int, int, int, int] | None:
    """How many products of [rows, inner] and [inner, columns] matrices an operator is, and their sizes."""
    plain = name.rpartition("::")[2]
    given = shapes[1:3] if plain in ("addmm", "baddbmm", "addbmm") else shapes[:2]
    if plain not in _MATMULS or len(given) < 2:
        return None
    left, right = given
    if len(left) == 2 and len(right) == 2 and left[1] == right[0]:
        return 1, left[0], left[1], right[1]
    if len(left) == 3 and len(right) == 3 and left[2] == right[1]:
        return left[0], left[1], left[2], right[2]
    if len(left) == 2 and len(right) == 3 and left[1] == right[1]:  # rows of each expert, one after another
        return 1, left[0], left[1], right[2]
    return None


def flops_of(name: str, shapes: Sequence[Shape]) -> int:
    """FLOPs of one call, a multiply-add being two; 0 where shapes do not tell. Attention as if without a mask."""
    sizes = matmul_sizes(name, shapes)
    if sizes is not None:
        return 2 * math.prod(sizes)
    if family_of(name) != ATTENTION:
        return 0
    # Forward is two products of [queries, head] and [head, keys], backward five.
    backward = "backward" in name
    first = shapes[1:4] if backward else shapes[:3]
    if len(first) < 2 or any(len(shape) != 4 for shape in first[:2]):
        return 0
    if name.startswith("stoker::document_attention"):  # [batch, length, heads, size] where torch has heads first
        (batch, queries, heads, size), keys = shapes[0], shapes[1][1]
    elif name.startswith("aten::"):
        (batch, heads, queries, size), keys = first[0], first[1][2]
    else:
        return 0
    return (10 if backward else 4) * batch * heads * queries * keys * size
