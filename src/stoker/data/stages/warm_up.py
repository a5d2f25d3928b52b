"""What a process pays once, paid before any document: libraries, compiled kernels and tables that are loaded late.

It takes some processor seconds, for which the first document of a worker would be set aside as endless.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from stoker.data.deduplication import sign
from stoker.data.document import Document
from stoker.data.light_imports import without_looking_for_garbage
from stoker.data.operators import Operator
from stoker.recipe import Deduplication, Source

_TEXT = """Some words of English, a number (1,234.5) and addresses: https://example.org/a?b=c, name@example.org.
这里有一些中文，也有標點符號。学习是一件快乐的事情，时间过得很快。
def function(value): return value + 1  # and code
"""


def warm_up_before_forking(signing: Deduplication) -> None:
    """Sign a text, so that the workers that are forked from this process find done what all of them, and later this
    process itself, would do first: numba's tables of types filled, and the tables of code points."""
    with without_looking_for_garbage(), suppress(Exception):
        sign([_TEXT], signing)


def warm_up(source: Source, operators: Sequence[Operator], signing: Deduplication) -> None:
    """Let every operator, and signing, do their work once, on a text of all kinds. What fails will say so later."""
    document = Document(source.name, source.kind, source.language, "warm-up", "warm-up", "file", _TEXT)
    with without_looking_for_garbage():
        for operator in operators:
            with suppress(Exception):
                operator(document)
        with suppress(Exception):
            sign([_TEXT], signing)
