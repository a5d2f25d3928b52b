"""Tokens as people see them: no two of a vocabulary look the same, and bytes can be read back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from stoker.data.token_text import shown

_TRICKY = st.sampled_from(
    [b"\xe4", b"\xe4\xbd", b"\xef\xbf\xbd", b"<0xE4>", b"<0x3C>", b"<", b"<0xE", b"4>", b"<id 1>", b"", b" ", b"a"]
)
_CONTENTS = st.one_of(
    st.binary(max_size=6), st.lists(_TRICKY, max_size=3).map(b"".join), st.text(max_size=4).map(str.encode)
)


def read_back(written: str) -> bytes:
    """The bytes of what `shown` wrote of a token that is alone in standing for them."""
    parts = re.split(r"<0x([0-9A-F]{2})>", written)
    return b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))


@given(st.lists(_CONTENTS, max_size=12))
def test_no_two_tokens_of_a_vocabulary_look_the_same(contents: list[bytes]) -> None:
    written = shown(contents, range(len(contents)))
    assert len(set(written)) == len(contents)
    assert len({repr(one) for one in written}) == len(contents)


@given(_CONTENTS)
def test_a_token_can_be_read_back(content: bytes) -> None:
    (written,) = shown([content], [0])
    assert read_back(written) == content


def test_bytes_that_are_no_text_are_told_apart() -> None:
    assert shown([b"\xe4", b"\xe5", "中".encode(), b"\xe4\xbd", "\ufffd".encode()], range(5)) == [
        "<0xE4>",
        "<0xE5>",
        "中",
        "<0xE4><0xBD>",
        "\ufffd",
    ]
